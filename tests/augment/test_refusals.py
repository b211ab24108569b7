"""Refusals of augmentations, and their messages."""

import pytest
import tensorflow as tf

from tfrobust.augment import mixing
from tfrobust.augment.augmix import AugMix
from tfrobust.augment.mixing import FeatureNoise, Mix, Mixing
from tfrobust.augment.noise import AddGaussian
from tfrobust.augment.patch_gaussian import PatchGaussian
from tfrobust.augment.policies import AutoAugment, RandAugment
from tfrobust.augment.puzzlemix import Puzzle
from tfrobust.augment.resized_crop import RandomResizedCrop
from tfrobust.augment.standard import PadCrop, RandomFlip, RandomShift
from tfrobust.augment.token_removal import TokenRemoval
from tfrobust.augment.utility_perturbation import UtilityPerturbation
from tfrobust.augment.views import ContrastiveViews
from tfrobust.models.cnn import DigitsCNN
from tfrobust.ops import randomness

KEY = randomness.make_key(0)
PAIR = Mix(tf.constant(0.5), tf.constant([1, 0]))
# Class, argument, value that is refused, part of the message ("{}" is the argument).
ARGUMENTS = [
    (AddGaussian, "deviation", 0.0, r"AddGaussian\.{} is 0\.0"),
    (AddGaussian, "deviation", (0.3, 0.1), r"AddGaussian\.{} is \(0\.3, 0\.1\)"),
    (PatchGaussian, "deviation", -1.0, r"PatchGaussian\.{} is -1\.0"),
    (PatchGaussian, "patch", 0, r"PatchGaussian\.{} is 0"),
    (PatchGaussian, "patch", 2.5, r"PatchGaussian\.{} is 2\.5"),
    (PatchGaussian, "patch", (4, 2), r"PatchGaussian\.{} is \(4, 2\)"),
    (PatchGaussian, "patch", (1, 2, 3), r"PatchGaussian\.{} is \(1, 2, 3\)"),
    (PatchGaussian, "probability", 1.5, r"PatchGaussian\.{} is 1\.5"),
    (PatchGaussian, "centres", "corners", r"PatchGaussian\.{} is 'corners'"),
    (RandomFlip, "probability", 1.5, "(must|not) "),
    (RandomShift, "fraction", 1.0, "(must|not) "),
    (RandomShift, "fill", "reflect", "(must|not) "),
    (PadCrop, "padding", -1, "(must|not) "),
    (RandomResizedCrop, "scale", (0.0, 1.0), r"RandomResizedCrop\.{} is"),
    (RandomResizedCrop, "scale", (0.5, 0.2), r"RandomResizedCrop\.{} is"),
    (RandomResizedCrop, "ratio", (2.0, 1.0), r"RandomResizedCrop\.{} is"),
    (AugMix, "width", 0, r"AugMix\.{} is .* must"),
    (AugMix, "depth", 0, r"AugMix\.{} is .* must"),
    (AugMix, "depth", 1.5, r"AugMix\.{} is .* must"),
    (AugMix, "severity", 0.0, r"AugMix\.{} is .* must"),
    (AugMix, "severity", 11.0, r"AugMix\.{} is .* must"),
    (AugMix, "alpha", 0.0, r"AugMix\.{} is .* must"),
    (AugMix, "alpha", float("inf"), r"AugMix\.{} is .* must"),
    (AutoAugment, "policy", "svhn", r"AutoAugment\.{} is 'svhn'"),
    (AutoAugment, "ranges", "torchvision", r"AutoAugment\.{} is 'torchvision'"),
    (RandAugment, "ranges", None, r"RandAugment\.{} is None"),
    (RandAugment, "count", 0, r"RandAugment\.{} is 0"),
    (RandAugment, "magnitude", 14, r"RandAugment\.{} is 14"),
    (RandAugment, "operations", ("cutout",), r"RandAugment\.{} is \('cutout',\)"),
    (RandAugment, "operations", (), r"RandAugment\.{} is \(\)"),
    (ContrastiveViews, "crop", (0.0, 1.0), r"ContrastiveViews\.{} is"),
    (ContrastiveViews, "aspect", (2.0, 1.0), r"ContrastiveViews\.{} is"),
    (ContrastiveViews, "grey", 1.5, r"ContrastiveViews\.{} is 1.5"),
    (ContrastiveViews, "jitter", (0.4, 0.4, 0.4), r"ContrastiveViews\.{} is"),
    (ContrastiveViews, "jitter", (0.4, 0.4, 0.4, 0.6), "the last at most 0.5"),
    (ContrastiveViews, "order", "byol", "one of ..simclr., .rocl.."),
    (ContrastiveViews, "interpolation", "nearest", "bilinear"),
    (ContrastiveViews, "colors", "pillow", "torchvision"),
    (Mixing, "alpha", -1.0, r"Mixing\.{} is -1\.0"),
    (Mixing, "alpha", float("inf"), r"Mixing\.{} is inf"),
    (Mixing, "group", 0, r"Mixing\.{} is 0"),
    (Mixing, "group", 2.5, r"Mixing\.{} is 2\.5"),
    (FeatureNoise, "additive", -0.1, "neither may be negative"),
    (FeatureNoise, "sparsity", 1.0, r"FeatureNoise\.{} is 1\.0"),
    (FeatureNoise, "scale", 1.0, r"FeatureNoise\.{} is 1\.0; it is two positive numbers"),
    (FeatureNoise, "scale", (2.0, 0.0), r"FeatureNoise\.{} is \(2\.0, 0\.0\)"),
    (FeatureNoise, "scale", (2.0, float("nan")), r"FeatureNoise\.{} is \(2\.0, nan\)"),
    (Puzzle, "blocks", (1, 2), "blocks, neighbourhood and transport_side"),
    (Puzzle, "blocks", (), "blocks are a tuple of whole numbers >= 2"),
    (Puzzle, "blocks", 4, r"transport_side 4, 4 and 4; blocks are a tuple of whole numbers >= 2, such as \(4,\)"),
    (Puzzle, "neighbourhood", "4", "others whole numbers >= 1"),
    (Puzzle, "transport_side", 0, "others whole numbers >= 1"),
    (Puzzle, "prior", -0.1, r"prior, smoothness, contrast and transport_cost -0\.1"),
    (Puzzle, "contrast", 1.5, "contrast not above 1"),
    (TokenRemoval, "fraction", 0.0, "TokenRemoval has fraction"),
    (TokenRemoval, "fraction", 0.6, "TokenRemoval has fraction"),
    (TokenRemoval, "smallest_utility", -1.0, "TokenRemoval has fraction"),
    (UtilityPerturbation, "count", 0, "{} is 0"),
    (UtilityPerturbation, "count", True, "{} is True"),
    (UtilityPerturbation, "count", 1.5, "{} is 1.5"),
    (UtilityPerturbation, "count", 0.6, "{} is 0.6"),
    (UtilityPerturbation, "deviation", 0.0, "{} 0.0"),
    (UtilityPerturbation, "unit", "rows", "{} is 'rows'"),
    (UtilityPerturbation, "smallest_utility", -1.0, "{} -1.0"),
]
CALLS = [
    (lambda: AugMix()(tf.zeros([1, 8, 8, 2]), KEY), "not 2 channels"),
    (lambda: AutoAugment()(tf.zeros([1, 4, 4, 2]), KEY), "AutoAugment supports gray and RGB images"),
    (lambda: ContrastiveViews()(tf.zeros([1, 8, 8, 4]), KEY), "ContrastiveViews supports gray and RGB images"),
    (lambda: TokenRemoval()(tf.zeros([2, 4], tf.int32), tf.zeros([2, 5]), KEY), r"one shape \[b, l\]"),
    (lambda: UtilityPerturbation()(tf.zeros([2, 4, 4, 1]), tf.zeros([2, 4, 5, 1]), KEY), "and utility"),
    (
        lambda: Puzzle().mix_at(tf.zeros([2, 112, 112, 1]), tf.zeros([2, 112, 112]), PAIR, 2),
        "transport_side 4 cuts images of 112 x 112 into 28 x 28 pieces",
    ),
    (lambda: Puzzle()(tf.zeros([2, 8, 6, 1]), tf.zeros([2, 8, 6]), PAIR, KEY), "square images .* these are 8 x 6"),
    (lambda: Puzzle()(tf.zeros([2, 9, 9, 1]), tf.zeros([2, 9, 9]), PAIR, KEY), "square images .* these are 9 x 9"),
]


@pytest.mark.parametrize(("make", "argument", "value", "message"), ARGUMENTS)
def test_an_argument_is_named(make, argument, value, message):
    with pytest.raises(ValueError, match=message.format(argument)):
        make(**{argument: value})


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("stages", [(), (0, 4), (-1,), (0.5,), 7])
def test_stages_that_an_encoder_does_not_have_are_named(stages):
    with pytest.raises(ValueError, match=r"Mine\.stages is .*DigitsCNN has the stages 0 to 3"):
        mixing.require_stages(DigitsCNN(), stages, "Mine")
