"""Shapes of batches of static or dynamic size, and per-example values that broadcast over a batch."""

import tensorflow as tf


def batch_size(tensor: tf.Tensor):
    """Return the length of the batch axis: an integer where it is static, else a scalar tensor."""
    return tf.shape(tensor)[0] if tensor.shape[0] is None else tensor.shape[0]


def shape_of(tensor: tf.Tensor) -> tuple:
    """Return the shape of a batch [b, ...], static but for b, as `randomness.draw` accepts it."""
    return batch_size(tensor), *tensor.shape[1:]


def by_example(values: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Reshape values [b], or a scalar, to the rank of `like` [b, ...]: [b, 1, ..., 1], or [1, ..., 1]."""
    return tf.reshape(values, [-1] + [1] * (like.shape.rank - 1))
