"""Keras's own `fit`, `evaluate` and `export`, where a method's refusals and parts meet them."""

import contextlib
import functools
import re

import keras
import tensorflow as tf

from tfrobust.errors import InputError


class Trainer:
    """Mixed into a `keras.Model` that trains its parts by a step of its own."""

    @functools.wraps(keras.Model.fit)
    def fit(self, *arguments, **keywords):
        with _plain_refusals():
            return super().fit(*arguments, **keywords)

    @functools.wraps(keras.Model.evaluate)
    def evaluate(self, *arguments, **keywords):
        with _plain_refusals():
            return super().evaluate(*arguments, **keywords)

    @functools.wraps(keras.Model.export)
    def export(self, *arguments, **keywords):
        # Keras asks that the model was called; `fit` calls encoder and head instead.
        if self.built and not self._called:
            self(tf.zeros((1, *self._image_shape), self.input_dtype))
        return super().export(*arguments, **keywords)


@contextlib.contextmanager
def _plain_refusals():
    """What a graph asserts of pixels and labels, as the ValueError that it is in eager mode: one sentence."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        said = re.search(r"assertion failed: \[(.+)\]", error.message)
        if said is None:
            raise
        raise InputError(said[1]) from error
