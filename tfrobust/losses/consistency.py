"""Consistency losses between the predictions on several views of an example."""

from collections.abc import Sequence

import tensorflow as tf

from tfrobust.errors import InputError


def jensen_shannon(logits: Sequence[tf.Tensor], *, clip: float = 1e-7) -> tf.Tensor:
    """Compute the Jensen-Shannon divergence between the predictions on several views, per example.

        1/v sum_i KL( p_i || M ),  p_i = softmax(logits_i),  M = 1/v sum_i p_i, clipped to [clip, 1] under the logarithm

    Example:
        >>> from tfrobust import keras as robust
        >>> same, other = [[9.0, 0.0], [9.0, 0.0]], [[9.0, 0.0], [0.0, 9.0]]
        >>> print(robust.losses.jensen_shannon([same, other]).numpy().round(3))
        [0.    0.692]

    Args:
        logits: v >= 2 views, float [b, k] each. Gradients flow through all of them, and through M.
        clip: lower bound of the entries of M, in (0, 1).

    Returns:
        float32 [b], nats, between 0 (equal views) and log v (no class in common), up to rounding and `clip`.

    Raises:
        ValueError: fewer than two views, views of different shapes, or a clip outside (0, 1).

    Source:
        Hendrycks et al. 2020 (AugMix), https://arxiv.org/abs/1912.02781, eq. 2, and its released code (the clip); paper
        001, end of section 3.2, with three views.
    """
    if not 0 < clip < 1:
        raise InputError(f"jensen_shannon has clip {clip}; it lies in (0, 1).")
    views = [tf.cast(view, tf.float32) for view in logits]
    shapes = [tuple(view.shape) for view in views]
    if len(views) < 2 or any(len(shape) != 2 or shape != shapes[0] for shape in shapes):
        raise InputError(f"jensen_shannon compares two or more views of one shape [b, k], not {shapes}.")
    log_p = [tf.nn.log_softmax(view) for view in views]
    mixture = tf.add_n([tf.exp(log) for log in log_p]) / len(views)
    log_mixture = tf.math.log(tf.clip_by_value(mixture, clip, 1.0))
    return tf.add_n([tf.reduce_sum(tf.exp(log) * (log - log_mixture), axis=-1) for log in log_p]) / len(views)
