"""Refusals of attacks, of their runs and of what they are given, and the messages."""

import fractions

import numpy as np
import pytest
import refusals
import tensorflow as tf

from conformance.attacks import Linear, examples
from tfrobust.attacks.shared.threat import ThreatModel

IMAGES, MODEL = examples(4), Linear()
NAMES = {"THREAT": ThreatModel(epsilon=0.2), "KEY": tf.constant([0, 0]), "IMAGES": IMAGES, "MODEL": MODEL}
NAMES |= {"FRAMED": ThreatModel(max_frames=2, epsilon=0.2)}
NAMES |= {"LABELS": MODEL.labels(IMAGES), "HALVES": np.full([3, 2, 2, 1], 0.5), "fractions": fractions}


@pytest.mark.parametrize(("call", "message"), refusals.rows(__file__))
def test_what_does_not_fit_is_refused_by_name(call, message):
    refusals.check(__file__, call, message, **NAMES)
