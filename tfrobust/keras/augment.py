"""Augmentations as functions of images and a key; `layers.Augment` makes a Keras layer of one."""

from tfrobust.augment.base import Augmentation
from tfrobust.augment.standard import Compose, PadCrop, RandomFlip, RandomShift

__all__ = ["Augmentation", "Compose", "PadCrop", "RandomFlip", "RandomShift"]
