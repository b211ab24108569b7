"""Optimizers that Keras lacks; its own are in `keras.optimizers`."""

from tfrobust.training.optimizers import LAMB, LARS

__all__ = ["LAMB", "LARS"]
