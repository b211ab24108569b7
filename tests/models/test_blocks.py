"""Units and residual blocks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrobust.models.shared.blocks import ConvolutionStyle, ConvolutionUnit, ResidualBlock, run_chain


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


@pytest.mark.parametrize(("use_bias", "scale"), [(False, True), (True, True), (False, False)])
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_inference_folds_the_normalisation_into_the_convolution(use_bias, scale, policy):
    """The same function, and the same gradient, as layer after layer."""
    style = ConvolutionStyle(use_bias=use_bias, scale=scale, branches=2)
    unit = ConvolutionUnit(4, size=3, stride=2, style=style, dtype=policy)
    rng = np.random.default_rng(1)
    images = tf.constant(rng.normal(size=(3, 7, 7, 2)), tf.float32)
    unit.build(images.shape)
    for variable in unit.variables:
        variable.assign(rng.uniform(0.5, 1.5, variable.shape))
    tolerance = 1e-5 if policy == "float32" else 0.05
    for branch in (0, 1):
        results = []
        for folds in (True, False):
            with tf.GradientTape() as tape:
                tape.watch(images)
                if folds:
                    answer = unit(images, training=False, branch=branch)
                else:
                    answer = run_chain(unit.chain, images, training=False, branch=branch)
                total = tf.reduce_sum(tf.cast(answer, tf.float32) ** 2)
            results.append((tf.cast(answer, tf.float32).numpy(), tape.gradient(total, images).numpy()))
        for folded, plain in zip(*results, strict=True):
            np.testing.assert_allclose(folded, plain, atol=tolerance * np.abs(plain).max())
    before = [variable.numpy() for variable in unit.non_trainable_variables]
    trained, served = (tf.cast(unit(images, training=training), tf.float32) for training in (True, False))
    assert not np.allclose(trained, served, atol=0.1)
    assert any(np.any(v.numpy() != old) for v, old in zip(unit.non_trainable_variables, before, strict=True))


@pytest.mark.parametrize("frames", [1, 2, 4])
def test_the_kernel_s_bfloat16_gradient_of_a_short_clip_is_written_whole(frames):
    clips = keras.random.normal((8, frames, 8, 8, 4), seed=0)
    gradients = {}
    for policy in ("float32", "mixed_bfloat16"):
        unit = ConvolutionUnit(4, size=(3, 3, 3), normalize=False, activate=False, dtype=policy)
        unit.build(clips.shape)
        kernel = unit.chain[0].kernel
        kernel.assign(keras.random.normal(kernel.shape, seed=1))
        for _ in range(4):
            _ = [tf.fill([2**size], tf.constant(np.nan, tf.bfloat16)) for size in range(8, 18)]  # stays in freed memory
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.cast(unit(clips, training=True), "float32") ** 2)
            gradients.setdefault(policy, []).append(tape.gradient(loss, kernel.value).numpy())
    exact = gradients["float32"][0]
    for gradient in gradients["mixed_bfloat16"]:
        np.testing.assert_allclose(gradient, exact, atol=0.1 * np.max(np.abs(exact)))
