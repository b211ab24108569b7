"""Check the base class's step on a network of two matrices: reduction, clipping, the hook after the update."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from oracles import tiny_network
from tfrobust.methods.supervised import Supervised
from tfrobust.models.heads.linear import LinearHead
from tfrobust.ops import distribution


def stepped(kind, optimizer, **keywords):
    """Return (a method after one step, how far its trainable variables moved)."""
    method = tiny_network.build(kind, **keywords)
    method.compile(optimizer, jit_compile=False)
    before = [variable.numpy() for variable in method.trainable_variables]
    batch, _ = tiny_network.batch()
    method.train_step((batch.images, batch.labels))
    after = [variable.numpy() for variable in method.trainable_variables]
    return method, [new - old for old, new in zip(before, after, strict=True)]


def norm(moves) -> float:
    return float(np.sqrt(sum(np.sum(move.astype(np.float64) ** 2) for move in moves)))


@pytest.mark.parametrize("scale", [None, 2.0**4, 2.0**10])
def test_clipping_bounds_the_gradient_and_not_the_scaled_gradient(scale):
    optimizer = keras.optimizers.SGD(1.0)
    if scale:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=scale)
    _, moves = stepped(Supervised, optimizer, clip_norm=0.01)
    assert norm(moves) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("scale", [None, 2.0**4])
def test_a_gradient_below_the_bound_is_not_clipped(scale):
    optimizer = lambda: keras.optimizers.SGD(1.0)  # noqa: E731
    _, plain = stepped(Supervised, optimizer())
    used = keras.optimizers.LossScaleOptimizer(optimizer(), initial_scale=scale) if scale else optimizer()
    _, moves = stepped(Supervised, used, clip_norm=1.01 * norm(plain))
    for move, expected in zip(moves, plain, strict=True):
        np.testing.assert_allclose(move, expected, rtol=1e-4, atol=1e-6)


def test_the_loss_is_divided_by_the_examples_of_all_replicas(monkeypatch):
    """Another replica holds twice as many: the gradients are summed, so that this one's share is a third."""
    _, alone = stepped(Supervised, keras.optimizers.SGD(1.0))
    monkeypatch.setattr(distribution, "global_sum", lambda value: 3.0 * value)
    _, shared = stepped(Supervised, keras.optimizers.SGD(1.0))
    for move, expected in zip(shared, alone, strict=True):
        np.testing.assert_allclose(move, expected / 3, rtol=1e-4, atol=1e-6)


def test_calls_without_training_and_exports_are_in_inference_mode(tmp_path):
    # RandomTranslation is random by default, where `training` is None.
    layers = [keras.layers.RandomTranslation(0.5, 0.5), keras.layers.Flatten(), keras.layers.Dropout(0.5)]
    method = Supervised(keras.Sequential([keras.Input((8, 8, 1)), *layers]), keras.layers.Dense(3))
    method.build((None, 8, 8, 1))
    images = np.random.default_rng(0).uniform(size=(4, 8, 8, 1)).astype(np.float32)
    expected = method.head(images.reshape(4, -1))
    method.export(str(tmp_path / "exported"), verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    for logits in (method(images), exported.serve(images), exported.serve(images)):
        np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_a_frozen_encoder_runs_as_it_will_be_served():
    layers = [keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.BatchNormalization()]
    encoder = keras.Sequential(layers)
    method = Supervised(encoder, LinearHead(3))
    method.build((None, 4))
    images = tf.random.stateless_normal([6, 4], [0, 1])
    served = method(images, training=False).numpy()
    encoder.trainable = False
    np.testing.assert_array_equal(method.propagate(images)[1], served)
    np.testing.assert_array_equal(method(images, training=False), served)
    encoder.trainable = True
    assert np.abs(method.propagate(images)[1] - served).max() > 0.01
    assert np.abs(method(images, training=False) - served).max() > 1e-4  # the statistics have moved


def test_a_step_inside_of_a_function_of_the_user_gives_no_warning(caplog):
    method, (batch, _) = tiny_network.build(Supervised), tiny_network.batch()
    method.compile("sgd", jit_compile=False)
    tf.get_logger().propagate = True
    try:
        for step in (method.train_step, method.test_step):
            tf.function(step)((batch.images, batch.labels))
    finally:
        tf.get_logger().propagate = False
    assert "AutoGraph" not in caplog.text


class UnusedTerm(Supervised):
    """Cross-entropy, and a term whose gradient is not finite."""

    terms = ("ce", "angle")

    def loss_terms(self, views, batch, context):
        _, logits = self.propagate(views["images"], training=True)
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.labels, logits)
        return {"ce": entropy, "angle": tf.acos(1.0 + 0.0 * logits[:, 0])}, logits


def test_a_term_of_weight_0_is_logged_and_has_no_gradient():
    method, moves = stepped(UnusedTerm, keras.optimizers.SGD(1.0), term_weights={"angle": 0})
    _, expected = stepped(Supervised, keras.optimizers.SGD(1.0))
    assert float(method.get_metrics_result()["angle"]) == 0
    for move, alone in zip(moves, expected, strict=True):
        np.testing.assert_allclose(move, alone, rtol=1e-5, atol=1e-7)
