"""`fit`, `evaluate` and `export` of Keras, adapted to methods."""

import contextlib
import functools
import re

import keras
import tensorflow as tf

from tfrobust.errors import InputError


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
            self(tf.zeros((1, *self._image_shape), self.input_dtype))
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
