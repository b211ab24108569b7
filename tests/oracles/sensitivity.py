"""The sensitivity of every input value in one call, where the evaluator takes the projections chunk by chunk."""

import tensorflow as tf

from tfrobust.ops import sensitivity as maps


def sensitivity(embed, images, *, projections=None, key=None):
    """s_ij = |d phi(x_i) / d x_ij|_2, exactly (projections None, or >= d) or by as many projections drawn by `key`."""
    width = maps.embedding_width(embed, images)
    exact = projections is None or projections >= width
    directions = tf.eye(width) if exact else maps.random_directions(key, width, projections)
    return tf.sqrt(maps.add_squared_derivatives(embed, images, directions, tf.zeros_like(images)))
