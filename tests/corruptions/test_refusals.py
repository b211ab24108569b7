"""Refusals of corruptions and sequences, and their messages."""

import numpy as np
import pytest
import refusals

from tfrobust.corruptions import draws
from tfrobust.ops import randomness

CLIPS = np.zeros((4, 10, 2, 2, 1), np.float32)
KEYS = randomness.example_keys(randomness.make_key(0), range(1))


@pytest.mark.parametrize(("call", "message"), refusals.rows(__file__))
def test_what_does_not_fit_is_refused_by_name(call, message):
    refusals.check(__file__, call, message, CLIPS=CLIPS, KEYS=KEYS, draws=draws)
