"""Natural corruptions as a function of images and keys; `layers.Corrupt` makes a Keras layer of one."""

from tfrobust.corruptions import corrupt

__all__ = ["corrupt"]
