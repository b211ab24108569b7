"""The input of a Keras model's first normalization layer, and the statistics that this layer expects."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfrobust.ops import keras_private


class NormalizationInput(NamedTuple):
    """Statistics of the input of the first normalization layer for some images.

    Attributes:
        layer: name of the layer.
        values: float32 [n, c], its input, one row per position of an image.
        mean: float32 [c], the fixed mean of the layer: that of its training.
        std: float32 [c], the standard deviation, > 0.
    """

    layer: str
    values: np.ndarray
    mean: np.ndarray
    std: np.ndarray


def first_normalization(model: keras.Model) -> Callable | None:
    """Return the function images -> NormalizationInput of a model; None if it has no layer with fixed statistics.

    Batch normalization counts, and `keras.layers.Normalization`, unless their statistics are the initial ones. The
    returned function runs the model eagerly in inference mode.
    """
    layers = [layer for layer in keras_private.all_layers(model) if _statistics(layer) is not None]
    return (lambda images: _first_input(model, layers, images)) if layers else None


def _first_input(model: keras.Model, layers: list, images) -> NormalizationInput | None:
    """Return what the first of the layers that the model calls receives; None if that is not known."""
    with _recording(layers) as calls:
        model(tf.constant(images), training=False)
    if not calls:
        return None
    layer, hidden = calls[0]
    mean, std = _statistics(layer)
    values = np.asarray(tf.cast(hidden, tf.float32)).reshape(-1, hidden.shape[-1])
    if len(mean) not in (1, values.shape[1]):  # the channels are not the last axis
        return None
    return NormalizationInput(
        layer.name, values, *(np.broadcast_to(statistic, values.shape[1:]) for statistic in (mean, std))
    )


@contextlib.contextmanager
def _recording(layers: list) -> Iterator[list]:
    """Record the layers and their inputs in the order of their calls."""
    calls = []

    def recording_call(layer, call):
        def called(hidden, *arguments, **keywords):
            calls.append((layer, hidden))
            return call(hidden, *arguments, **keywords)

        return called

    try:
        for layer in layers:
            layer.call = recording_call(layer, layer.call)
        yield calls
    finally:
        for layer in layers:
            vars(layer).pop("call", None)


def _statistics(layer) -> tuple[np.ndarray, np.ndarray] | None:
    """Return mean and standard deviation per channel, each [c] or [1]; None if there are none, or initial ones."""
    if not layer.built:
        return None
    if isinstance(layer, keras.layers.BatchNormalization):
        mean, variance = layer.moving_mean, layer.moving_variance
    elif isinstance(layer, keras.layers.Normalization):
        mean, variance = layer.mean, layer.variance
    else:
        return None
    mean, variance = (
        np.asarray(keras.ops.convert_to_numpy(statistic), np.float32).reshape(-1) for statistic in (mean, variance)
    )
    if np.all(mean == 0) and np.all(variance == 1):
        return None
    return mean, np.sqrt(np.maximum(variance, np.finfo(np.float32).tiny))
