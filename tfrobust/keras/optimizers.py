"""Optimizers that `keras.optimizers` lacks."""

from tfrobust.training.optimizers import LAMB, LARS

__all__ = ["LAMB", "LARS"]
