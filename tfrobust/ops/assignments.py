"""Soft assignments of examples to prototypes, over all replicas: Sinkhorn's balance, and entropy."""

import math

import tensorflow as tf

from tfrobust.ops import distribution


def sinkhorn(
    scores: tf.Tensor, *, temperature: float = 0.05, iterations: int = 3, weights: tf.Tensor | None = None
) -> tf.Tensor:
    """Compute assignments that use all prototypes about equally often.

    q = exp(s / temperature); then, `iterations` times, the sum of q over the examples of all replicas becomes the same
    for each prototype, and the sum over the prototypes becomes 1 for each example. It is computed by logarithms, so
    that scores of any size are finite. With 0 iterations it is the softmax.

    Args:
        scores: s, float [b, k], those of this replica.
        temperature: > 0.
        iterations: >= 0.
        weights: float [b], counts of the examples in the sums over them; 0 leaves an example out. None is 1 for all.

    Returns:
        float32 [b, k] that sums to 1 for each example; no gradient flows.

    Source:
        Caron et al. 2020 (SwAV), https://arxiv.org/abs/2006.09882, section 3.1; Cuturi 2013.
    """
    logs = tf.stop_gradient(tf.cast(scores, tf.float32)) / temperature
    weight = tf.zeros_like(logs[:, :1]) if weights is None else _log(tf.cast(weights, tf.float32))[:, None]
    for _ in range(iterations):
        prototype_mass = tf.reduce_logsumexp(logs + weight, axis=0, keepdims=True)
        logs -= tf.reduce_logsumexp(distribution.gather(prototype_mass), axis=0, keepdims=True)
        logs -= tf.reduce_logsumexp(logs, axis=1, keepdims=True)
    return tf.nn.softmax(logs)


def mean_entropy(assignments: list[tf.Tensor]) -> tf.Tensor:
    """Compute the entropy of the mean assignment of all examples, to detect collapse.

    Args:
        assignments: one float [b, k] per view that sums to 1 for each example.

    Returns:
        float32 scalar in [0, 1], the share of log k: 1 if all prototypes are used equally, 0 if only one is. No
        gradient flows.
    """
    stacked = tf.stop_gradient(tf.concat(assignments, axis=0))
    total = distribution.global_sum(tf.reduce_sum(stacked, axis=0))
    mean = total / tf.reduce_sum(total)
    return -tf.reduce_sum(tf.math.xlogy(mean, mean)) / math.log(max(2, stacked.shape[-1]))


def _log(weights: tf.Tensor) -> tf.Tensor:
    # Finite, because -inf - (-inf) is NaN; its exponential is 0.
    return tf.where(weights > 0, tf.math.log(tf.where(weights > 0, weights, 1.0)), -1e9)
