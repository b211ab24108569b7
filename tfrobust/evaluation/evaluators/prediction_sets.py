"""Prediction sets by split conformal prediction: their coverage and size, on clean images and under attack."""

from __future__ import annotations

import dataclasses
import fractions
import math
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared.attack import Attack
from tfrobust.common.kinds import IMAGES, TEXT
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.engine.searching import check_last_points, last_points
from tfrobust.evaluation.evaluators.accuracy import accuracy
from tfrobust.evaluation.evaluators.adversarial import id_settings, last_point_settings
from tfrobust.evaluation.evaluators.calibration import log_confidence, log_probabilities
from tfrobust.ops import randomness
from tfrobust.report.catalog.outputs import PREDICTION_SETS
from tfrobust.structs import Finding, Measurement

SCORES = ("lac", "aps")
_NUMBERS = ("coverage", "size", "empty")
_NO_VALIDATION = Finding(
    "prediction_sets",
    "warn",
    "There is no validation split, so that prediction sets could not be calibrated: none were measured.",
    "Evaluate on data with a validation split, such as Digits.validation_size = 200.",
)


def conformal_threshold(scores: np.ndarray, level: float) -> float:
    """Return the ceil((n + 1) level)-th smallest of n scores; infinity if there are fewer.

    If the scores of a further example and these are exchangeable, its score is at most the threshold with a probability
    of at least `level`, and at most level + 1 / (n + 1) if no two scores are equal.

    Args:
        scores: float [n], of the true classes of the calibration examples; NaN counts as infinity.
        level: in (0, 1); its shortest decimal form is taken as exact.

    Source:
        Papadopoulos et al. 2002; Vovk et al. 2005; Lei et al. 2018 (arXiv 1604.04173), theorem 2.2.
    """
    rank = math.ceil((len(scores) + 1) * fractions.Fraction(repr(float(level))))
    ranked = np.sort(np.nan_to_num(np.asarray(scores, np.float64), nan=np.inf, posinf=np.inf))
    return float(ranked[rank - 1]) if rank <= len(ranked) else math.inf


def lac_scores(logits: np.ndarray, uniforms: np.ndarray | None = None) -> np.ndarray:
    """Compute -log p_k of every class, p the softmax: the sets are those of the score 1 - p_k.

    The logarithm grows with 1 - p_k, and does not round different probabilities to equal scores.

    Args:
        logits: float [n, k].
        uniforms: ignored.

    Returns:
        float64 [n, k], >= 0.

    Source:
        Sadinle et al. 2019 (arXiv 1609.00451): "least ambiguous set-valued classifiers".
    """
    scores = -log_probabilities(logits)
    np.put_along_axis(scores, np.asarray(logits).argmax(axis=-1)[:, None], -log_confidence(logits)[:, None], axis=-1)
    return scores


