"""Dropout that several replicas, and a run that was interrupted, draw as one quiet run would."""

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import randomness
from tfrobust.ops.configured import Configured
from tfrobust.ops.shapes import shape_of


@keras.saving.register_keras_serializable(package="tfrobust")
class CountedDropout(Configured, keras.layers.Layer):
    """Sets entries to 0 with probability `rate` in training and divides the others by 1 - rate.

    The draw is a function of the layer's clock, a variable that starts anywhere (from Keras's global seed) and counts
    the passes in training mode: it is saved and restored with the weights. One draw is made for the global batch, of
    which each replica takes its rows. (Where a pass stacks several views, replicas take other rows of it than one
    would.)

    Args:
        rate: in [0, 1).

    Raises:
        ValueError: another rate.

    Source: Srivastava et al. 2014 in the form that scales in training.
    """

    def __init__(self, rate: float, *, name: str | None = None, **kwargs):
        super().__init__(name=name, **kwargs)
        if not 0 <= rate < 1:
            raise InputError(f"the rate of a dropout is {rate!r}; it lies in [0, 1).")
        self.rate = rate

    def build(self, input_shape):
        self.clock = self.add_weight(
            name="clock",
            shape=(),
            dtype="int64",
            initializer=_anywhere,
            trainable=False,
            aggregation="only_first_replica",
        )

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)

    def call(self, hidden, *, training=None):
        if not training or not self.rate:
            return hidden
        key = randomness.make_key(0, "dropout", tf.convert_to_tensor(self.clock))
        self.clock.assign_add(1)
        kept = randomness.draw(randomness.uniform(), key, shape_of(hidden)) >= self.rate
        return tf.where(kept, hidden / (1 - self.rate), tf.zeros_like(hidden))


def _anywhere(shape, dtype):
    # While Keras merely traces shapes its seeds have no values, and a clock that is asked for its value needs none.
    if tf.inside_function():
        return tf.zeros(shape, dtype)
    return keras.random.randint(shape, 0, 2**31 - 1, dtype=dtype)
