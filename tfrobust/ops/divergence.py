"""Divergences between predicted distributions, computed from logits in float32, in nats.

They use log-softmax, never clipped probabilities, so that a confident model keeps its gradient.
"""

import tensorflow as tf


def kl_from_logits(p_logits: tf.Tensor, q_logits: tf.Tensor) -> tf.Tensor:
    """Compute KL(p || q) = sum_k p_k (log p_k - log q_k) per example, p = softmax(p_logits), q = softmax(q_logits).

    Args:
        p_logits: float [..., k], the reference. Gradients flow through both arguments.
        q_logits: float [..., k].

    Returns:
        float32 [...], nats, >= 0 up to rounding; summed over the classes, never divided by their number.
    """
    log_p = tf.nn.log_softmax(tf.cast(p_logits, tf.float32))
    log_q = tf.nn.log_softmax(tf.cast(q_logits, tf.float32))
    return tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=-1)


def entropy_from_logits(logits: tf.Tensor) -> tf.Tensor:
    """Compute the entropy -sum_k p_k log p_k of p = softmax(logits), per example.

    Args:
        logits: float [..., k]. The gradient flows through both factors.

    Returns:
        float32 [...], nats, between 0 and log(k).
    """
    log_p = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    return -tf.reduce_sum(tf.exp(log_p) * log_p, axis=-1)
