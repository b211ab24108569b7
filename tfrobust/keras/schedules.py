"""Schedules of the step, for learning rates and term weights; Keras's own are in `keras.optimizers.schedules`."""

from tfrobust.ops.schedules import LinearRamp

__all__ = ["LinearRamp"]
