"""GroupSort against a literal loop, and its Jacobian, which is a permutation."""

import numpy as np
import pytest
import tensorflow as tf

from tfrobust.models.shared.group_sort import GroupSort


def by_loop(values, size):
    flat = values.reshape(-1, size or values.shape[-1])
    return np.array([sorted(row.tolist()) for row in flat], values.dtype).reshape(values.shape)


@pytest.mark.parametrize(("shape", "size"), [((2, 6), 2), ((2, 3, 6), 3), ((2, 3, 2, 4), None), ((1, 8), 4)])
def test_groups_of_channels_are_sorted_and_gradients_keep_their_length(shape, size):
    values = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)  # with equal ones
    layer = GroupSort(size)
    compiled = tf.function(layer, input_signature=[tf.TensorSpec((None, *shape[1:]))])
    for function in (layer, compiled):
        np.testing.assert_array_equal(function(values), by_loop(values, size))
    distinct = tf.constant(np.random.default_rng(1).permutation(values.size).reshape(shape).astype(np.float32))
    weights = tf.random.stateless_normal(shape, (1, 2))
    with tf.GradientTape() as tape:
        tape.watch(distinct)
        value = tf.reduce_sum(weights * layer(distinct))
    gradient = tape.gradient(value, distinct).numpy()
    assert sorted(gradient.ravel()) == sorted(weights.numpy().ravel())
