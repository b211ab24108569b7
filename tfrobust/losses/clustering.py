"""The loss of methods that predict assignments to prototypes from other views: SwAV and DINO."""

import tensorflow as tf

from tfrobust.errors import InputError


def swapped_prediction(assignments: list[tf.Tensor], scores: list[tf.Tensor], *, temperature) -> tf.Tensor:
    """Compute the cross-entropy of each assignment and the predictions of all other views, per example.

        mean over the pairs (i, v), v != i, of -sum_k q_ik log softmax(s_v / t)_k

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> codes = [tf.constant([[1.0, 0.0]]), tf.constant([[0.0, 1.0]])]  # of two views of one image
        >>> scores = [tf.constant([[0.0, 1.0]]), tf.constant([[1.0, 0.0]])]
        >>> print(robust.losses.swapped_prediction(codes, scores, temperature=1.0).numpy().round(3))
        [0.313]

    Args:
        assignments: q, one float [b, k] for each of the first views, non-negative, sum 1; no gradient flows.
        scores: s, one float [b, k] per view, in the same order, at least two.
        temperature: t > 0, a number or a scalar tensor.

    Returns:
        float32 [b], nats.

    Raises:
        ValueError: fewer than two views, more assignments than views, or a temperature that is not above 0.

    Source:
        Caron et al. 2020 (SwAV), https://arxiv.org/abs/2006.09882, eq 2 and section 3.2; Caron et al. 2021 (DINO),
        https://arxiv.org/abs/2104.14294, eq 3. Both codes take this mean.
    """
    if len(scores) < 2 or not 0 < len(assignments) <= len(scores):
        raise InputError(
            f"swapped_prediction has {len(assignments)} assignments and {len(scores)} views; it needs at least two "
            "views, and the assignments of some of them."
        )
    if isinstance(temperature, (int, float)) and not temperature > 0:
        raise InputError(f"temperature is {temperature}; it must be > 0.")
    assignments = [tf.stop_gradient(tf.cast(codes, tf.float32)) for codes in assignments]
    values = []
    for view, score in enumerate(scores):
        targets = [codes for number, codes in enumerate(assignments) if number != view]
        if targets:
            log_p = tf.nn.log_softmax(tf.cast(score, tf.float32) / temperature)
            values.append(-tf.reduce_sum(tf.add_n(targets) * log_p, axis=-1))
    return tf.add_n(values) / (len(assignments) * (len(scores) - 1))
