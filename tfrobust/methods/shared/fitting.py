"""`fit`, `evaluate` and `export` of Keras, adapted to methods; conversion of their data to a `Batch`."""

import contextlib
import functools
import re

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import batch_checks, distribution
from tfrobust.structs import Batch

_MIXED = "; to train on mixed labels, use robust.methods.Mixup or robust.methods.CutMix, which mix the images too"


class Trainer:
    """Mixin for a `keras.Model` with a training step of its own."""

    @functools.wraps(keras.Model.fit)
    def fit(self, *arguments, **keywords):
        """Train as `keras.Model.fit`; failed checks of the data raise ValueError with one sentence."""
        with _plain_refusals():
            return super().fit(*arguments, **keywords)

    @functools.wraps(keras.Model.evaluate)
    def evaluate(self, *arguments, **keywords):
        """Evaluate as `keras.Model.evaluate`; failed checks of the data raise ValueError with one sentence."""
        with _plain_refusals():
            return super().evaluate(*arguments, **keywords)

    @functools.wraps(keras.Model.export)
    def export(self, *arguments, **keywords):
        """Export as `keras.Model.export`, also before the first call."""
        # Keras requires that the model has been called; `fit` calls encoder and head instead.
        if self.built and not self._called:
            self(tf.zeros((1, *self._example_shape), self.input_dtype))
        return super().export(*arguments, **keywords)


@contextlib.contextmanager
def _plain_refusals():
    """Convert a failed assertion of the graph into the one-sentence ValueError raised in eager mode."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        said = re.search(r"assertion failed: \[(.+)\]", error.message)
        if said is None:
            raise
        raise InputError(said[1]) from error


def batch_of(data, caller: str, bounds: tuple[float, float]) -> Batch:
    """Convert a batch as users pass it to a checked `Batch`.

    Args:
        data: (x, y[, sample_weight]). x: images [b, h, w, c], tokens [b, length] of any integer type, a table [b, d],
            or a dict that holds one of these under `images`. y: class ids or one-hot rows.
        caller: name of the caller, for messages.
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
        batch_checks.check_pixels(images, caller, *bounds)
    images = tf.cast(images, tf.int32 if images.dtype.is_integer else tf.float32)
    return Batch(images, None if labels is None else batch_checks.class_ids(labels, caller, _MIXED), rows, extra)


def given_labels(data, batch: Batch) -> tf.Tensor:
    """Return the labels in the format that was passed in, by which Keras chooses its metrics."""
    return batch.labels if isinstance(data, Batch) else keras.utils.unpack_x_y_sample_weight(data)[1]
