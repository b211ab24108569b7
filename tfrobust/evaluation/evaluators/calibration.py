"""Calibration: agreement of predicted probabilities with accuracies, on clean images and under attack."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from tfrobust.attacks.shared.attack import Attack
from tfrobust.common.kinds import ANY
from tfrobust.common.settings import require_least, require_whole
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting, are_correct
from tfrobust.evaluation.engine.searching import check_last_points, last_points
from tfrobust.evaluation.evaluators.adversarial import id_settings, last_point_settings
from tfrobust.report.catalog.outputs import (
    ATTACKED_CALIBRATION,
    ATTACKED_RELIABILITY,
    ATTACKED_RESPONSE_RATE,
    CALIBRATION,
)
from tfrobust.report.catalog.spelling import attack_key
from tfrobust.structs import Measurement, Series

# The bins that the RMS calibration error sums over: all, or all but the last.
ADAPTIVE_BINS = ("paper", "code")
_CURVE_POINTS = 200


def log_probabilities(logits: np.ndarray, one_per_class: bool = False) -> np.ndarray:
    """Return log softmax of float [n, k] in float64; log sigmoid if there is one probability per class."""
    if one_per_class:
        return -np.logaddexp(0.0, -np.asarray(logits, np.float64))
    shifted = np.asarray(logits, np.float64)
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def log_confidence(logits: np.ndarray) -> np.ndarray:
    """Return the logarithm of the largest softmax probability, float64 [n], also where that rounds to 1.

    log p = -log(1 + sum exp(z_j - z_max) over the other classes).

    Args:
        logits: float [n, k].
    """
    logits = np.asarray(logits, np.float64)
    first = logits.argmax(axis=-1)[:, None]
    exponentials = np.exp(logits - np.take_along_axis(logits, first, axis=-1))
    return -np.log1p(np.sum(exponentials, axis=-1, where=np.arange(logits.shape[-1]) != first))


def reliability(confidence: np.ndarray, correct: np.ndarray, bins: int = 15) -> dict[str, np.ndarray]:
    """Compute confidence, accuracy and count in bins of equal width.

    Bin j holds the confidences in (j/B, (j+1)/B]; the first one also 0. Empty bins have confidence and accuracy 0.

    Args:
        confidence: float [n] in [0, 1], the largest probability.
        correct: bool [n].
        bins: B >= 1.

    Returns:
        {"confidence", "accuracy": float64 [B], "count": int64 [B]}.

    Source:
        Guo et al. 2017 (arXiv 1706.04599), section 2; bin edges as in Erichson et al.'s (2022) own script.
    """
    confidence = np.asarray(confidence, np.float64)
    bin_of = np.clip(np.searchsorted(np.linspace(0, 1, bins + 1), confidence, side="left") - 1, 0, bins - 1)
    count = np.bincount(bin_of, minlength=bins)
    some = np.maximum(count, 1)
    return {
        "confidence": np.bincount(bin_of, weights=confidence, minlength=bins) / some,
        "accuracy": np.bincount(bin_of, weights=np.asarray(correct, np.float64), minlength=bins) / some,
        "count": count,
    }


def expected_calibration_error(confidence: np.ndarray, correct: np.ndarray, bins: int = 15) -> float:
    """Compute ECE = sum_j (n_j / n) |accuracy_j - confidence_j| over bins of equal width.

    Arguments and source as in `reliability`.

    Returns:
        A float in [0, 1].
    """
    table = reliability(confidence, correct, bins)
    gaps = np.abs(table["accuracy"] - table["confidence"])
    return float(np.sum(table["count"] * gaps) / len(confidence))


def rms_calibration_error(
    confidence: np.ndarray, correct: np.ndarray, *, bin_size: int = 100, bins: str = "paper"
) -> float:
    """Compute sqrt(sum_j (n_j / n) (accuracy_j - confidence_j)^2) over adaptive bins of consecutive confidences.

    Sorted by confidence, each `bin_size` examples form a bin. The remainder belongs to the last bin, which holds the
    most confident examples. Examples of equal confidence count as their mean, so that their order does not matter.

    Args:
        confidence: float [n] in [0, 1], the largest probability.
        correct: bool [n].
        bin_size: >= 1; with fewer examples there is one bin.
        bins: "paper": all of them. "code": without the last one, as the released code sums (over all n), so that the
            most confident examples never count.

    Returns:
        A float in [0, 1]; NaN if a confidence is NaN.

    Raises:
        ValueError: an unknown `bins`, a `bin_size` below 1, or "code" with a single bin.

    Source:
        Hendrycks et al. 2019 (arXiv 1812.04606), and `calib_err` of hendrycks/natural-adv-examples.
    """
    check_adaptive_bins(bin_size, bins, len(confidence))
    confidence, share = _ranked(confidence, correct)
    count = max(1, len(confidence) // bin_size)
    starts = np.arange(count) * bin_size
    sizes = np.diff(starts, append=len(confidence))
    squares = sizes * (np.add.reduceat(confidence - share, starts) / sizes) ** 2
    return float(np.sqrt(np.sum(squares[:-1] if bins == "code" else squares) / len(confidence)))


def check_adaptive_bins(bin_size: int, bins: str, count: int | None = None) -> None:
    """Raise ValueError unless both are valid arguments of `rms_calibration_error`, for `count` images if given."""
    require_whole(bin_size, "the bin size of the RMS calibration error")
    if bins not in ADAPTIVE_BINS:
        raise InputError(f"the bins of the RMS calibration error are {bins!r}; they are one of {list(ADAPTIVE_BINS)}.")
    if bins == "code" and count is not None and count < 2 * bin_size:
        raise InputError(
            f"RMS calibration by 'code' leaves the last bin out, and {count} images make one bin of {bin_size}: use "
            f"'paper', or at least {2 * bin_size} images."
        )


def response_accuracy(confidence: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Compute the accuracy of the i most confident examples, i = 1 .. n: that at a response rate of i / n.

    Its mean is AURRA, the area under the response rate accuracy curve. Examples of equal confidence count as their
    mean.

    Args:
        confidence: float [n], the largest probability.
        correct: bool [n].

    Returns:
        float64 [n] in [0, 1]; all NaN if a confidence is NaN.

    Source:
        Hendrycks et al. 2021 (arXiv 1907.07174), and `aurra` of its code.
    """
    _, share = _ranked(confidence, correct)
    return np.cumsum(share[::-1]) / np.arange(1, len(share) + 1)


