"""Stems and stages of the ResNets."""

import numpy as np
import pytest
import tensorflow as tf

from tfrobust.models.resnets.stages import SymmetricMaxPooling, basic_path, stages
from tfrobust.models.shared.blocks import ConvolutionUnit, ResidualBlock


@pytest.mark.parametrize("shape", [(8, 6), (7, 5), (1, 2)])
@pytest.mark.parametrize(("size", "stride"), [(3, 2), (5, 3)])
def test_pooling_takes_the_largest_of_windows_around_the_map(shape, size, stride):
    """Against windows cut out one by one; negative maps would show zeros at the margin."""
    hidden = np.random.default_rng(0).normal(-5, 1, (2, *shape, 3)).astype(np.float32)
    layer = SymmetricMaxPooling(size, stride=stride)
    padded = np.pad(hidden, [(0, 0), *[(size // 2,) * 2] * 2, (0, 0)], constant_values=-np.inf)
    starts = [range(0, side + 2 * (size // 2) - size + 1, stride) for side in shape]
    expected = [[padded[:, y : y + size, x : x + size].max((1, 2)) for x in starts[1]] for y in starts[0]]
    expected = np.array(expected).transpose(2, 0, 1, 3)
    np.testing.assert_array_equal(layer(hidden), expected)
    assert layer.compute_output_shape((None, *shape, 3)) == (None, *expected.shape[1:])
    assert layer.compute_output_shape((None, None, shape[1], 3))[1] is None
    variable = tf.Variable(hidden)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(layer(variable))
    gradient = tape.gradient(total, variable).numpy()
    assert np.all(np.isfinite(gradient)) and gradient.sum() == pytest.approx(expected.size)


def test_stages_begin_with_stride_2_and_project_where_width_or_resolution_change():
    stage_layers = stages([ConvolutionUnit(4)], (2, 2, 1), (4, 4, 8), basic_path, ResidualBlock)
    assert [isinstance(layers[0], ConvolutionUnit) for layers in stage_layers] == [True, False, False]
    blocks = [[layer for layer in layers if isinstance(layer, ResidualBlock)] for layers in stage_layers]
    assert [[block.project for block in stage_blocks] for stage_blocks in blocks] == [
        [False, False],
        [True, False],
        [True],
    ]
    strides = [[[step[2] for step in block.convolutions] for block in stage_blocks] for stage_blocks in blocks]
    assert strides == [[[1, 1], [1, 1]], [[2, 1], [1, 1]], [[2, 1]]]
    (widened,) = stages([ConvolutionUnit(4)], (1,), (8,), basic_path, ResidualBlock)
    assert widened[1].project
