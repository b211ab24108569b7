"""Optimizers that `keras.optimizers` lacks."""

from tfrobust.training.optimizers import LAMB, LARS, ScheduledAdamW

__all__ = ["LAMB", "LARS", "ScheduledAdamW"]
