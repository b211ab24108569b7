"""Accuracy and calibration on images of another domain, of some of the model's classes: ImageNet-R, ImageNet-A."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfrobust.data.published.base import ShiftedImages
from tfrobust.errors import InputError
from tfrobust.evaluation import calibration, published
from tfrobust.evaluation.accuracy import accuracy
from tfrobust.evaluation.base import Evaluator, Outcome, Setting
from tfrobust.structs import Measurement


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShiftAccuracy(Evaluator):
    """`shift.<set>.accuracy`, `.ece`, `.rms`, `.aurra` on a published set that shows some of the classes.

    Only the logits of the set's classes are kept; prediction and confidence are the largest of their softmax.

    Attributes:
        source: the set.
        limit: at most so many of its images, drawn by the seed; None: all.
        bins, rms_bin_size, rms_bins: as of `Calibration`.

    Source:
        Hendrycks et al. 2021 (arXiv 2006.16241, 1907.07174).
    """

    source: ShiftedImages
    limit: int | None = None
    bins: int = 15
    rms_bin_size: int = 100
    rms_bins: str = "paper"

    def __post_init__(self):
        if self.limit is not None and self.limit < 1:
            raise InputError(f"ShiftAccuracy.limit is {self.limit}; it must be at least 1.")
        if self.bins < 1:
            raise InputError(f"ShiftAccuracy.bins is {self.bins}; it must be at least 1.")
        calibration.check_adaptive_bins(self.rms_bin_size, self.rms_bins)

    def check(self, setting: Setting) -> None:
        published.open_once(setting, self.source)

    def files_read(self) -> str:
        return self.source.state()

    def run(self, setting: Setting) -> Outcome:
        opened = published.open_once(setting, self.source)
        positions = setting.subset(self.limit, len(opened.labels))
        kept = np.unique(opened.labels)
        logits, done, size = [], 0, min(setting.batch_size, len(positions))
        for images, found in published.answers(setting, opened.read((), positions, size), size):
            logits.append(found[:, kept])
            done += len(images)
            if setting.progress is not None:
                setting.progress(self.source.title, done, len(positions))
        logits = np.concatenate(logits)
        correct = (kept[logits.argmax(axis=-1)] == opened.labels[positions]) & ~np.isnan(logits).any(axis=-1)
        logarithms = calibration.log_probabilities(logits, setting.predictor.one_per_class)
        confidence = np.exp(logarithms.max(axis=-1))
        settings = {**opened.notes, "classes": f"{len(kept)} of {setting.predictor.class_count}"}
        return Outcome(self._measurements(confidence, correct, settings))

    def _measurements(self, confidence: np.ndarray, correct: np.ndarray, settings: dict) -> list[Measurement]:
        prefix, count = f"shift.{self.source.name}", len(correct)
        adaptive = {"bin_size": self.rms_bin_size, "bins": self.rms_bins}
        ece = calibration.expected_calibration_error(confidence, correct, self.bins)
        rms = calibration.rms_calibration_error(confidence, correct, bin_size=self.rms_bin_size, bins=self.rms_bins)
        aurra = calibration.known(float(calibration.response_accuracy(confidence, correct).mean()))
        return [
            accuracy(f"{prefix}.accuracy", correct, settings),
            Measurement(
                f"{prefix}.ece", calibration.known(ece), "fraction", count, settings={**settings, "bins": self.bins}
            ),
            Measurement(f"{prefix}.rms", calibration.known(rms), "fraction", count, settings={**settings, **adaptive}),
            Measurement(f"{prefix}.aurra", aurra, "fraction", count, settings=settings),
        ]

    def ids(self) -> tuple[str, ...]:
        return tuple(f"shift.{self.source.name}.{what}" for what in ("accuracy", "ece", "rms", "aurra"))
