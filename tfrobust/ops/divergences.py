"""Divergences between images and their adversarial examples in feature space."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfrobust.ops.similarity import pairwise

# Cosine distances of equal float32 vectors are at most about this.
_ROUNDING = 1e-6


class Divergences(NamedTuple):
    """Divergences of embeddings, float32 scalars.

    Attributes:
        r_div: intra / inter.
        intra: intra-class divergence.
        inter: inter-class divergence.
        anchors: number of anchors that they are averaged over.
    """

    r_div: tf.Tensor
    intra: tf.Tensor
    inter: tf.Tensor
    anchors: tf.Tensor


def divergences(clean_embeddings, adversarial_embeddings, labels) -> Divergences:
    """Compute absolute and relative divergences of one batch, with clean anchors only.

    With X_i^+ = {x_j, x_j^T : j != i, y_j = y_i}, X_i^- = {x_j, x_j^T : y_j != y_i} and d the cosine distance
    1 - cos of the features,

        intra = mean_i mean_{x in X_i^+} d(x_i, x)    inter = mean_i mean_{x in X_i^-} d(x_i, x)
        r_div = intra / inter

    x^T is the adversarial example of x. The anchor's own adversarial example is in neither set. Anchors with an empty
    set are ignored (the paper does not specify this case).

    Args:
        clean_embeddings: float [b, d], penultimate features of the images.
        adversarial_embeddings: float [b, d], of their adversarial examples, in the same order.
        labels: integer [b].

    Returns:
        float32 scalars; NaN if no anchor has both sets, r_div also if inter is 0 up to rounding (all features equal).

    Source:
        Bui et al. 2021 (ASCL), section 2, (i) and (ii); per batch as in its supplement.
    """
    labels = tf.convert_to_tensor(labels)
    # Each set contains x_j together with x_j^T, so the mean over a set is the mean of the two distances.
    distance = (_cosine_distance(clean_embeddings, clean_embeddings)) / 2
    distance += _cosine_distance(clean_embeddings, adversarial_embeddings) / 2
    equal = labels[:, None] == labels[None, :]
    positive = tf.cast(equal & ~tf.eye(tf.shape(labels)[0], dtype=tf.bool), tf.float32)
    negative = tf.cast(~equal, tf.float32)
    positives, negatives = tf.reduce_sum(positive, 1), tf.reduce_sum(negative, 1)
    counted = tf.cast((positives > 0) & (negatives > 0), tf.float32)
    anchors = tf.reduce_sum(counted)
    intra_of = tf.math.divide_no_nan(tf.reduce_sum(positive * distance, 1), positives)
    inter_of = tf.math.divide_no_nan(tf.reduce_sum(negative * distance, 1), negatives)
    # Plain divisions: without anchors the result is NaN, not a flattering 0.
    intra = tf.reduce_sum(counted * intra_of) / anchors
    inter = tf.reduce_sum(counted * inter_of) / anchors
    r_div = tf.where(inter > _ROUNDING, intra / inter, tf.constant(np.nan, tf.float32))
    return Divergences(r_div, intra, inter, anchors)


def _cosine_distance(anchors, keys) -> tf.Tensor:
    similarity = pairwise(tf.cast(anchors, tf.float32), tf.cast(keys, tf.float32), "cosine")
    # Rounding can put the cosine of equal vectors slightly above 1.
    return tf.maximum(1.0 - similarity, 0.0)


def batched_divergences(clean: np.ndarray, adversarial: np.ndarray, labels: np.ndarray, batch_size: int) -> Divergences:
    """Compute `divergences` per batch and average over the batches; r_div is the mean of the batches' ratios.

    The paper averages over batches of 128; it does not state if the ratios or their parts are averaged. The last,
    shorter batch is weighted by its anchors, and batches without anchors are ignored.

    Args:
        clean: float [n, d], embeddings of the images, in an order that mixes the classes.
        adversarial: float [n, d], embeddings of their adversarial examples.
        labels: integer [n].
        batch_size: b.

    Returns:
        NumPy scalars; NaN as in `divergences`.
    """
    parts = []
    for start in range(0, len(labels), batch_size):
        rows = slice(start, start + batch_size)
        parts.append([float(v) for v in divergences(clean[rows], adversarial[rows], labels[rows])])
    table = np.array([part for part in parts if part[3] > 0], np.float64).reshape(-1, 4)
    weights = table[:, 3]
    if not len(table):
        return Divergences(np.nan, np.nan, np.nan, 0)
    r_div, intra, inter = np.average(table[:, :3], axis=0, weights=weights)
    return Divergences(r_div, intra, inter, int(weights.sum()))