def _ranked(confidence: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return confidences in ascending order, with each example's accuracy averaged over equal confidences.

    All values are NaN if one confidence is NaN, since it has no rank.
    """
    if np.isnan(confidence).any():
        return np.full(len(confidence), np.nan), np.full(len(confidence), np.nan)
    values, rank_of, count = np.unique(np.asarray(confidence, np.float64), return_inverse=True, return_counts=True)
    share = np.bincount(rank_of, weights=np.asarray(correct, np.float64)) / count
    return np.repeat(values, count), np.repeat(share, count)


def brier_scores(logits: np.ndarray, labels: np.ndarray, one_per_class: bool = False) -> np.ndarray:
    """Compute the Brier score sum_k (p_k - [k = y])^2 per image, float64 [n] in [0, 2]: the original, over all classes.

    Args:
        logits: float [n, k].
        labels: integer [n].
        one_per_class: True: p = sigmoid(logits), which need not sum to 1 (the maximum is then k); False: their softmax.

    Returns:
        float64 [n].

    Source:
        Brier 1950, Monthly Weather Review 78, eq. (2). For two classes it is twice the one-class form.
    """
    differences = np.exp(log_probabilities(logits, one_per_class))
    differences[np.arange(len(labels)), labels] -= 1.0
    return np.sum(differences**2, axis=-1)


def negative_log_likelihoods(logits: np.ndarray, labels: np.ndarray, one_per_class: bool = False) -> np.ndarray:
    """Compute -log p_y per image in nats, float64 [n].

    With one probability per class it is -log p_y - sum of log(1 - p_k) over the other classes.
    """
    of_label = np.arange(len(labels)), labels
    losses = -log_probabilities(logits, one_per_class)[of_label]
    if not one_per_class:
        return losses
    complements = log_probabilities(-logits, True)
    complements[of_label] = 0.0
    return losses - np.sum(complements, axis=-1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration(Evaluator):
    """Calibration on clean images: `calibration.ece`, `.rms`, `.aurra`, `.brier`, `.nll`, and curves for ECE and AURRA.

    Under an attack the ids are `calibration.<attack>_<norm>_<epsilon>.ece` and so on. They are computed on the attack's
    last points of all images, also of images that stay correctly classified and of images that were misclassified
    before. A search that stops at the first misclassified point, as for accuracies, would find the model hardly
    confident there.

    The calibration errors have no interval: they are biased upwards in small samples, and no closed form is reliable.
    AURRA has none either, since its points share their examples. An output of NaN makes all five unknown.

    For a model that ends with sigmoids each class has a probability of its own: confidence is the largest, the Brier
    score sums over them as they are, and `nll` is that of one correct class and all others wrong.

    Attributes:
        bins: number of equal-width confidence bins of ECE, >= 1.
        rms_bin_size: images in a bin of the RMS calibration error, >= 1.
        rms_bins: "paper" or "code", see `rms_calibration_error`; "code" needs two bins.
        attack: an attack that maximizes the loss, such as PGD; None: clean images.
        label: the attack's part of the ids, in which "{steps}" is replaced by its steps; None: its own name.
        limit: under an attack, maximum number of images, drawn by the seed; None: all.
    """

    bins: int = 15
    rms_bin_size: int = 100
    rms_bins: str = "paper"
    attack: Attack | None = None
    label: str | None = None
    limit: int | None = 1000

    kinds: ClassVar[tuple[str, ...]] = ANY

    def __post_init__(self):
        require_least(self.bins, "Calibration.bins", 1)
        check_adaptive_bins(self.rms_bin_size, self.rms_bins)
        if self.attack is not None:
            check_last_points("Calibration", self.attack)

    def check(self, setting: Setting) -> None:
        """Raise ValueError for an attack on text, or for too few images for the bins."""
        if self.attack is not None and setting.predictor.is_text:
            raise InputError("Calibration.attack moves pixels, and these data are text; leave it None.")
        count = len(setting.images if self.attack is None else setting.subset(self.limit))
        check_adaptive_bins(self.rms_bin_size, self.rms_bins, count)

    def run(self, setting: Setting) -> Outcome:
        """Measure the calibration."""
        logits, labels, settings = self._answers(setting)
        correct = are_correct(logits, labels)
        one_per_class = setting.predictor.one_per_class
        if one_per_class:
            settings = {**settings, "probabilities": "one per class"}
        confidence = np.exp(log_probabilities(logits, one_per_class).max(axis=-1))
        count, curve = len(labels), response_accuracy(confidence, correct)
        ece = expected_calibration_error(confidence, correct, self.bins)
        rms = rms_calibration_error(confidence, correct, bin_size=self.rms_bin_size, bins=self.rms_bins)
        numbers = {
            "ece": (ece, "fraction", {"bins": self.bins}),
            "rms": (rms, "fraction", {"bin_size": self.rms_bin_size, "bins": self.rms_bins}),
            "aurra": (float(curve.mean()), "fraction", {}),
        }
        measurements = [
            Measurement(self._id(name), none_if_nan(value), unit, count, settings={**settings, **bin_settings})
            for name, (value, unit, bin_settings) in numbers.items()
        ]
        settings = {**settings, "interval": f"95 % over {setting.examples}, normal"}
        brier = brier_scores(logits, labels, one_per_class)
        nll = negative_log_likelihoods(logits, labels, one_per_class)
        measurements += [
            _mean(self._id("brier"), brier, "squared probability", settings),
            _mean(self._id("nll"), nll, "nats", settings),
        ]
        return Outcome(measurements, self._curves(setting, confidence, correct, curve))

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the five measurements."""
        return tuple(map(self._id, ("ece", "rms", "aurra", "brier", "nll")))

    def _id(self, name: str) -> str:
        if self.attack is None:
            return CALIBRATION.id(name)
        return ATTACKED_CALIBRATION.id(name, id_settings(self.attack, self.label))

    def _answers(self, setting: Setting) -> tuple[np.ndarray, np.ndarray, dict]:
        """Return logits, labels, and the settings that describe their origin."""
        if self.attack is None:
            return setting.clean_logits, setting.labels, {}
        result = last_points(setting, self.attack, self.limit)
        settings = last_point_settings(self.attack, setting, self.label) | {
            "answers": "to the last points of all images"
        }
        return result.logits, setting.labels[result.positions], settings

    def _curves(self, setting: Setting, confidence, correct, curve) -> list[Series]:
        count, table = len(correct), reliability(confidence, correct, self.bins)
        hits = np.round(table["accuracy"] * table["count"]).astype(int)
        ends = [
            statistics.wilson_interval(hit, of) if of else (np.nan, np.nan)
            for hit, of in zip(hits, table["count"], strict=True)
        ]
        table |= dict(zip(("low", "high"), np.transpose(ends), strict=True))
        shown = np.unique(np.linspace(0, count - 1, min(count, _CURVE_POINTS)).round().astype(int))
        rates = {"response_rate": (shown + 1) / count, "accuracy": curve[shown]}
        settings = {} if self.attack is None else id_settings(self.attack, self.label)
        images = f"under {attack_key(settings)}" if settings else f"clean {setting.examples}"
        identities = [CALIBRATION.id(name) for name in ("reliability", "response_rate")]
        if settings:
            identities = [record.id("", settings) for record in (ATTACKED_RELIABILITY, ATTACKED_RESPONSE_RATE)]
        interval = {"interval": f"95 % over {setting.examples} of the bin, Wilson"}
        return [
            Series(identities[0], f"Reliability, {images}", _column_lists(table), settings | interval),
            Series(identities[1], f"Response rate, {images}", _column_lists(rates), settings),
        ]


def _column_lists(columns: dict[str, np.ndarray]) -> dict[str, list]:
    return {name: [none_if_nan(value) for value in values.tolist()] for name, values in columns.items()}


def none_if_nan(value: float) -> float | None:
    """Return the value, or None for NaN and infinities, which neither a report nor a cached outcome can hold."""
    return value if np.isfinite(value) else None


def _mean(identifier: str, values: np.ndarray, unit: str, settings: dict) -> Measurement:
    mean, (low, high) = none_if_nan(float(values.mean())), map(none_if_nan, statistics.mean_interval(values))
    return Measurement(identifier, mean, unit, len(values), None if low is None else max(0.0, low), high, settings)
