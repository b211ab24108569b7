"""Relations between anchors and keys from two `Tags`, bool [n, m] with anchors as rows; selections combine them."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from tfrobust.structs import PairMasks, Tags

# Elements of one block of `in_blocks`.
BLOCK_ELEMENTS = 2**23


def tag(sample: tf.Tensor, *, view: int, label=None, prediction=None) -> Tags:
    """Return the tags of one view of a batch.

    Args:
        sample: integer [b], rows in the global batch (`Context.rows`).
        view: 0 = the image, 1 = its adversarial example or second view, ...
        label: integer [b]; None where the rules need none (stored as -1, so that all labels agree).
        prediction: integer [b]; None likewise.

    Returns:
        `Tags` of int32 [b].
    """
    sample = tf.cast(sample, tf.int32)
    unknown = tf.fill(tf.shape(sample), -1)
    label, prediction = (unknown if ids is None else tf.cast(ids, tf.int32) for ids in (label, prediction))
    return Tags(sample, tf.fill(tf.shape(sample), view), label, prediction)


def join(*tags: Tags) -> Tags:
    """Concatenate the tags of several views in order, as `tf.concat(embeddings, 0)` does with the embeddings."""
    return Tags(*(tf.concat(column, axis=0) for column in zip(*tags, strict=True)))


def take(tags: Tags, rows: tf.Tensor) -> Tags:
    """Return the tags at some positions, int32 [r]."""
    return Tags(*(tf.gather(column, rows) for column in tags))


def same_sample(anchors: Tags, keys: Tags) -> tf.Tensor:
    """Return where both show the same image, in any view."""
    return _equal(anchors.sample, keys.sample)


def same_label(anchors: Tags, keys: Tags) -> tf.Tensor:
    """Return where y_i = y_j."""
    return _equal(anchors.label, keys.label)


def same_prediction(anchors: Tags, keys: Tags) -> tf.Tensor:
    """Return where p_i = p_j, each view with its own prediction."""
    return _equal(anchors.prediction, keys.prediction)


def predicted_as_anchor(anchors: Tags, keys: Tags) -> tf.Tensor:
    """Return where p_j = y_i: the key is predicted as the anchor's class."""
    return _equal(anchors.label, keys.prediction)


def same_embedding(anchors: Tags, keys: Tags) -> tf.Tensor:
    """Return where the key is the anchor: same image, same view."""
    return same_sample(anchors, keys) & _equal(anchors.view, keys.view)


def counterparts(anchors: Tags, keys: Tags) -> tf.Tensor:
    """Return where the key is the anchor's image in another view."""
    return same_sample(anchors, keys) & ~_equal(anchors.view, keys.view)


@dataclasses.dataclass(frozen=True)
class ByRows:
    """Masks of a rule, computed for the requested anchors only, so that n x m booleans are never held.

    Attributes:
        rule: (anchors, keys) -> `PairMasks`, such as a selection.
        anchors: `Tags` of n embeddings.
        keys: `Tags` of m embeddings.
    """

    rule: Callable[[Tags, Tags], PairMasks]
    anchors: Tags
    keys: Tags

    def __call__(self, rows: tf.Tensor) -> PairMasks:
        """Return the masks [r, m] of the anchors at int32 [r]."""
        return self.rule(take(self.anchors, rows), self.keys)


def in_blocks(values: Callable[[tf.Tensor], tf.Tensor], count, width, *, columns: int) -> tf.Tensor:
    """Compute a function of anchors block by block, so that memory does not grow with their number.

    Args:
        values: positions int32 [r] -> float32 [r, columns].
        count: n, the number of anchors.
        width: elements held for each anchor, such as the number of keys.
        columns: c.

    Returns:
        float32 [n, c].
    """
    block = tf.clip_by_value(BLOCK_ELEMENTS // tf.maximum(width, 1), 1, tf.maximum(count, 1))
    places = tf.reshape(tf.range(tf.cast(tf.math.ceil(count / block), tf.int32) * block), [-1, block])
    values_of_blocks = tf.map_fn(
        values, tf.minimum(places, count - 1), parallel_iterations=1, fn_output_signature=tf.float32
    )
    return tf.reshape(values_of_blocks, [-1, columns])[:count]


def _equal(first, second):
    return tf.equal(first[:, None], second[None, :])
