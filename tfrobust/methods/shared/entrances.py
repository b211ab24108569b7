"""The functions of `keras.Model` that users of a method call, with the checks and preparations that a method needs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.methods.shared import compiling, even_batches, freezing, updates, weight_perturbation
from tfrobust.methods.shared.mixin import Mixin
from tfrobust.models.shared import normalization
from tfrobust.ops import batch_checks, keras_private

_log = logging.getLogger("tfrobust")


def _checked(name: str) -> Callable:
    """Return a function of `keras.Model` of which failed checks of the data raise ValueError with one sentence."""

    @functools.wraps(getattr(keras.Model, name))
    def entrance(self, *arguments, **keywords):
        if name == "train_on_batch":
            self._start_if_new()
        with self._checked_data(arguments, keywords):
            return getattr(super(Entrances, self), name)(*arguments, **keywords)

    return entrance


class Entrances(Mixin):
    """Mixin of `Method`: functions of `keras.Model`, from `compile` and `fit` to `load_weights` and `summary`."""

    @functools.wraps(keras.Model.compile)
    def compile(self, *arguments, **keywords):
        """Compile as `keras.Model.compile`; arguments that a method would ignore are refused."""
        bound = inspect.signature(keras.Model.compile).bind(self, *arguments, **keywords).arguments
        compiling.check_arguments(self, bound)
        super().compile(*arguments, **keywords)
        updates.check_accumulation(type(self).__name__, self.optimizer, self.no_accumulation)
        freezing.check_rate(type(self).__name__, self.optimizer, self.encoder_rate)
        if getattr(self, "weight_perturbation", None) is not None:
            weight_perturbation.check_optimizer(type(self).__name__, self.optimizer)

    def compile_from_config(self, config: dict):
        """Compile a loaded method with its own optimizer, which Keras leaves out for a class with its own `compile`."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    @functools.wraps(keras.Model.fit)
    def fit(self, *arguments, **keywords):
        """Train as `keras.Model.fit`; failed checks of the data raise ValueError with one sentence.

        Several replicas share every batch equally: the last rows of one that does not divide are left out.
        """
        with self.distribute_strategy.scope():  # callbacks look for the weights before the first step
            self._build_if_known(whole=True)
            self._start_if_new()
        replicas = self.distribute_strategy.num_replicas_in_sync
        if replicas > 1:
            keywords = inspect.signature(keras.Model.fit).bind(self, *arguments, **keywords).arguments
            keywords.pop("self")
            arguments, keywords = (), even_batches.of_fit(keywords, replicas)
            if note := normalization.synchronization_warning(self):
                _log.warning(note)
        with self._checked_data(arguments, keywords):
            return super().fit(*arguments, **keywords)

    evaluate, predict = _checked("evaluate"), _checked("predict")
    train_on_batch, test_on_batch, predict_on_batch = map(
        _checked, ("train_on_batch", "test_on_batch", "predict_on_batch")
    )

    @functools.wraps(keras.Model.export)
    def export(self, *arguments, **keywords):
        """Export as `keras.Model.export`, also before the first call."""
        # Keras requires that the model has been called; `fit` calls encoder and head instead.
        if self.built and not keras_private.was_called(self):
            self(tf.zeros((1, *self._example_shape), self.input_dtype))
        return super().export(*arguments, **keywords)

    @functools.wraps(keras.Model.load_weights)
    def load_weights(self, *arguments, **keywords):
        """Load weights as `keras.Model.load_weights`, also before the first batch if the encoder knows its input."""
        if not self._build_if_known():
            raise InputError(
                f"{type(self).__name__} has no weights yet: call build((None, height, width, channels)) with the shape "
                "of its images before load_weights."
            )
        return super().load_weights(*arguments, **keywords)

    @functools.wraps(keras.Model.summary)
    def summary(self, *arguments, **keywords):
        """Print a summary as `keras.Model.summary`, with all weights if the encoder knows its input."""
        self._build_if_known()
        return super().summary(*arguments, **keywords)

    def _start_if_new(self) -> None:
        """Call `start` before the first step: the encoder may have been given weights after `build`."""
        if self.built and not int(self.step.numpy()):
            self.start()

    def _build_if_known(self, whole: bool = False) -> bool:
        """Build the method if the encoder knows the shape of its input, or, if `whole`, each of its sides.

        Returns:
            True if the method is built.
        """
        inputs = list(getattr(self.encoder, "inputs", None) or ())
        if not self.built and len(inputs) == 1 and not (whole and None in inputs[0].shape[1:]):
            self.build(tuple(inputs[0].shape))
        return self.built

    def _checked_data(self, arguments: tuple, keywords: dict) -> contextlib.AbstractContextManager:
        """Check inputs that are arrays, and return a context that shortens the errors of failed checks in the graph.

        XLA omits the assertions of the graph, so that token ids in arrays are checked here.
        """
        inputs = arguments[0] if arguments else keywords.get("x")
        inputs = batch_checks.examples_of(inputs, type(self).__name__)
        if isinstance(inputs, (np.ndarray, tf.Tensor)) and inputs.ndim == 2:
            self._known_tokens(tf.convert_to_tensor(inputs))
        return batch_checks.plain_refusals()
