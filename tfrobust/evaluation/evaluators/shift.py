"""Accuracy and calibration on published images of another domain, with some of the model's classes: ImageNet-R, -A."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfrobust.common.settings import require_least
from tfrobust.data.published.published_set import ShiftedImages
from tfrobust.evaluation.engine import published
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.evaluators import calibration
from tfrobust.evaluation.evaluators.accuracy import accuracy
from tfrobust.report.catalog.natural import SHIFT
from tfrobust.structs import Measurement


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShiftAccuracy(Evaluator):
    """Accuracy and calibration under distribution shift: `shift.<set>.accuracy`, `.ece`, `.rms`, `.aurra`.

    The published set shows some of the model's classes. Only their logits are used; prediction and confidence are the
    largest of their softmax.

    Attributes:
        source: the set.
        limit: maximum number of its images, drawn by the seed; None: all.
        bins, rms_bin_size, rms_bins: as in `Calibration`.

    Source:
        Hendrycks et al. 2021 (arXiv 2006.16241, 1907.07174).
    """

    source: ShiftedImages
    limit: int | None = None
    bins: int = 15
    rms_bin_size: int = 100
    rms_bins: str = "paper"

    def __post_init__(self):
        if self.limit is not None:
            require_least(self.limit, "ShiftAccuracy.limit", 1)
        require_least(self.bins, "ShiftAccuracy.bins", 1)
        calibration.check_adaptive_bins(self.rms_bin_size, self.rms_bins)

    def check(self, setting: Setting) -> None:
        """Open the set, and raise its errors early."""
        opened = published.open_once(setting, self.source)
        count = len(setting.subset(self.limit, len(opened.labels)))
        calibration.check_adaptive_bins(self.rms_bin_size, self.rms_bins, count)

    def files_read(self) -> str:
        """Return a hash of the state of the set's files."""
        return self.source.state()

    def run(self, setting: Setting) -> Outcome:
        """Measure accuracy and calibration on the set."""
        opened = published.open_once(setting, self.source)
        positions = setting.subset(self.limit, len(opened.labels))
        classes = np.unique(opened.labels)
        logits, done, size = [], 0, min(setting.batch_size, len(positions))
        for images, outputs in published.predictions(setting, opened.read((), positions, size), size):
            logits.append(outputs[:, classes])
            done += len(images)
            if setting.progress is not None:
                setting.progress(self.source.title, done, len(positions))
        logits = np.concatenate(logits)
        correct = (classes[logits.argmax(axis=-1)] == opened.labels[positions]) & np.isfinite(logits).all(axis=-1)
        logarithms = calibration.log_probabilities(logits, setting.predictor.one_per_class)
        confidence = np.exp(logarithms.max(axis=-1))
        settings = {**opened.notes, "classes": f"{len(classes)} of {setting.predictor.class_count}"}
        return Outcome(self._measurements(confidence, correct, settings))

    def _measurements(self, confidence: np.ndarray, correct: np.ndarray, settings: dict) -> list[Measurement]:
        count, settings = len(correct), settings | {"set": self.source.name}
        share, ece_id, rms_id, aurra_id = self.ids()
        adaptive = {"bin_size": self.rms_bin_size, "bins": self.rms_bins}
        ece = calibration.expected_calibration_error(confidence, correct, self.bins)
        rms = calibration.rms_calibration_error(confidence, correct, bin_size=self.rms_bin_size, bins=self.rms_bins)
        aurra = calibration.none_if_nan(float(calibration.response_accuracy(confidence, correct).mean()))
        return [
            accuracy(share, correct, settings),
            Measurement(
                ece_id,
                calibration.none_if_nan(ece),
                "fraction",
                count,
                settings={**settings, "bins": self.bins},
            ),
            Measurement(rms_id, calibration.none_if_nan(rms), "fraction", count, settings={**settings, **adaptive}),
            Measurement(aurra_id, aurra, "fraction", count, settings=settings),
        ]

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the measurements."""
        return tuple(SHIFT.id(name, {"set": self.source.name}) for name in ("accuracy", "ece", "rms", "aurra"))
