"""Branched batch normalization against its formula."""

import keras
import numpy as np

from tfrobust.models.shared.normalization import BranchedBatchNormalization


def test_formula_in_training_and_inference():
    draw = np.random.default_rng(0)
    values = draw.normal(2.0, 3.0, (4, 2, 2, 3)).astype(np.float32)
    layer = BranchedBatchNormalization(2, momentum=0.8, epsilon=0.1)
    layer.build((None, 2, 2, 3))
    gamma, beta = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.0, -0.5])
    layer.norms[1].gamma.assign(gamma)
    layer.norms[1].beta.assign(beta)
    mean, variance = values.mean((0, 1, 2)), values.var((0, 1, 2))

    trained = layer(values, training=True, branch=1)
    np.testing.assert_allclose(trained, gamma * (values - mean) / np.sqrt(variance + 0.1) + beta, rtol=1e-4, atol=1e-4)
    # Moving values start at 0 and 1.
    moving_mean, moving_variance = 0.2 * mean, 0.8 * 1 + 0.2 * variance
    np.testing.assert_allclose(layer.norms[1].moving_mean, moving_mean, rtol=1e-4)
    np.testing.assert_allclose(layer.norms[1].moving_variance, moving_variance, rtol=1e-4)
    expected = gamma * (values - moving_mean) / np.sqrt(moving_variance + 0.1) + beta
    np.testing.assert_allclose(layer(values, training=False, branch=1), expected, rtol=1e-4, atol=1e-4)

    # Branch 0 has seen nothing, and is the default.
    np.testing.assert_allclose(layer(values), values / np.sqrt(1.1), rtol=1e-5)


def test_a_frozen_layer_is_frozen_after_its_config():
    layer = BranchedBatchNormalization(2)
    layer.trainable = False
    restored = BranchedBatchNormalization.from_config(layer.get_config())
    values = np.random.default_rng(0).normal(2.0, 3.0, (4, 3)).astype(np.float32)
    np.testing.assert_allclose(restored(values, training=True, branch=1), values / np.sqrt(1 + 1e-5), rtol=1e-5)
    assert not restored.trainable_variables and not any(norm.moving_mean.numpy().any() for norm in restored.norms)


def test_one_branch_equals_keras():
    values = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    layer, plain = BranchedBatchNormalization(), keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
    for training in (True, False):
        np.testing.assert_array_equal(layer(values, training=training), plain(values, training=training))
