"""Attention of heads, written with products whose gradients can be differentiated again."""

import tensorflow as tf


def attend(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, present: tf.Tensor | None = None) -> tf.Tensor:
    """Compute softmax(Q K^T / sqrt(e)) V of every head.

    The fused kernels that Keras chooses on some devices have no second derivatives, which penalties on input gradients
    need.

    Args:
        query: float [b, h, l, e], e features of each of the h heads.
        key: as `query`.
        value: as `query`.
        present: bool [b, l], true for tokens, false for padding, which is not attended to; None if all are tokens.

    Returns:
        float [b, h, l, e].
    """
    scores = tf.einsum("bhle,bhme->bhlm", query * query.shape[-1] ** -0.5, key)
    if present is not None:
        scores = tf.where(present[:, None, None], scores, scores.dtype.min)
    return tf.einsum("bhlm,bhme->bhle", tf.nn.softmax(scores), value)
