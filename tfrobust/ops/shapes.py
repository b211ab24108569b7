"""Shapes of batches, whose length may be known or not, and values by example in the rank of a batch."""

import tensorflow as tf


def batch_size(tensor: tf.Tensor):
    """The length of the batch axis: an integer where it is known, else a scalar tensor."""
    return tf.shape(tensor)[0] if tensor.shape[0] is None else tensor.shape[0]


def shape_of(tensor: tf.Tensor) -> tuple:
    """The shape of a batch [b, ...], static but for b, as `randomness.draw` takes it."""
    return batch_size(tensor), *tensor.shape[1:]


def by_example(values: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Values [b], or a scalar, in the rank of `like` [b, ...]: [b, 1, ..., 1], or [1, ..., 1]."""
    return tf.reshape(values, [-1] + [1] * (like.shape.rank - 1))
