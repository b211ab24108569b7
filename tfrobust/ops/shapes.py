"""Shapes of batches of static or dynamic size, and values per example that broadcast over or select from a batch."""

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


def select(condition: tf.Tensor, yes: tf.Tensor, no: tf.Tensor) -> tf.Tensor:
    """Select whole examples, like `tf.where` with one condition per example: bool [b], tensors [b, ...]."""
    # The operation of TensorFlow 1 copies rows, which takes a tenth of the time of a broadcast condition.
    return tf.raw_ops.Select(condition=condition, x=yes, y=no)


def pick(condition: tf.Tensor, yes: tf.Tensor, no: tf.Tensor) -> tf.Tensor:
    """Select entries, like `tf.where` with a condition that is broadcast to the shape of both tensors."""
    # Broadcasting the condition alone takes a third of the time.
    return tf.raw_ops.Select(condition=tf.broadcast_to(condition, tf.shape(yes)), x=yes, y=no)
