"""Refusals of evaluators and of what they are given, and the messages."""

import numpy as np
import pytest
import refusals
from evaluation import test_clips, test_runner, test_text

from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.data.published.imagenet import ImageNetR
from tfrobust.evaluation.engine.predictor import from_function

NAMES = {"THREAT": ThreatModel(epsilon=0.2), "IMAGES": test_runner.IMAGES, "LABELS": test_runner.LABELS}
NAMES |= {"setting": test_runner._setting, "words": test_text._setting, "rises": test_clips.setting}
NAMES |= {"TOKENS": test_text.TOKENS, "CLIPS": test_clips.CLIPS, "SHARES": np.linspace(0, 1, 97)}
NAMES |= {"blind": from_function(test_runner.PREDICT, image_shape=(3, 4, 1), differentiable=False)}
NAMES |= {"RENDITIONS": ImageNetR(folder="none", as_published=False)}


@pytest.mark.parametrize(("call", "message"), refusals.rows(__file__))
def test_what_does_not_fit_is_refused_in_one_line(call, message):
    refusals.check(__file__, call, message, **NAMES)
