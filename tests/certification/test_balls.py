"""Balls in L2 and L1: linear functions against a greedy oracle, closed forms of linear networks, and sampled points."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from oracles import projections
from tfrobust.certification import balls, certify, operations

EXACT = operations.Arithmetic(tf.float64, 0.0)
DUAL = {"l2": lambda rows: np.linalg.norm(rows, axis=-1), "l1": lambda rows: np.abs(rows).max(-1)}


@pytest.mark.parametrize("norm", balls.NORMS)
@pytest.mark.parametrize("radius", [1e-6, 0.3, 2.0, 50.0])
def test_a_linear_function_has_its_exact_minimum_in_ball_and_box(norm, radius):
    generator = np.random.default_rng(0)
    centers = np.clip(generator.uniform(-0.3, 1.3, (3, 5, 4)), 0.0, 1.0)  # many pixels at the ends
    rows = generator.normal(size=(3, 6, 5, 4)) * generator.integers(0, 2, (3, 6, 5, 4))
    rows[0, 0] = 0.0
    ball, center = balls.NormBall(norm, radius, (0.0, 1.0)), operations.Box(*[tf.constant(centers)] * 2)
    output = ball.box([center], EXACT)
    exact, sound = (
        ball.backward(tf.constant(rows), [center], output, arithmetic, "adaptive")[1].numpy()
        for arithmetic in (EXACT, operations.SOUND)
    )
    for example, center in enumerate(centers):
        for row, values in enumerate(rows[example]):
            point = projections.linear_maximiser(-values.ravel(), center.ravel(), norm, radius, 0.0, 1.0)
            least = values.ravel() @ point
            assert exact[example, row] == pytest.approx(least, abs=1e-7)
            assert least - 1e-4 < sound[example, row] <= least
            lowest = ball.lowest(tf.constant(values[None]), tf.constant(center[None]))[0].numpy()
            assert values.ravel() @ lowest.ravel() == pytest.approx(least, abs=1e-7)
            assert projections.measure(lowest.ravel() - center.ravel(), norm) <= radius * (1 + 1e-9)
    pulled = ball.pulled(tf.constant(centers + 1.0), tf.constant(centers)).numpy() - centers
    assert [projections.measure(move.ravel(), norm) for move in pulled] == pytest.approx(
        [min(radius, projections.measure(np.ones(20), norm))] * 3
    )


@pytest.mark.parametrize("norm", balls.NORMS)
def test_methods_agree_on_a_linear_network_and_on_one_hidden_layer_of_known_signs(norm):
    keras.utils.set_random_seed(1)
    linear = keras.Sequential([keras.Input((3, 3, 1)), keras.layers.Flatten(), keras.layers.Dense(3)])
    images, labels = np.random.default_rng(1).uniform(0.4, 0.6, (4, 3, 3, 1)), np.arange(4) % 3
    kernel, epsilon = linear.layers[-1].kernel.numpy(), 0.05
    logits = images.reshape(4, 9) @ kernel
    rows = np.arange(4)
    slopes = kernel.T[labels][:, None] - kernel.T[None]
    exact = logits[rows, labels][:, None] - logits - epsilon * DUAL[norm](slopes)
    exact[rows, labels] = np.inf
    lifted = keras.Sequential(
        [keras.Input((3, 3, 1)), keras.layers.Flatten(), keras.layers.Dense(9, "relu"), linear.layers[-1]]
    )
    lifted.layers[1].set_weights([np.eye(9), np.zeros(9)])
    for model in (linear, lifted):
        for method in ("ibp", "crown_ibp", "crown", "alpha_crown", "complete"):
            margins = certify.certified_margins(model, images, labels, epsilon=epsilon, norm=norm, method=method)
            # Intervals of single pixels know nothing of the sum of their changes.
            if (model, method) != (lifted, "ibp"):
                np.testing.assert_allclose(margins, exact.min(1), atol=1e-4)
            assert np.all(margins <= exact.min(1))


@pytest.mark.parametrize(("norm", "reach"), [("l2", 0.1 * np.sqrt(2)), ("l1", 0.1)])
def test_intervals_begin_with_the_dual_norm_of_the_first_layer(norm, reach):
    """The margin is ReLU(x + y - 1/2), at (0.5, 0.5), where the sum falls by the dual norm of (1, 1)."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, "relu"), keras.layers.Dense(2, use_bias=False)])
    model.set_weights([np.ones((2, 1)), np.array([-0.5]), np.array([[1.0, 0.0]])])
    margins = certify.certified_margins(model, np.full((1, 2), 0.5), [0], epsilon=0.1, norm=norm)
    assert margins[0] == pytest.approx(0.5 - reach, abs=1e-5)


@pytest.mark.parametrize("norm", balls.NORMS)
def test_no_point_of_the_ball_has_a_smaller_margin_and_tighter_methods_certify_more(norm):
    keras.utils.set_random_seed(3)
    layers = keras.layers
    parts = layers.Conv2D(3, 3, 2, "same", activation="relu"), layers.Conv2D(4, 2, activation="relu"), layers.Flatten()
    model = keras.Sequential([keras.Input((5, 5, 1)), *parts, layers.Dense(8, "relu"), layers.Dense(3)])
    images = np.random.default_rng(0).uniform(size=(3, 5, 5, 1)).astype(np.float32)
    labels, epsilon = model(images).numpy().argmax(1), {"l2": 0.3, "l1": 1.0}[norm]
    means = []
    sampled = np.full(len(images), np.inf)
    generator = np.random.default_rng(2)
    for direction in generator.normal(size=(300, *images.shape)):
        sparse = direction * (generator.uniform(size=direction.shape) < generator.choice([0.05, 1.0]))
        flat = sparse.reshape(len(images), -1)
        sizes = np.maximum([projections.measure(row, norm) for row in flat], 1e-9)
        points = np.clip(images + epsilon * (flat / sizes[:, None]).reshape(images.shape), 0, 1)
        logits = model(points).numpy()
        of_labels = logits[np.arange(len(labels)), labels]
        logits[np.arange(len(labels)), labels] = -np.inf
        sampled = np.minimum(sampled, of_labels - logits.max(1))
    for method in ("ibp", "crown", "alpha_crown"):
        margins = certify.certified_margins(model, images, labels, epsilon=epsilon, norm=norm, method=method)
        assert np.all(margins < sampled)
        means.append(margins.mean())
    assert means == sorted(means) and means[1] > means[0]
