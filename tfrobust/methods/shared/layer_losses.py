"""Losses that layers add in their passes (`add_loss`, `activity_regularizer`), summed over the passes of a step.

Keras keeps those of the last call of an outermost layer only. A method calls its encoder several times in a step.
"""

import contextlib
import threading
from collections.abc import Iterator

import keras
import tensorflow as tf

from tfrobust.ops import keras_private

_recording = threading.local()  # replicas are traced in threads


@contextlib.contextmanager
def recorded() -> Iterator[list[tf.Tensor]]:
    """Return a list that gets the losses of all passes inside that call `record`."""
    outer = getattr(_recording, "losses", None)
    _recording.losses = []
    try:
        yield _recording.losses
    finally:
        _recording.losses = outer


def record(layer: keras.layers.Layer) -> None:
    """Record the losses of the last pass of an outermost layer; without effect outside of `recorded`."""
    losses = getattr(_recording, "losses", None)
    if losses is not None:
        losses.extend(keras_private.losses_of_last_call(layer))


def total(layer: keras.layers.Layer, passes: list[tf.Tensor]) -> tf.Tensor | None:
    """Sum recorded losses, the last losses of other parts, and weight regularizers; return None if there are none."""
    recorded_ids = set(map(id, passes))
    losses = [*passes, *(loss for loss in layer.losses if id(loss) not in recorded_ids)]
    return tf.add_n([tf.cast(loss, tf.float32) for loss in losses]) if losses else None
