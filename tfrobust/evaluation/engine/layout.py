"""Models that take their channels first, as predictors of images with channels last."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.evaluation.engine.predictor import Predictor


def channels_last(predictor: Predictor) -> Predictor:
    """Return the predictor of images [b, h, w, c], or of clips [b, t, h, w, c], for a model that takes channels first.

    Raises:
        InputError: the model takes tokens.
    """
    if predictor.is_text:
        raise InputError(f"{predictor.name} takes tokens, which have no channels: leave --channels_first out.")
    *frames, channels, height, width = predictor.image_shape
    return dataclasses.replace(
        predictor,
        logits=_after_transposition(predictor.logits),
        embedding=predictor.embedding and _after_transposition(predictor.embedding),
        image_shape=(*frames, height, width, channels),
        normalization=None,
        network=None,
        no_network="its channels come first",
        surrogate=predictor.surrogate and channels_last(predictor.surrogate),
    )


def _after_transposition(function: Callable) -> Callable:
    def transposed(images):
        count = images.shape.rank
        return function(tf.transpose(images, [*range(count - 3), count - 1, count - 3, count - 2]))

    return transposed
