"""Units and residual blocks."""

import keras
import numpy as np
import pytest

from tfrobust.models.blocks import ConvolutionStyle, ConvolutionUnit, ResidualBlock


def test_identity_block_adds_its_input_before_the_activation():
    """With the last norm's scale at 0 the block is relu(x + offset)."""
    block = ResidualBlock(((2, 3, 1), (2, 3, 1)))
    block.build((None, 4, 4, 2))
    norm = block.units[1].chain[1].norms[0]
    norm.gamma.assign([0.0, 0.0])
    norm.beta.assign([0.25, -0.25])
    images = np.random.default_rng(0).normal(size=(2, 4, 4, 2)).astype(np.float32)
    np.testing.assert_allclose(block(images), np.maximum(images + [0.25, -0.25], 0), atol=1e-6)


def test_projection_is_a_strided_linear_map():
    block = ResidualBlock(((3, 3, 2), (3, 3, 1)), project=True)
    block.build((None, 4, 4, 2))
    norm = block.units[1].chain[1].norms[0]
    norm.gamma.assign([0.0] * 3)
    kernel, bias = block.shortcut[0].chain[0].kernel, block.shortcut[0].chain[0].bias
    bias.assign([0.1, 0.2, 0.3])
    images = np.random.default_rng(0).normal(size=(2, 4, 4, 2)).astype(np.float32)
    expected = np.maximum(images[:, ::2, ::2] @ kernel.numpy()[0, 0] + bias.numpy(), 0)
    np.testing.assert_allclose(block(images), expected, atol=1e-6)
    assert len(block.shortcut[0].chain) == 1, "no batch norm in the projection unless asked for"
    assert block.compute_output_shape((None, 4, 4, 2)) == (None, 2, 2, 3)


def test_middle_units_activate_and_the_last_does_not():
    block = ResidualBlock(((2, 1, 1), (2, 3, 1), (8, 1, 1)), project=True, normalize_projection=True)
    assert [unit.activate for unit in block.units] == [True, True, False]
    assert block.shortcut[0].normalize and not block.shortcut[0].activate


def test_block_without_projection_refuses_another_shape():
    with pytest.raises(ValueError, match="set project=True"):
        ResidualBlock(((3, 3, 1),)).build((None, 4, 4, 2))


def test_layers_survive_their_config_and_a_file(tmp_path):
    style = ConvolutionStyle(activation="tanh", kernel_regularization=0.1, branches=2, use_bias=False)
    inputs = keras.Input((4, 4, 2))
    hidden = ConvolutionUnit(3, size=5, stride=2, padding="valid", style=style)(keras.layers.ZeroPadding2D(2)(inputs))
    hidden = ResidualBlock(((4, 3, 1), (4, 3, 1)), project=True, style=style)(hidden, branch=1)
    model = keras.Model(inputs, hidden)
    model.save(tmp_path / "blocks.keras")
    loaded = keras.saving.load_model(tmp_path / "blocks.keras")
    images = np.random.default_rng(0).normal(size=(2, 4, 4, 2)).astype(np.float32)
    np.testing.assert_array_equal(loaded(images), model(images))
    assert loaded.layers[-1].style == style and len(loaded.losses) == 4
