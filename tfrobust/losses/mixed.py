"""Losses for predictions on a mixture of two examples."""

import tensorflow as tf

from tfrobust.common.settings import require_choice
from tfrobust.losses.classification import cross_entropy

OBJECTIVES = ("cross_entropy", "binary_cross_entropy")


def mixed_loss(
    objective: str, logits: tf.Tensor, labels: tf.Tensor, partner_labels: tf.Tensor, weight: tf.Tensor
) -> tf.Tensor:
    """Compute one of the `OBJECTIVES` for mixed labels, float32 [b]; arguments as for `mixed_cross_entropy`."""
    if objective == "cross_entropy":
        return mixed_cross_entropy(logits, labels, partner_labels, weight)
    first, other = (tf.one_hot(ids, logits.shape[-1]) for ids in (labels, partner_labels))
    weight = tf.reshape(tf.cast(weight, tf.float32), [-1, 1])
    return softmax_binary_cross_entropy(logits, weight * first + (1.0 - weight) * other)


def checked_objective(objective: str, owner: str) -> str:
    """Return `objective` if it is one of `OBJECTIVES`; raise ValueError otherwise."""
    return require_choice(objective, f"{owner}.objective", OBJECTIVES)


def mixed_cross_entropy(
    logits: tf.Tensor, labels: tf.Tensor, partner_labels: tf.Tensor, weight: tf.Tensor
) -> tf.Tensor:
    """Compute the cross-entropy of a mixture of two labels, per example.

        lambda CE(y) + (1 - lambda) CE(y')

    Example:
        >>> from tfrobust import keras as robust
        >>> print(robust.losses.mixed_cross_entropy([[3.0, 0.0], [3.0, 0.0]], [0, 0], [1, 1], 0.75).numpy().round(3))
        [0.799 0.799]

    Args:
        logits: float [b, k].
        labels: class ids, integer [b], of the part with weight lambda.
        partner_labels: class ids, integer [b], of the other part.
        weight: lambda in [0, 1], float [], [b] or [b, 1].

    Returns:
        float32 [b], nats.

    Source:
        Zhang et al. 2018, https://arxiv.org/abs/1710.09412; equal to the cross-entropy of the mixed one-hot label.
    """
    weight = tf.cast(weight, tf.float32)
    weight = weight if weight.shape.rank == 0 else tf.reshape(weight, [-1])  # a column would make a matrix
    return weight * cross_entropy(logits, labels) + (1.0 - weight) * cross_entropy(logits, partner_labels)


def softmax_binary_cross_entropy(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Compute the binary cross-entropy of each class under the softmax, averaged over the classes, per example.

        -1/k sum_j t_j log p_j + (1 - t_j) log(1 - p_j),  p = softmax(logits)

    Example:
        >>> from tfrobust import keras as robust
        >>> print(robust.losses.softmax_binary_cross_entropy([[0.0, 0.0]], [[0.5, 0.5]]).numpy().round(3))
        [0.693]

    Args:
        logits: float [b, k], k >= 2.
        targets: a distribution over the classes, float [b, k].

    Returns:
        float32 [b], nats.

    Source:
        The released code of Manifold Mixup and Puzzle Mix, whose papers use the cross-entropy; without the lower bound
        of -100 that this code sets to the logarithms.
    """
    logits, targets = tf.cast(logits, tf.float32), tf.cast(targets, tf.float32)
    log_p = tf.nn.log_softmax(logits)
    largest = tf.one_hot(tf.argmax(logits, axis=-1), logits.shape[-1], on_value=True, off_value=False, dtype=tf.bool)
    # 1 - p is exact in float32 where p <= 1/2; for the largest p it is the sum of the others.
    smaller = tf.where(largest, tf.fill(tf.shape(log_p), tf.float32.min), log_p)
    rest = tf.reduce_logsumexp(smaller, axis=-1, keepdims=True)
    log_not_p = tf.where(largest, rest, tf.math.log1p(-tf.exp(tf.where(largest, -1.0, log_p))))
    return -tf.reduce_mean(targets * log_p + (1.0 - targets) * log_not_p, axis=-1)
