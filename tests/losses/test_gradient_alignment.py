"""GradAlign: the cosine of two gradients in closed form, which images count, and where derivatives flow."""

import numpy as np
import pytest
import tensorflow as tf

from oracles import tiny_network
from tfrobust.keras.methods import GradAlign, Supervised

COUNT, PIXELS, EPSILON = 5, 4, 0.3
KEY = tf.constant([3, 1])


def drawn(monkeypatch, noise):
    monkeypatch.setattr(
        "tfrobust.ops.norms.random_in_ball", lambda key, like, kind, radius: tf.constant(radius * noise, tf.float32)
    )


def term(evaluate, images, **keywords):
    views = {"images": tf.constant(images, tf.float32)}
    values, _ = GradAlign(epsilon=EPSILON, **keywords)(
        lambda views: (evaluate(views), None), views, ("images",), lambda name: tf.constant(1.0), KEY
    )
    return values["grad_align"]


def test_a_quadratic_loss_has_the_cosine_of_the_points(monkeypatch):
    """l = |x|^2 / 2 has the gradient x: the cosine is that of x and x + u."""
    generator = np.random.default_rng(0)
    images, noise = generator.normal(size=(COUNT, PIXELS)), generator.uniform(-1, 1, (COUNT, PIXELS))
    drawn(monkeypatch, noise)
    near = images + EPSILON * noise
    cosine = (images * near).sum(1) / np.linalg.norm(images, axis=1) / np.linalg.norm(near, axis=1)
    values = term(lambda views: {"ce": 0.5 * tf.reduce_sum(views["images"] ** 2, axis=1)}, images)
    np.testing.assert_allclose(values, 1 - cosine, rtol=1e-4, atol=1e-6)
    assert np.all(1 - cosine > 1e-3)


def test_a_linear_loss_is_aligned_and_images_without_a_gradient_do_not_count():
    images = np.ones((4, PIXELS))
    slopes = tf.constant([[1.0], [0.0], [1e-30], [0.0]])
    flat = lambda views: {"ce": tf.reduce_sum(slopes * views["images"], axis=1)}  # noqa: E731
    np.testing.assert_allclose(term(flat, images), np.zeros(4), atol=1e-6)
    # The gradient turns around in two images of four: their mean is that of 2, over the two that count.
    bent = lambda views: {"ce": tf.reduce_sum(slopes * tf.abs(views["images"] - 1.0), axis=1)}  # noqa: E731
    values = term(bent, images).numpy()
    assert values[1] == values[3] == 0.0 and np.all(np.isfinite(values))


def test_derivatives_flow_through_the_second_gradient_alone(monkeypatch):
    """l = a x_1^2 / 2 + x_2 has the gradient (a x_1, 1)."""
    drawn(monkeypatch, np.array([[1.0, 0.0]]))
    point, slope, h = 0.5, 2.0, 1e-4

    def loss(factor):
        return lambda views: {"ce": 0.5 * factor * views["images"][:, 0] ** 2 + views["images"][:, 1]}

    def by_hand(first, second):
        g, n = np.array([first * point, 1.0]), np.array([second * (point + EPSILON), 1.0])
        return 1 - g @ n / np.linalg.norm(g) / np.linalg.norm(n)

    with tf.GradientTape() as tape:
        factor = tf.Variable(slope)
        value = tf.reduce_sum(term(loss(factor), [[point, 0.0]]))
    expected = (by_hand(slope, slope + h) - by_hand(slope, slope - h)) / (2 * h)
    both = (by_hand(slope + h, slope + h) - by_hand(slope - h, slope - h)) / (2 * h)
    assert float(tape.gradient(value, factor)) == pytest.approx(expected, rel=1e-3)
    assert abs(both - expected) > 0.1 * abs(expected)


def test_a_method_has_the_term_and_names_what_it_lacks():
    method = tiny_network.build(Supervised, penalty=GradAlign(epsilon=EPSILON, weight=0.5))
    batch, context = tiny_network.batch()
    values, _ = method.evaluate_terms({"images": batch.images}, batch, context)
    assert np.all(values["grad_align"] > 0) and float(method._weight("grad_align")) == 0.5
    other = context._replace(key=context.key + 1)
    again, _ = method.evaluate_terms({"images": batch.images}, batch, other)
    assert np.abs(again["grad_align"] - values["grad_align"]).max() > 1e-4
    with pytest.raises(ValueError, match=r"GradAlign penalizes \['kl'\]"):
        tiny_network.build(Supervised, penalty=GradAlign(epsilon=EPSILON, of=("kl",)))
