"""Similarities between every anchor and every key, in float32, with finite values and gradients."""

import tensorflow as tf

from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError

SIMILARITIES = ("cosine", "dot", "l1", "l2", "linf", "lkinf")

# Vectors with a largest entry below this count as zero: their direction is noise, and its gradient (which grows with
# one over the length) would exceed float32.
_ZERO = 1e-12
_LARGEST_GAPS = 10


def normalize(vectors: tf.Tensor) -> tf.Tensor:
    """Scale vectors to Euclidean length 1, x / |x|; a zero vector stays zero, with zero gradient.

    Args:
        vectors: float [..., d], finite, of any scale.

    Returns:
        float32 [..., d].
    """
    vectors = tf.cast(vectors, tf.float32)
    largest = tf.reduce_max(tf.abs(vectors), axis=-1, keepdims=True)
    usable = largest > _ZERO
    # The direction does not depend on the scale, so dividing by a constant first changes neither value nor gradient; it
    # keeps the squares from under- and overflowing.
    scale = tf.stop_gradient(tf.where(usable, largest, tf.ones_like(largest)))
    scaled = tf.where(usable, vectors / scale, tf.zeros_like(vectors))
    squared = tf.reduce_sum(tf.square(scaled), axis=-1, keepdims=True)
    return scaled * tf.math.rsqrt(tf.where(usable, squared, tf.ones_like(squared)))


def pairwise(anchors: tf.Tensor, keys: tf.Tensor, kind: str = "cosine") -> tf.Tensor:
    """Compute the similarity of every anchor to every key; distances are negated, so larger is always closer.

        cosine: a.k / (|a| |k|), 0 where either is zero    dot: a.k
        l1: -sum |a - k|    l2: -sqrt(sum (a - k)^2)    linf: -max |a - k|
        lkinf: minus the mean of the 10 largest |a - k| (of all of them where d < 10)

    Args:
        anchors: float [n, d].
        keys: float [m, d].
        kind: one of `SIMILARITIES`. The distances compute the differences [n, m, d] (exact for near pairs, where the
            expanded square would cancel); cosine and dot are one matrix product.

    Returns:
        float32 [n, m]. The gradient of every distance between equal vectors is 0.

    Raises:
        ValueError: unknown kind, or inputs that are not [n, d] and [m, d].

    Source:
        Bui et al. 2021 (ASCL), arXiv:2101.10027, section 3.1: "cosine similarity or minus an Lp distance"; `lkinf` and
        the signs: tuananhbui89/ASCL @ ca78d7b, distance.py, whose distances are the negatives. Difference: in that code
        the gradient of l2 is NaN for equal vectors.
    """
    anchors, keys = tf.cast(anchors, tf.float32), tf.cast(keys, tf.float32)
    _check(anchors, keys, kind)
    if kind == "cosine":
        return tf.matmul(normalize(anchors), normalize(keys), transpose_b=True)
    if kind == "dot":
        return tf.matmul(anchors, keys, transpose_b=True)
    gaps = tf.abs(anchors[:, None, :] - keys[None, :, :])
    if kind == "l1":
        return -tf.reduce_sum(gaps, axis=-1)
    if kind == "linf":
        return -tf.reduce_max(gaps, axis=-1)
    if kind == "lkinf":
        features = gaps.shape[-1]
        largest, _ = tf.math.top_k(gaps, k=min(_LARGEST_GAPS, features))
        return -tf.reduce_mean(largest, axis=-1)
    squared = tf.reduce_sum(tf.square(gaps), axis=-1)
    apart = squared > 0
    # The inner `where` keeps the infinite slope of the square root at 0 out of the gradient.
    return -tf.where(apart, tf.sqrt(tf.where(apart, squared, tf.ones_like(squared))), tf.zeros_like(squared))


def elements_per_pair(kind: str, features: int) -> int:
    """Return the number of elements that `pairwise` holds at once for one pair: 1 for products, d for distances."""
    return 1 if kind in ("cosine", "dot") else features


def _check(anchors, keys, kind):
    require_choice(kind, "similarity", SIMILARITIES)
    if anchors.shape.rank != 2 or not tf.TensorShape([None, anchors.shape[1]]).is_compatible_with(keys.shape):
        raise InputError(
            f"anchors {tuple(anchors.shape)} and keys {tuple(keys.shape)} must be [n, d] and [m, d], one d."
        )
