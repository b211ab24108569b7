"""Contrastive losses between parts of videos: the instance, local-local and global-local losses of TCLR."""

import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import similarity


def paired_instances(
    anchors: tf.Tensor, keys: tf.Tensor, same: tf.Tensor, *, temperature, pairs: tf.Tensor | None = None
) -> tf.Tensor:
    """Compute NT-Xent between every two of several sets of embeddings of the same videos, per video.

    For vector x_i of video i in set x, and another set y:

        l_ixy = -log( exp(x_i y_i / t) / ( sum_(k != i) exp(x_i x_k / t) + sum_k exp(x_i y_k / t) ) )

    with vectors normalized to length 1. The result is the mean over the pairs (x, y), so that two sets give SimCLR's
    NT-Xent.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> vectors = tf.stack([tf.eye(3), tf.eye(3)], axis=1)  # two equal views of three videos
        >>> own = tf.eye(3, dtype=tf.bool)
        >>> values = robust.losses.paired_instances(vectors, vectors, own, temperature=1.0)
        >>> print(values.numpy().round(3))  # log(1 + 4 / e)
        [0.905 0.905 0.905]

    Args:
        anchors: float [b, s, d], one vector of each video in each of s >= 2 sets.
        keys: float [m, s, d], of all videos; with several replicas gathered from all of them.
        same: bool [b, m], true where anchor and key are the same video, once per row.
        temperature: t > 0.
        pairs: bool [s, s], the ordered pairs (x, y) that count; None for all with x != y.

    Returns:
        float32 [b], nats.

    Raises:
        ValueError: fewer than two sets, or a temperature that is not above 0.

    Source:
        Dave et al. 2022 (TCLR), https://arxiv.org/abs/2101.07974, eq 1; between two sets Chen et al. 2020 (SimCLR),
        eq 1.
    """
    sets = anchors.shape[1]
    if sets < 2:
        raise InputError(f"paired_instances compares sets of embeddings; anchors has {sets}, it needs at least two.")
    logits = _logits("bsd,mtd->bstm", anchors, keys, temperature)
    same_video = same[:, None, None, :]
    positive = tf.reduce_sum(tf.where(same_video, logits, 0.0), axis=-1)
    itself = same_video & tf.eye(sets, dtype=tf.bool)[None, :, :, None]
    totals = tf.reduce_logsumexp(tf.where(itself, tf.float32.min, logits), axis=-1)  # [b, s, s]
    among = tf.linalg.diag_part(totals)[:, :, None]  # over the other videos of the anchor's own set
    largest = tf.stop_gradient(tf.maximum(among, totals))
    values = largest + tf.math.log(tf.exp(among - largest) + tf.exp(totals - largest)) - positive
    chosen = ~tf.eye(sets, dtype=tf.bool) if pairs is None else pairs
    weights = tf.cast(chosen, tf.float32)
    return tf.reduce_sum(tf.where(chosen, values, 0.0), axis=[1, 2]) / tf.reduce_sum(weights)


def local_local(first: tf.Tensor, second: tf.Tensor, *, temperature) -> tf.Tensor:
    """Compute NT-Xent among the clips of one video, per video: other clips of the video are the negatives.

    The 2n vectors of a video are n clips in two augmentations. The positive of a vector is the same clip in the other
    augmentation. The result is the mean over the 2n vectors.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> clips = tf.eye(2)[None]  # two clips of one video
        >>> print(robust.losses.local_local(clips, clips, temperature=1.0).numpy().round(3))  # log(1 + 2 / e)
        [0.551]

    Args:
        first: float [b, n, d], n clips of each video.
        second: float [b, n, d], the same clips in another augmentation.
        temperature: t > 0.

    Returns:
        float32 [b], nats.

    Raises:
        ValueError: a temperature that is not above 0.

    Source: Dave et al. 2022 (TCLR), eq 2; the released code sums over the videos of a batch.
    """
    count = first.shape[1]
    vectors = tf.concat([first, second], axis=1)
    logits = _logits("bsd,btd->bst", vectors, vectors, temperature)
    logits = tf.where(tf.eye(2 * count, dtype=tf.bool), tf.float32.min, logits)
    positive = tf.range(2 * count)[None] + tf.where(tf.range(2 * count) < count, count, -count)
    positive = tf.broadcast_to(positive, tf.shape(logits)[:2])
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(positive, logits), axis=1)


def global_local(slices: tf.Tensor, clips: tf.Tensor, *, temperature) -> tf.Tensor:
    """Compute the cross-entropy between slices of a long clip and the short clips that they cover, per video.

    Slice j of the long clip and short clip j show the same time. Each slice is classified among the clips, and each
    clip among the slices; the result is the mean over the 2n cross-entropies.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> parts = tf.eye(2)[None]
        >>> print(robust.losses.global_local(parts, parts, temperature=1.0).numpy().round(3))  # log(1 + 1 / e)
        [0.313]

    Args:
        slices: float [b, n, d], slices in time of the features of each long clip.
        clips: float [b, n, d], the short clips.
        temperature: t > 0.

    Returns:
        float32 [b], nats.

    Raises:
        ValueError: a temperature that is not above 0.

    Source: Dave et al. 2022 (TCLR), eq 3.
    """
    logits = _logits("bsd,btd->bst", slices, clips, temperature)
    matches = tf.broadcast_to(tf.range(tf.shape(logits)[1])[None], tf.shape(logits)[:2])
    ways = (logits, tf.transpose(logits, [0, 2, 1]))
    entropies = [tf.nn.sparse_softmax_cross_entropy_with_logits(matches, way) for way in ways]
    return tf.reduce_mean(tf.add_n(entropies) / len(ways), axis=1)


def _logits(equation: str, anchors: tf.Tensor, keys: tf.Tensor, temperature) -> tf.Tensor:
    """Return cosines over the temperature, float32."""
    if isinstance(temperature, (int, float)) and not temperature > 0:
        raise InputError(f"temperature is {temperature}; it must be > 0.")
    return tf.einsum(equation, similarity.normalize(anchors), similarity.normalize(keys)) / temperature
