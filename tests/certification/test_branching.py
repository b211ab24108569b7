"""Branch and bound against HiGHS on small networks, and its counterexamples against the network."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from oracles import mixed_integer, projections
from tfrobust.certification import certify, intervals, operations, slopes
from tfrobust.certification.network import walk
from tfrobust.errors import InputError
from tfrobust.models.shared.group_sort import GroupSort


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


@pytest.mark.parametrize(("sign", "multiplier", "least"), [(1.0, 0.0, -0.5), (1.0, 1.0, 0.0), (-1.0, 0.5, -0.25)])
def test_a_multiplier_lowers_the_function_by_what_the_assumed_sign_allows(sign, multiplier, least):
    """Compare min (1 - multiplier) z, z >= 0, and min multiplier z, z <= 0, of ReLU(z), z = x - 0.5, x in [0, 0.8]."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, activation="relu"), keras.layers.Dense(1)])
    model.set_weights([np.array([[1.0]]), np.array([-0.5]), np.array([[1.0]]), np.array([0.0])])
    network, arithmetic = walk(model), operations.Arithmetic(tf.float64, 0.0)
    box = operations.Box(tf.constant([[0.0]], tf.float64), tf.constant([[0.8]], tf.float64))
    boxes = intervals.propagate(network, box, arithmetic)
    sites = slopes.Sites.before(network, boxes, len(network.nodes))
    values = (tf.constant([[[value]]], tf.float64) for value in (0.5, multiplier))
    signs, row = tf.constant([[sign]], tf.float64), tf.constant([[[1.0]]], tf.float64)
    bounds, _ = slopes.bound(network, sites, boxes, row, slopes.Choice(*values), signs, arithmetic)
    assert float(bounds[0, 0]) == pytest.approx(least, abs=1e-12)


def polytope(center, norm, epsilon, count=48):
    """Return constraints whose polytope lies in the ball and touches it (L1: is the ball), for images of few pixels."""
    if norm == "l1":
        signs = [np.array(row) for row in itertools.product((-1.0, 1.0), repeat=len(center))]
        return [(sign, epsilon + sign @ center) for sign in signs]
    angles = 2 * np.pi * np.arange(count) / count
    inside = epsilon * np.cos(np.pi / count)
    return [(way, inside + way @ center) for way in np.stack([np.cos(angles), np.sin(angles)], 1)]


@pytest.mark.parametrize(("norm", "pixels", "epsilon"), [("l1", 4, 0.3), ("l2", 2, 0.25)])
def test_verdicts_in_other_norms_are_those_of_the_mixed_integer_program(norm, pixels, epsilon):
    model, layers, images, labels = drawn(3, count=8, sizes=(pixels, 10, 8, 3))
    decisions = certify.decide(model, images, labels, epsilon=epsilon, norm=norm, seconds=600.0)
    by_method = {
        method: certify.certified_margins(model, images, labels, epsilon=epsilon, norm=norm, method=method)
        for method in ("ibp", "crown_ibp", "crown")
    }
    for index, label in enumerate(labels):
        limits = polytope(images[index], norm, epsilon)
        exact = min(
            mixed_integer.smallest_margin(layers, np.zeros(pixels), np.ones(pixels), label, rival, limits)
            for rival in range(3)
            if rival != label
        )
        assert all(margins[index] <= exact + 1e-6 for margins in (decisions.margins, *by_method.values()))
        if abs(exact) > 0.02:  # the polytope in L2 is smaller than the ball by 0.2 % of its radius
            assert certify.certified(decisions.margins[index]) == (exact > 0)
            assert decisions.broken[index] == (exact < 0)
    means = [np.maximum(margins, -9).mean() for margins in by_method.values()]
    assert means == sorted(means) and means[0] < means[-1]
    assert decisions.broken.any() and certify.certified(decisions.margins).any()
    points = decisions.counterexamples[decisions.broken]
    assert np.all(model(points).numpy().argmax(1) != labels[decisions.broken])
    for point, image in zip(points, images[decisions.broken], strict=True):
        assert projections.measure(point - image, norm) <= epsilon and np.all((0 <= point) & (point <= 1))


@pytest.mark.parametrize("stop", [keras.layers.MaxPooling1D(2), keras.layers.LayerNormalization(), GroupSort()])
def test_networks_whose_bounds_stop_at_a_layer_are_decided(stop):
    keras.utils.set_random_seed(2)
    parts = [keras.layers.Conv1D(4, 3, activation="relu"), stop, keras.layers.Conv1D(6, 2, activation="relu")]
    model = keras.Sequential([keras.Input((8, 1)), *parts, keras.layers.Flatten(), keras.layers.Dense(3)])
    images = np.random.default_rng(0).uniform(size=(6, 8, 1)).astype(np.float32)
    labels = model(images).numpy().argmax(1)
    decisions = certify.decide(model, images, labels, epsilon=0.03, seconds=0.5)
    linear = certify.certified_margins(model, images, labels, epsilon=0.03, method="crown")
    assert np.all(decisions.margins >= linear) and not np.any(decisions.broken & (decisions.margins > 0))
    predicted = model(decisions.counterexamples).numpy().argmax(1)
    assert np.all(predicted[decisions.broken] != labels[decisions.broken])


def test_seconds_are_checked():
    model, _, images, labels = drawn(0, count=1)
    with pytest.raises(InputError, match="seconds"):
        certify.decide(model, images, labels, epsilon=0.1, seconds=-1.0)
