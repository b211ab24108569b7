"""Schedules of the step for term weights, in addition to the learning-rate schedules of Keras."""

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.errors import InputError


@keras.saving.register_keras_serializable(package="tfrobust")
class LinearRamp(Configured, keras.optimizers.schedules.LearningRateSchedule):
    """Linear ramp: 0 during a delay, then a linear increase to a value, which is constant or a schedule itself.

    value x min(1, max(0, (step - delay) / length)), delay and length in `steps_per_unit` steps.

    Example:
        >>> from tfrobust import keras as robust
        >>> ramp = robust.schedules.LinearRamp(0.5, delay=2, length=2, steps_per_unit=10)  # in epochs of 10 steps
        >>> [float(ramp(step)) for step in (0, 20, 30, 40, 1000)]
        [0.0, 0.0, 0.25, 0.5, 0.5]

    Args:
        value: the final value; or a schedule of the same step, which the ramp multiplies.
        delay: duration of the initial 0, >= 0.
        length: duration of the increase, >= 0; 0 jumps.
        steps_per_unit: 1 if delay and length are in steps; the steps of an epoch if they are in epochs.

    Raises:
        ValueError: a negative delay or length, or steps_per_unit below 1.

    Source:
        Paper 000, sections 3 and 4.2: the contrastive term waits until the utilities have settled; appendix C: the
        learning rate increases before it decreases in steps, which is a schedule for `value`.
    """

    def __init__(
        self,
        value: float | keras.optimizers.schedules.LearningRateSchedule,
        *,
        delay: float = 0,
        length: float = 0,
        steps_per_unit: int = 1,
    ):
        super().__init__()
        if delay < 0 or length < 0 or steps_per_unit < 1:
            raise InputError(
                f"LinearRamp has delay {delay} and length {length} (both >= 0), steps_per_unit {steps_per_unit} (>= 1)."
            )
        self.value = value
        self.delay = delay
        self.length = length
        self.steps_per_unit = steps_per_unit

    def __call__(self, step):
        """Return the value at a step."""
        value = self.value(step) if callable(self.value) else float(self.value)
        passed = tf.cast(step, tf.float32) - self.delay * self.steps_per_unit
        if not self.length:
            return tf.where(passed >= 0, value, 0.0)
        return value * tf.clip_by_value(passed / (self.length * self.steps_per_unit), 0.0, 1.0)
