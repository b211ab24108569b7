"""Schedules of the step for radii, term weights and rates, in addition to the learning-rate schedules of Keras."""

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured, constructor_arguments
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
        Kim et al. 2021, sections 3 and 4.2: the contrastive term waits until the utilities have settled; appendix C:
        the learning rate increases before it decreases in steps, which is a schedule for `value`.
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


@keras.saving.register_keras_serializable(package="tfrobust")
class SmoothedRamp(Configured, keras.optimizers.schedules.LearningRateSchedule):
    """Ramp from 0 to 1 that begins with a polynomial: the radius of training on bounds, or of an adversary.

    0 during the delay; with t from 0 to 1 over the length, (4 t)^4 / 13 up to t = 1/4; then linear to 1, with the slope
    of the polynomial at its end. Delay and length are in `steps_per_unit` steps.

    Example:
        >>> from tfrobust import keras as robust
        >>> ramp = robust.schedules.SmoothedRamp(delay=1, length=10, steps_per_unit=10)  # in epochs of 10 steps
        >>> [round(float(ramp(step)), 4) for step in (0, 10, 20, 35, 60, 110, 1000)]
        [0.0, 0.0, 0.002, 0.0769, 0.3846, 1.0, 1.0]

    Args:
        delay: duration of the initial 0, >= 0.
        length: duration of the increase, > 0.
        steps_per_unit: 1 if delay and length are in steps; the steps of an epoch if they are in epochs.

    Raises:
        ValueError: a negative delay, a length that is not positive, or steps_per_unit below 1.

    Source:
        The "smoothed" schedule of the code of Zhang et al. 2020 (CROWN-IBP), exponent 4, middle 0.25.
    """

    def __init__(self, *, delay: float = 0, length: float = 1, steps_per_unit: int = 1):
        super().__init__()
        if delay < 0 or not length > 0 or steps_per_unit < 1:
            raise InputError(
                f"SmoothedRamp has delay {delay} (>= 0), length {length} (> 0), steps_per_unit {steps_per_unit} (>= 1)."
            )
        self.delay = delay
        self.length = length
        self.steps_per_unit = steps_per_unit

    def __call__(self, step):
        """Return the value at a step."""
        passed = tf.cast(step, tf.float32) / self.steps_per_unit - self.delay
        share = tf.clip_by_value(passed / self.length, 0.0, 1.0)
        return tf.where(share < 0.25, tf.pow(4.0 * share, 4.0), 16.0 * share - 3.0) / 13.0


@keras.saving.register_keras_serializable(package="tfrobust")
class OverTraining(Configured, keras.optimizers.schedules.LearningRateSchedule):
    """Schedule over a whole training, whatever its length: its inner schedule counts shares of the training.

    schedule(step x units / updates), with the number of updates of the training. A learning rate counts batches, as
    Keras does, although an optimizer with `gradient_accumulation_steps` takes several for one update.

    Example:
        >>> from tfrobust import keras as robust
        >>> percent = robust.schedules.LinearRamp(1.0, delay=25, length=50)
        >>> ramp = robust.schedules.OverTraining(percent, updates=40)
        >>> [float(ramp(step)) for step in (0, 10, 20, 30, 39)]
        [0.0, 0.0, 0.5, 1.0, 1.0]

    Args:
        schedule: function of a number from 0 to `units`.
        units: shares of the training; 100 counts percent.
        updates: updates of the weights in the training, of a learning rate batches; None: `tfrobust.train` sets them.
            Plain `fit` needs them.

    Raises:
        ValueError: `units` or `updates` below 1; when called, no updates are known.
    """

    def __init__(
        self, schedule: keras.optimizers.schedules.LearningRateSchedule, *, units: int = 100, updates: int | None = None
    ):
        super().__init__()
        if units < 1 or (updates is not None and updates < 1):
            raise InputError(f"OverTraining has units {units} (>= 1) and updates {updates} (>= 1, or None).")
        self.schedule = schedule
        self.units = units
        self.updates = updates
        self._of_run: int | None = None

    def __call__(self, step):
        """Return the value at a step."""
        updates = self.updates or self._of_run
        if updates is None:
            raise InputError(
                "OverTraining.updates is not set: outside of tfrobust.train, pass epochs x steps of an epoch."
            )
        return self.schedule(tf.cast(step, tf.float32) * (self.units / updates))

    def begin(self, updates: int) -> None:
        """Set the number of updates (of a learning rate: batches) of the run, unless `updates` is an argument.

        Raises:
            InputError: another training with another number has the same object.
        """
        if self._of_run not in (None, updates):
            raise InputError("Two trainings of different lengths share one OverTraining: make one for each.")
        self._of_run = updates


def over_training(part) -> list[OverTraining]:
    """Return each `OverTraining` inside a configured object, a schedule or a container, at any depth."""
    if isinstance(part, (dict, list, tuple)):
        inner = list(part.values()) if isinstance(part, dict) else list(part)
    elif isinstance(part, Configured):
        inner = [getattr(part, name, None) for name in constructor_arguments(type(part))]
    elif isinstance(part, keras.optimizers.schedules.LearningRateSchedule):
        inner = list(vars(part).values())
    else:
        return []
    here = [part] if isinstance(part, OverTraining) else []
    return here + [schedule for value in inner for schedule in over_training(value)]
