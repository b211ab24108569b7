"""Schedules of the step for learning rates and term weights, in addition to `keras.optimizers.schedules`."""

from tfrobust.ops.schedules import LinearRamp, OverTraining, SmoothedRamp

__all__ = ["LinearRamp", "OverTraining", "SmoothedRamp"]
