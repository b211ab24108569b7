"""Example images under an attack, for visual inspection."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tfrobust.attacks.shared.attack import Attack
from tfrobust.common import thumbnails
from tfrobust.common.kinds import CLIPS
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting, are_correct
from tfrobust.evaluation.engine.predictor import Predictor
from tfrobust.evaluation.engine.searching import LastPoints, check_last_points, last_points
from tfrobust.evaluation.evaluators.adversarial import id_settings, last_point_settings
from tfrobust.evaluation.evaluators.calibration import log_probabilities, none_if_nan
from tfrobust.report.catalog.under_attack import PICTURES
from tfrobust.structs import Series

_DRAWN = "at random, from as many classes as possible"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdversarialExamples(Evaluator):
    """Example images: clean, adversarial, and their amplified difference.

    The series is `attack.<label>_<norm>_<epsilon>.examples`. Images are drawn by the seed among the correctly
    classified clean images, from as many classes as possible: some that the attack's last point misclassifies, some
    that it does not. Their numbers say nothing about accuracy. Each image has one row: label; predicted class and its
    probability, clean and adversarial; three pictures encoded by `common.thumbnails.encode` (large images are averaged
    over squares of pixels; differences keep the largest value in each square). The third picture is 1/2 + factor x
    difference, with one factor for all, in the settings.

    A picture of a clip is a strip of at most 8 frames, evenly spread; `frames` is their number. The series `.frames`
    has the root mean square of the perturbation in each frame, averaged over all attacked clips, with its 95 % interval
    over clips: where in time the perturbation lies.

    Attributes:
        attack: an attack that maximizes the loss, such as PGD.
        label: the attack's part of the id, in which "{steps}" is replaced by its steps; None: the attack's own name.
        misclassified: maximum number of images on which the attack succeeds.
        correct: maximum number of images on which it fails.
        limit: maximum number of images to choose from, drawn by the seed; None: all.
    """

    attack: Attack
    label: str | None = None
    misclassified: int = 3
    correct: int = 3
    limit: int | None = 1000

    def __post_init__(self):
        check_last_points("AdversarialExamples", self.attack)
        if min(self.misclassified, self.correct) < 0 or self.misclassified + self.correct < 1:
            raise InputError(
                f"AdversarialExamples shows {self.misclassified} misclassified and {self.correct} correctly classified "
                "images; neither is negative, and together at least 1."
            )

    def run(self, setting: Setting) -> Outcome:
        """Attack the images and encode some of them."""
        points = last_points(setting, self.attack, self.limit)
        rows = self._chosen(setting, points)
        if not len(rows):
            return Outcome()
        differences = points.images[rows] - setting.images[points.positions[rows]]
        factor = _factor(float(np.abs(differences).max()))
        settings = last_point_settings(self.attack, setting, self.label) | {
            "difference_factor": factor,
            "drawn": _DRAWN,
        }
        shown = [_row(setting, points, row, factor) for row in rows]
        columns = {name: [picture[name] for picture in shown] for name in shown[0]}
        series = [Series(self.ids()[0], f"{setting.examples.capitalize()} clean and attacked", columns, settings)]
        if setting.predictor.kind is CLIPS:
            series.append(_by_frame(PICTURES.id("frames", settings), setting, points, settings))
        return Outcome(series=series)

    def ids(self) -> tuple[str, ...]:
        """Return the id of the series."""
        return (PICTURES.id("examples", id_settings(self.attack, self.label)),)

    def _chosen(self, setting: Setting, points: LastPoints) -> np.ndarray:
        """Return rows of `points`, those on which the attack succeeded first."""
        order = setting.order("examples", len(points.positions))
        order = order[setting.clean_correct[points.positions[order]]]
        is_correct = are_correct(points.logits, setting.labels[points.positions])
        labels = setting.labels[points.positions]
        wrong, correct = (
            _class_by_class(rows, labels[rows]) for rows in (order[~is_correct[order]], order[is_correct[order]])
        )
        return np.concatenate([wrong[: self.misclassified], correct[: self.correct]])


def _class_by_class(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Reorder rows: the first of each class in their order, then the second of each class, and so on."""
    turn = [int((labels[:number] == label).sum()) for number, label in enumerate(labels)]
    return rows[np.argsort(turn, kind="stable")]


def _factor(largest: float) -> float:
    """Return a factor that keeps differences of at most `largest` within 1/2, rounded down to two digits."""
    if largest <= 0.0:
        return 1.0
    unit = 10.0 ** (math.floor(math.log10(0.5 / largest)) - 1)
    # Tolerance: a float32 difference may exceed the radius by its last bit.
    return float(f"{math.floor(0.5 / largest / unit + 1e-3) * unit:.6g}")


def _by_frame(identity: str, setting: Setting, points: LastPoints, settings: dict) -> Series:
    """Return the size of the perturbation by frame, counted from 1."""
    change = points.images - setting.images[points.positions]
    sizes = np.sqrt(np.mean(np.square(change, dtype=np.float64), axis=(2, 3, 4)))
    intervals = [statistics.mean_interval(size) for size in sizes.T]
    columns = {
        "frame": list(range(1, sizes.shape[1] + 1)),
        "size": sizes.mean(axis=0).tolist(),
        "low": [none_if_nan(low) for low, _ in intervals],
        "high": [none_if_nan(high) for _, high in intervals],
    }
    settings = {name: value for name, value in settings.items() if name not in ("difference_factor", "drawn")}
    settings |= {"measure": "root mean square over a frame", "n": len(sizes), "interval": setting.interval("normal")}
    return Series(identity, "Size of the perturbation by frame", columns, settings)


def _row(setting: Setting, points: LastPoints, row: int, factor: float) -> dict:
    position = points.positions[row]
    image, adversary = setting.images[position], points.images[row]
    is_clip = setting.predictor.kind is CLIPS
    draw = thumbnails.strip if is_clip else lambda example, shrink: shrink(example)
    drawn = {
        "image": draw(image, thumbnails.shrunk),
        "adversarial": draw(adversary, thumbnails.shrunk),
        "difference": 0.5 + factor * draw(adversary - image, thumbnails.extremes),
    }
    sizes = dict(zip(("height", "width", "channels"), drawn["image"].shape, strict=True))
    sizes |= {"frames": len(thumbnails.frames_shown(len(image)))} if is_clip else {}
    return {
        "position": int(position),
        "label": int(setting.labels[position]),
        **_answer("clean", setting.clean_logits[position], setting.predictor),
        **_answer("attacked", points.logits[row], setting.predictor),
        **sizes,
        **{name: thumbnails.encode(picture) for name, picture in drawn.items()},
    }


def _answer(name: str, logits: np.ndarray, predictor: Predictor) -> dict:
    confidence = none_if_nan(float(np.exp(log_probabilities(logits, predictor.one_per_class).max())))
    return {f"{name}_class": int(logits.argmax()), f"{name}_confidence": confidence}
