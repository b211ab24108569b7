"""Classification losses: one prediction against one label."""

import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops.batch_checks import id_vector


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Compute the cross-entropy of the label under the prediction, per example.

        -log softmax(logits)_y                      for class ids
        -sum_k t_k log softmax(logits)_k            for one-hot or soft labels t

    Example:
        >>> from tfrobust import keras as robust
        >>> print(robust.losses.cross_entropy([[0.0, 0.0], [3.0, 0.0]], [0, 0]).numpy().round(3))
        [0.693 0.049]

    Args:
        logits: float [b, k].
        labels: class ids, integer [b] or [b, 1], 0 <= id < k; or a distribution over classes, [b, k], through which
            gradients flow too.

    Returns:
        float32 [b], nats.

    Raises:
        ValueError: labels of another shape.
        TypeError: class ids that are not integers.
    """
    logits = tf.cast(logits, tf.float32)
    labels = tf.convert_to_tensor(labels)
    # TensorFlow repeats labels [b, 1] for all classes, which is no distribution.
    if labels.shape.rank == 1 or (labels.shape.rank == 2 and labels.shape[1] == 1 != logits.shape[-1]):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=id_vector(logits, labels), logits=logits)
    if not logits.shape.is_compatible_with(labels.shape) or labels.shape.rank != 2:
        raise InputError(f"logits {logits.shape} and labels {labels.shape}: must be [b, k] and [b], [b, 1] or [b, k].")
    return tf.nn.softmax_cross_entropy_with_logits(labels=tf.cast(labels, tf.float32), logits=logits)


def smoothed(labels: tf.Tensor, class_count: int, smoothing: float) -> tf.Tensor:
    """Return the targets (1 - s) y + s / k of label smoothing, y the one-hot labels of k classes.

    Args:
        labels: class ids, integer [b].
        class_count: k.
        smoothing: s in [0, 1).

    Returns:
        float32 [b, k]; each row sums to 1.

    Source:
        Szegedy et al. 2016, arXiv:1512.00567, section 7.
    """
    return (1.0 - smoothing) * tf.one_hot(labels, class_count, dtype=tf.float32) + smoothing / class_count


def margin(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Compute the margin of the best other class over the label, max_{k != y} z_k - z_y, per example.

    Example:
        >>> from tfrobust import keras as robust
        >>> robust.losses.margin([[2.0, 0.5], [2.0, 0.5]], [0, 1]).numpy().tolist()
        [-1.5, 1.5]

    Args:
        logits: float [b, k], k >= 2.
        labels: class ids, integer [b] or [b, 1], 0 <= id < k.

    Returns:
        float32 [b], in units of logits; larger is worse for the model. Above 0 the prediction is wrong.

    Raises:
        ValueError: fewer than two classes, or labels of another shape.
        TypeError: labels that are not integers.

    Source:
        Carlini and Wagner 2017, arXiv:1608.04644, section V-A, f_6 without its clamp at a confidence.
    """
    logits = tf.cast(logits, tf.float32)
    labels = id_vector(logits, labels)
    if logits.shape[1] is not None and logits.shape[1] < 2:
        raise InputError("margin compares the label with another class: logits must have at least 2 classes.")
    chosen = tf.one_hot(labels, tf.shape(logits)[1], on_value=True, off_value=False, dtype=tf.bool)
    rivals = tf.where(chosen, tf.fill(tf.shape(logits), tf.float32.min), logits)
    return tf.reduce_max(rivals, axis=1) - tf.gather(logits, labels, batch_dims=1)
