"""Refusals of augmentations, and their messages."""

import numpy as np
import pytest
import refusals
import tensorflow as tf

from tfrobust.augment.augmix import AugMix
from tfrobust.augment.mixing import Mix, Mixing, require_stages
from tfrobust.augment.patch_gaussian import PatchGaussian
from tfrobust.augment.policies import RandAugment
from tfrobust.augment.puzzlemix import Puzzle
from tfrobust.augment.standard import PadCrop
from tfrobust.augment.utility_perturbation import UtilityPerturbation
from tfrobust.augment.views import ContrastiveViews
from tfrobust.models.cnn import DigitsCNN
from tfrobust.ops import randomness

PAIR = Mix(tf.constant(0.5), tf.constant([1, 0]))


@pytest.mark.parametrize(("call", "message"), refusals.rows(__file__))
def test_what_does_not_fit_is_refused_by_name(call, message):
    refusals.check(__file__, call, message, KEY=randomness.make_key(0), PAIR=PAIR, DigitsCNN=DigitsCNN)


def test_integers_of_numpy_become_those_of_python():
    puzzle = Puzzle(blocks=(np.int64(2),), neighbourhood=np.int64(4), transport_side=np.int16(5))
    values = (
        *PatchGaussian(patch=(np.int64(2), np.uint8(3))).patch,
        UtilityPerturbation(count=np.int32(6)).count,
        *(AugMix(width=np.int64(2)).width, AugMix(depth=np.int64(3)).depth, RandAugment(count=np.int64(2)).count),
        *(
            Mixing(group=np.int64(4)).group,
            PadCrop(padding=np.uint8(2)).padding,
            ContrastiveViews(size=np.int16(6)).size,
        ),
        *(*puzzle.blocks, puzzle.neighbourhood, puzzle.transport_side),
        *require_stages(DigitsCNN(), [np.int64(0), 3], "Mine"),
    )
    assert values == (2, 3, 6, 2, 3, 2, 4, 2, 6, 2, 4, 5, 0, 3) and {type(value) for value in values} == {int}
    assert UtilityPerturbation(count=np.float32(0.25)).count == 0.25
