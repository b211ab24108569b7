"""Augmentations as functions of images and a key; `layers.Augment` converts one to a Keras layer."""

from tfrobust.augment import operations
from tfrobust.augment.augmentation import Augmentation
from tfrobust.augment.augmix import AugMix
from tfrobust.augment.clips import EveryFrame
from tfrobust.augment.mixing import FeatureNoise, Mixing
from tfrobust.augment.noise import AddGaussian
from tfrobust.augment.patch_gaussian import PatchGaussian
from tfrobust.augment.policies import AutoAugment, RandAugment
from tfrobust.augment.puzzlemix import Puzzle
from tfrobust.augment.resized_crop import RandomResizedCrop
from tfrobust.augment.standard import Compose, PadCrop, RandomFlip, RandomShift
from tfrobust.augment.token_removal import TokenRemoval
from tfrobust.augment.utility_perturbation import UtilityPerturbation
from tfrobust.augment.views import ContrastiveViews

__all__ = [
    "AddGaussian",
    "AugMix",
    "Augmentation",
    "AutoAugment",
    "Compose",
    "ContrastiveViews",
    "EveryFrame",
    "FeatureNoise",
    "Mixing",
    "PadCrop",
    "PatchGaussian",
    "Puzzle",
    "RandAugment",
    "RandomFlip",
    "RandomResizedCrop",
    "RandomShift",
    "TokenRemoval",
    "UtilityPerturbation",
    "operations",
]
