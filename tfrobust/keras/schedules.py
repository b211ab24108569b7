"""Schedules of the step for learning rates and term weights, in addition to `keras.optimizers.schedules`."""

from tfrobust.ops.schedules import LinearRamp, SmoothedRamp

__all__ = ["LinearRamp", "SmoothedRamp"]
