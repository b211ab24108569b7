"""Refusals of losses and penalties, and their messages."""

import numpy as np
import pytest
import refusals
import tensorflow as tf

from oracles import tiny_network
from tfrobust.pairs.masks import PairMasks

LOGITS = np.zeros((3, 3), np.float32)


def none(width):
    """Masks of three anchors without pairs."""
    empty = tf.zeros([3, width], tf.bool)
    return PairMasks(empty, empty)


@pytest.mark.parametrize(("call", "message"), refusals.rows(__file__))
def test_what_does_not_fit_is_refused_by_name(call, message):
    refusals.check(__file__, call, message, LOGITS=LOGITS, none=none, tiny_network=tiny_network)
