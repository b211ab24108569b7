"""Refusals of augmentations, and their messages."""

import pytest
import refusals
import tensorflow as tf

from tfrobust.augment.mixing import Mix
from tfrobust.models.cnn import DigitsCNN
from tfrobust.ops import randomness

PAIR = Mix(tf.constant(0.5), tf.constant([1, 0]))


@pytest.mark.parametrize(("call", "message"), refusals.rows(__file__))
def test_what_does_not_fit_is_refused_by_name(call, message):
    refusals.check(__file__, call, message, KEY=randomness.make_key(0), PAIR=PAIR, DigitsCNN=DigitsCNN)
