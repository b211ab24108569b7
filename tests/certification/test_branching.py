"""Branch and bound against HiGHS on small networks, and its counterexamples against the network."""

import keras
import numpy as np
import pytest

from oracles import mixed_integer
from tfrobust.certification import certify
from tfrobust.errors import InputError


def drawn(seed, count, sizes=(5, 20, 12, 3)):
    """Return a dense ReLU network as a Keras model and as matrices, and images with the classes that it gives them."""
    generator = np.random.default_rng(seed)
    model, layers = keras.Sequential([keras.Input(sizes[:1])]), []
    for number, (before, after) in enumerate(zip(sizes, sizes[1:], strict=False)):
        model.add(keras.layers.Dense(after, activation="relu" if number < len(sizes) - 2 else None))
        matrix = generator.normal(size=(after, before)) * np.sqrt(2 / before)
        layers.append((matrix.astype(np.float32).astype(float), 0.3 * generator.normal(size=after).astype(np.float32)))
        model.layers[-1].set_weights([layers[-1][0].T, layers[-1][1]])
    images = generator.uniform(size=(count, sizes[0]))
    return model, layers, images, model(images).numpy().argmax(1)


@pytest.mark.parametrize(
    "networks", [pytest.param(1, marks=pytest.mark.first), pytest.param(10, marks=pytest.mark.rest)]
)
def test_every_verdict_is_that_of_the_mixed_integer_program(networks):
    beyond = broken_images = 0
    for seed in range(networks):
        model, layers, images, labels = drawn(seed, count=50 if networks > 1 else 16)
        epsilon = (0.15, 0.1, 0.2, 0.05)[seed % 4]
        decisions = certify.decide(model, images, labels, epsilon=epsilon)
        linear = certify.certified_margins(model, images, labels, epsilon=epsilon, method="alpha_crown")
        lower, upper = np.maximum(images - epsilon, 0.0), np.minimum(images + epsilon, 1.0)
        for index, label in enumerate(labels):
            exact = min(
                mixed_integer.smallest_margin(layers, lower[index], upper[index], label, rival)
                for rival in range(3)
                if rival != label
            )
            margin, broken = decisions.margins[index], decisions.broken[index]
            assert linear[index] <= exact + 1e-6 and margin <= exact + 1e-6
            if abs(exact) > 3e-3:  # of less, rounding in float32 may take more
                assert certify.certified(margin) == (exact > 0) and broken == (exact < 0)
            beyond += linear[index] <= 0 < margin
            broken_images += broken
        points = decisions.counterexamples
        assert np.all((lower <= points) & (points <= upper))
        assert np.all(model(points).numpy().argmax(1)[decisions.broken] != labels[decisions.broken])
    assert beyond and broken_images


def test_seconds_are_checked():
    model, _, images, labels = drawn(0, count=1)
    with pytest.raises(InputError, match="seconds"):
        certify.decide(model, images, labels, epsilon=0.1, seconds=-1.0)
