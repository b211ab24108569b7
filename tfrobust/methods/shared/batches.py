"""Conversion of Keras's (x, y[, sample_weight]) to a `Batch`."""

import keras
import tensorflow as tf

from tfrobust.ops import batch_checks, distribution
from tfrobust.structs import Batch

_MIXED = "; to train on mixed labels take robust.methods.Mixup or robust.methods.CutMix, which mix by themselves"


def batch_of(data, who: str, bounds: tuple[float, float]) -> Batch:
    """Convert a batch as users pass it to a checked `Batch`.

    Args:
        data: (x, y[, sample_weight]). x: images [b, h, w, c], tokens [b, length] of any integer type, a table [b, d],
            or a dict that holds one of these under `images`. y: class ids or one-hot rows.
        who: name of the caller, for messages.
        bounds: lowest and highest pixel.

    Returns:
        A `Batch` with pixels as float32 and tokens and labels as int32.

    Raises:
        ValueError: integer pixels, pixels out of the bounds, or labels that are neither ids nor one-hot.
    """
    images, labels, weight = keras.utils.unpack_x_y_sample_weight(data)
    extra = {} if weight is None else {"sample_weight": tf.reshape(weight, [-1])}
    if isinstance(images, dict):
        extra.update({name: value for name, value in images.items() if name != "images"})
        images = images["images"]
    rows = distribution.global_rows(tf.shape(images)[0])
    images = tf.convert_to_tensor(images)
    if images.shape.rank != 2:
        batch_checks.check_pixels(images, who, *bounds)
    images = tf.cast(images, tf.int32 if images.dtype.is_integer else tf.float32)
    return Batch(images, None if labels is None else batch_checks.class_ids(labels, who, _MIXED), rows, extra)


def given_labels(data, batch: Batch) -> tf.Tensor:
    """Return the labels in the format that was passed in, by which Keras chooses its metrics."""
    return batch.labels if isinstance(data, Batch) else keras.utils.unpack_x_y_sample_weight(data)[1]
