"""Dropout that is reproducible across numbers of replicas and resumed runs."""

import random
from collections.abc import Sequence

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.errors import InputError
from tfrobust.ops import randomness
from tfrobust.ops.shapes import shape_of


@keras.saving.register_keras_serializable(package="tfrobust")
class CountedDropout(Configured, keras.layers.Layer):
    """Dropout whose random mask is a function of a saved counter.

    In training, entries are set to 0 with probability `rate` and the others are divided by 1 - rate. The counter is the
    layer's clock, a variable that counts the passes in training mode. It starts at a random number that follows from
    `keras.utils.set_random_seed`, and is saved and restored with the weights. One mask is sampled for the global batch,
    of which each replica takes its rows. (If a pass stacks several views, several replicas take other rows than a
    single one would.)

    Args:
        rate: in [0, 1).

    Raises:
        ValueError: another rate.

    Source: Srivastava et al. 2014, in the form that rescales in training.
    """

    def __init__(self, rate: float, *, name: str | None = None, **kwargs):
        super().__init__(name=name, **kwargs)
        if not 0 <= rate < 1:
            raise InputError(f"the rate of a dropout is {rate!r}; it lies in [0, 1).")
        self.rate = rate

    def build(self, input_shape):
        """Create the clock."""
        self.clock = self.add_weight(
            name="clock",
            shape=(),
            dtype="int64",
            initializer=_anywhere,
            trainable=False,
            aggregation="only_first_replica",
        )

    def compute_output_shape(self, input_shape):
        """Return the input shape."""
        return tuple(input_shape)

    def call(self, hidden, *, training=None):
        """Drop entries in training mode, and return the input unchanged otherwise."""
        if not training or not self.rate:
            return hidden
        key = randomness.make_key(0, "dropout", tf.convert_to_tensor(self.clock))
        self.clock.assign_add(1)
        mask = randomness.draw(randomness.uniform(), key, self._mask_shape(hidden)) >= self.rate
        return tf.where(mask, hidden / (1 - self.rate), tf.zeros_like(hidden))

    def _mask_shape(self, hidden) -> Sequence:
        return shape_of(hidden)


@keras.saving.register_keras_serializable(package="tfrobust")
class DropPath(CountedDropout):
    """`CountedDropout` of whole examples: drops the path of a residual block, so that the shortcut alone remains.

    Args:
        rate: in [0, 1).

    Source: Huang et al. 2016 (Deep networks with stochastic depth), for each example, rescaled in training.
    """

    def _mask_shape(self, hidden) -> Sequence:
        return [shape_of(hidden)[0], *[1] * (hidden.shape.rank - 1)]


def _anywhere(shape, dtype):
    # While Keras traces, as when `fit` builds the model, its generator has no value, but the variable is created.
    if tf.inside_function():
        return tf.constant(random.randrange(2**31 - 1), dtype, shape)
    return keras.random.randint(shape, 0, 2**31 - 1, dtype=dtype)
