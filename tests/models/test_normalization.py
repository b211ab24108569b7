"""Branched batch normalisation against its formula."""

import keras
import numpy as np
import pytest

from tfrobust.models.normalization import BranchedBatchNormalization


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


def test_one_branch_equals_keras():
    values = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    layer, plain = BranchedBatchNormalization(), keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
    for training in (True, False):
        np.testing.assert_array_equal(layer(values, training=training), plain(values, training=training))


def test_config_round_trip():
    layer = BranchedBatchNormalization(3, momentum=0.5, epsilon=0.2, synchronized=True, name="norm")
    again = BranchedBatchNormalization.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert (again.branches, again.momentum, again.epsilon, again.synchronized) == (3, 0.5, 0.2, True)
    again.build((None, 4))
    assert len(again.variables) == 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"branches": 0}, "branches"),
        ({"branches": True}, "branches"),
        ({"momentum": 1.0}, "momentum"),
        ({"momentum": -0.1}, "momentum"),
        ({"epsilon": 0.0}, "epsilon"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=f"BranchedBatchNormalization.{message} must be"):
        BranchedBatchNormalization(**arguments)


def test_branch_out_of_range_says_what_is_valid():
    layer = BranchedBatchNormalization(2, name="norm")
    with pytest.raises(ValueError, match="norm: there is no branch 2.*0 to 1 are valid"):
        layer(np.zeros((1, 3), np.float32), branch=2)
