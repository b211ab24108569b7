"""Consistency losses between the predictions on several views of an example."""

import math
from collections.abc import Sequence

import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops.batch_checks import id_vector


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
        Hendrycks et al. 2020 (AugMix), https://arxiv.org/abs/1912.02781, eq. 2, and its released code (the clip);
        Erichson et al. 2022, end of section 3.2, with three views.
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


def mixture_cross_entropy(logits: Sequence[tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
    """Compute the negative logarithm of the mean probability of the label over several views, per example.

        -log( 1/v sum_i softmax(logits_i)_y )

    It is at most the mean of the cross-entropies of the views.

    Example:
        >>> from tfrobust import keras as robust
        >>> value = robust.losses.mixture_cross_entropy([[[2.0, 1.0, 0.0]], [[0.5, 1.0, 0.0]]], [0])
        >>> print(value.numpy().round(3))
        [0.721]

    Args:
        logits: v >= 1 views, float [b, k] each. Gradients flow through all of them.
        labels: class ids, integer [b] or [b, 1].

    Returns:
        float32 [b], nats.

    Raises:
        ValueError: no view, or views of different shapes.

    Source:
        Salman et al. 2019 (SmoothAdv), https://arxiv.org/abs/1906.04584, eq. 7.
    """
    log_p = _log_probabilities("mixture_cross_entropy", logits)
    labels = id_vector(log_p[0], labels)
    chosen = tf.stack([tf.gather(log, labels, batch_dims=1) for log in log_p])
    return math.log(len(log_p)) - tf.reduce_logsumexp(chosen, axis=0)


def mixture_consistency(logits: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute the divergence of the mean prediction from those on several views, and its entropy, per example.

        1/v sum_i KL( M || p_i )  and  -sum_k M_k log M_k,  p_i = softmax(logits_i),  M = 1/v sum_i p_i

    Example:
        >>> from tfrobust import keras as robust
        >>> kl, entropy = robust.losses.mixture_consistency([[[2.0, 1.0, 0.0]], [[0.5, 1.0, 0.0]]])
        >>> print(kl.numpy().round(4), entropy.numpy().round(4))
        [0.0687] [0.9919]

    Args:
        logits: v >= 1 views, float [b, k] each. Gradients flow through all of them, and through M.

    Returns:
        (divergence, entropy), float32 [b] each, nats.

    Raises:
        ValueError: no view, or views of different shapes.

    Source:
        Jeong and Shin 2020, https://arxiv.org/abs/2006.04062, eq. 8, and its released code.
    """
    log_p = _log_probabilities("mixture_consistency", logits)
    log_mixture = tf.reduce_logsumexp(tf.stack(log_p), axis=0) - math.log(len(log_p))
    mixture = tf.exp(log_mixture)
    divergences = [tf.reduce_sum(mixture * (log_mixture - log), axis=-1) for log in log_p]
    return tf.add_n(divergences) / len(log_p), -tf.reduce_sum(mixture * log_mixture, axis=-1)


def _log_probabilities(name: str, logits: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    views = [tf.cast(view, tf.float32) for view in logits]
    shapes = [tuple(view.shape) for view in views]
    if not views or any(len(shape) != 2 or shape != shapes[0] for shape in shapes):
        raise InputError(f"{name} takes one or more views of one shape [b, k], not {shapes}.")
    return [tf.nn.log_softmax(view) for view in views]
