"""Whether the predicted probabilities mean what they say."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfrobust.evaluation import statistics
from tfrobust.evaluation.base import Evaluator, Outcome, Setting
from tfrobust.structs import Measurement, Series


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """log softmax of float [n, k] in float64."""
    shifted = np.asarray(logits, np.float64)
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def reliability(confidence: np.ndarray, correct: np.ndarray, bins: int = 15) -> dict[str, np.ndarray]:
    """Confidence, accuracy and count in bins of equal width.

    Bin j holds the confidences in (j/B, (j+1)/B]; the first also 0. Empty bins have confidence and
    accuracy 0.

    Args:
        confidence: float [n] in [0, 1], the largest probability.
        correct: bool [n].
        bins: B >= 1.

    Returns:
        {"confidence", "accuracy": float64 [B], "count": int64 [B]}.

    Source:
        Guo et al. 2017 (arXiv 1706.04599), section 2; bin edges as in paper 001's own script.
    """
    confidence = np.asarray(confidence, np.float64)
    place = np.clip(np.searchsorted(np.linspace(0, 1, bins + 1), confidence, side="left") - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    some = np.maximum(count, 1)
    return {
        "confidence": np.bincount(place, weights=confidence, minlength=bins) / some,
        "accuracy": np.bincount(place, weights=np.asarray(correct, np.float64), minlength=bins) / some,
        "count": count,
    }


def expected_calibration_error(confidence: np.ndarray, correct: np.ndarray, bins: int = 15) -> float:
    """ECE = sum_j (n_j / n) |accuracy_j - confidence_j| over bins of equal width.

    Args and Source as in `reliability`.

    Returns:
        A float in [0, 1].
    """
    table = reliability(confidence, correct, bins)
    gaps = np.abs(table["accuracy"] - table["confidence"])
    return float(np.sum(table["count"] * gaps) / len(confidence))


def brier_scores(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """sum_k (p_k - [k = y])^2 per image, float64 [n] in [0, 2]: Brier's original, over all classes.

    Args:
        logits: float [n, k].
        labels: integer [n].

    Source:
        Brier 1950, Monthly Weather Review 78, eq. (2). For two classes it is twice the one-class form.
    """
    probabilities = np.exp(log_probabilities(logits))
    return np.sum((probabilities - np.eye(logits.shape[-1])[labels]) ** 2, axis=-1)


def negative_log_likelihoods(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """-log p_y per image in nats, float64 [n]."""
    return -log_probabilities(logits)[np.arange(len(labels)), labels]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration(Evaluator):
    """`calibration.ece`, `.brier`, `.nll` on clean images, and the reliability curve behind the first.

    ECE has no interval: it is biased upwards in small samples, and none in closed form is honest.

    Attributes:
        bins: number of equal-width confidence bins, >= 1.
    """

    bins: int = 15

    def __post_init__(self):
        if self.bins < 1:
            raise ValueError(f"Calibration.bins is {self.bins}; it must be at least 1.")

    def run(self, setting: Setting) -> Outcome:
        logits, labels = setting.clean_logits, setting.labels
        confidence = np.exp(log_probabilities(logits).max(axis=-1))
        table = reliability(confidence, setting.clean_correct, self.bins)
        ece = expected_calibration_error(confidence, setting.clean_correct, self.bins)
        measurements = [
            Measurement("calibration.ece", ece, "fraction", len(labels), settings={"bins": self.bins}),
            _mean("calibration.brier", brier_scores(logits, labels), "squared probability"),
            _mean("calibration.nll", negative_log_likelihoods(logits, labels), "nats"),
        ]
        columns = {name: values.tolist() for name, values in table.items()}
        return Outcome(measurements, [Series("calibration.reliability", "Reliability", columns)])

    def ids(self) -> tuple[str, ...]:
        return ("calibration.ece", "calibration.brier", "calibration.nll")


def _mean(identifier: str, values: np.ndarray, unit: str) -> Measurement:
    low, high = statistics.mean_interval(values)
    settings = {"interval": "95 % over images, normal"}
    return Measurement(identifier, float(values.mean()), unit, len(values), max(0.0, low), high, settings)