def aps_scores(logits: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Compute for every class the probability of all larger classes, plus u times its own.

    Args:
        logits: float [n, k]; classes of equal logits are ordered by their number.
        uniforms: u, float [n] in [0, 1), one per example and independent of it. With it, coverage is exact.

    Returns:
        float64 [n, k] in [0, 1].

    Source:
        Romano et al. 2020 (arXiv 2006.02544), eqs. 3 to 6: "adaptive prediction sets".
    """
    probabilities = np.exp(log_probabilities(logits))
    order = np.argsort(-probabilities, axis=-1, kind="stable")
    ranked = np.take_along_axis(probabilities, order, axis=-1)
    scores = np.cumsum(ranked, axis=-1) - ranked + np.asarray(uniforms, np.float64)[:, None] * ranked
    by_class = np.empty_like(scores)
    np.put_along_axis(by_class, order, scores, axis=-1)
    return by_class


_FUNCTIONS = {"lac": lac_scores, "aps": aps_scores}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictionSets(Evaluator):
    """Coverage and size of conformal prediction sets: `conformal.<score>_<level>.coverage`, `.size` and `.empty`.

    A set has all classes whose score is at most a threshold, which is chosen on the validation split. Coverage is the
    share of images whose label is in their set. For images that are exchangeable with those of the validation split it
    is at least the level: on average over all such images and validation splits, not for each class and not under
    attack. `.size` is the mean number of classes in a set, `.empty` the share of empty sets.

    Under an attack the ids are `conformal.<attack>_<norm>_<epsilon>.<score>_<level>.coverage` and so on, on the last
    points of all images, also of misclassified ones. The threshold is that of clean images. An attack on the
    cross-entropy maximizes the score -log p_y of "lac", so it is aimed at these sets. For "aps" it is not the strongest
    attack. Coverage under attack is no guarantee.

    Without a validation split nothing is measured, and a finding says so. Another finding warns if the weights were
    selected on the same split: its scores are then not exchangeable with those of test images.

    Attributes:
        level: the coverage that the sets are calibrated for, in (0, 1).
        scores: some of "lac" (1 - p_k) and "aps" (the probability of all larger classes and a random share of p_k).
        attack: an attack that maximizes the loss, such as PGD; None: clean images.
        label: the attack's part of the ids, in which "{steps}" is replaced by its steps; None: its own name.
        limit: under an attack, maximum number of images, drawn by the seed; None: all.

    Source:
        Sadinle et al. 2019 (arXiv 1609.00451); Romano et al. 2020 (arXiv 2006.02544).
    """

    level: float = 0.9
    scores: tuple[str, ...] = SCORES
    attack: Attack | None = None
    label: str | None = None
    limit: int | None = 1000

    uses_validation: ClassVar[bool] = True
    # Clips of one video are not exchangeable with those of another one.
    kinds: ClassVar[tuple[str, ...]] = (IMAGES.name, TEXT.name)

    def __post_init__(self):
        object.__setattr__(self, "scores", tuple(self.scores))
        if not 0 < self.level < 1:
            raise InputError(f"PredictionSets.level is {self.level}; it lies between 0 and 1, such as 0.9.")
        if not self.scores or len(set(self.scores)) < len(self.scores):
            raise InputError("PredictionSets.scores is empty or has duplicates; it is some of lac, aps.")
        for score in self.scores:
            require_choice(score, "an entry of PredictionSets.scores", SCORES)
        if self.attack is not None:
            check_last_points("PredictionSets", self.attack)

    def check(self, setting: Setting) -> None:
        """Raise ValueError for an attack on text."""
        if self.attack is not None and setting.predictor.is_text:
            raise InputError("PredictionSets.attack moves pixels, and these data are text; leave it None.")

    def run(self, setting: Setting) -> Outcome:
        """Calibrate the sets, and measure them."""
        if not setting.has_validation:
            return Outcome(findings=[_NO_VALIDATION])
        logits, positions, settings = self._outputs(setting)
        settings |= {"level": self.level, "calibration_images": len(setting.validation_images)}
        uniforms = _uniforms(setting, "test", len(setting.images))[positions]
        measurements = []
        for name in self.scores:
            score, threshold = _FUNCTIONS[name], self._threshold(setting, name)
            score_settings = settings | {"score": name, "threshold": threshold if math.isfinite(threshold) else None}
            sets = np.nan_to_num(score(logits, uniforms), nan=math.inf, posinf=math.inf) <= threshold
            measurements += self._numbers(sets, setting.labels[positions], score_settings, setting.examples)
        return Outcome(measurements, findings=_selected(setting))

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the measurements of each score."""
        attack = {} if self.attack is None else id_settings(self.attack, self.label)
        return tuple(
            PREDICTION_SETS.id(quantity, attack | {"score": score, "level": self.level})
            for score in self.scores
            for quantity in _NUMBERS
        )

    def _outputs(self, setting: Setting) -> tuple[np.ndarray, np.ndarray, dict]:
        """Return logits, positions of their images, and the settings that describe their origin."""
        if self.attack is None:
            return setting.clean_logits, np.arange(len(setting.images)), {}
        points = last_points(setting, self.attack, self.limit)
        settings = last_point_settings(self.attack, setting, self.label) | {
            "answers": "to the last points of all images"
        }
        return points.logits, points.positions, settings

    def _threshold(self, setting: Setting, score: str) -> float:
        labels = setting.validation_labels
        scores = _FUNCTIONS[score](setting.validation_logits, _uniforms(setting, "validation", len(labels)))
        return conformal_threshold(scores[np.arange(len(labels)), labels], self.level)

    def _numbers(self, sets: np.ndarray, labels: np.ndarray, settings: dict, examples: str) -> list:
        """Return coverage, mean size and share of empty sets, bool [n, k]."""
        sizes = sets.sum(axis=-1)
        coverage, mean_size, empty = (PREDICTION_SETS.id(quantity, settings) for quantity in _NUMBERS)
        low, high = statistics.mean_interval(sizes)
        size_settings = settings | {"interval": f"95 % over {examples}, normal"}
        return [
            accuracy(coverage, sets[np.arange(len(labels)), labels], settings, examples),
            Measurement(
                mean_size,
                float(sizes.mean()),
                "classes",
                len(sizes),
                max(0.0, low),
                min(high, sets.shape[1]),
                size_settings,
            ),
            accuracy(empty, sizes == 0, settings, examples),
        ]


def _uniforms(setting: Setting, split: str, count: int) -> np.ndarray:
    """Return one uniform number per example of a split, float64 [count], by the seed."""
    key = randomness.make_key(setting.seed, "evaluation", "prediction sets", split)
    return tf.random.stateless_uniform([count], key, dtype=tf.float64).numpy()


def _selected(setting: Setting) -> list[Finding]:
    if setting.selected_on != "validation":
        return []
    evidence = "The weights were selected on the validation split, which also calibrates the prediction sets."
    remedy = "Coverage may then be below the level: publish the last weights, or hold another split out."
    return [Finding("prediction_sets", "warn", evidence, remedy)]
