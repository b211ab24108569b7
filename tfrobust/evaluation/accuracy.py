"""Accuracy on the images as they are."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from tfrobust.evaluation import statistics
from tfrobust.evaluation.base import Evaluator, Outcome, Setting
from tfrobust.structs import Measurement


def accuracy(identifier: str, correct: np.ndarray, settings: dict, examples: str = "images") -> Measurement:
    """The measurement of a share of rightly classified images, with Wilson's interval over images.

    Args:
        identifier: the measurement's id.
        correct: bool [n], n >= 1.
        settings: what produced it.
        examples: what they are called, "images" or "sentences".
    """
    low, high = statistics.wilson_interval(int(correct.sum()), len(correct))
    return Measurement(
        id=identifier,
        value=float(correct.mean()),
        n=len(correct),
        low=low,
        high=high,
        settings={**settings, "interval": f"95 % over {examples}, Wilson"},
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CleanAccuracy(Evaluator):
    """`accuracy.clean`: the share of test images whose largest logit is the label's."""

    judges_text: ClassVar[bool] = True

    def run(self, setting: Setting) -> Outcome:
        return Outcome([accuracy("accuracy.clean", setting.clean_correct, {}, setting.examples)])

    def ids(self) -> tuple[str, ...]:
        return ("accuracy.clean",)
