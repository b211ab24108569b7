"""What an attack does to a few images, to be looked at."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tfrobust.attacks.base import Attack
from tfrobust.errors import InputError
from tfrobust.evaluation.adversarial import attack_id, attack_settings
from tfrobust.evaluation.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.calibration import known, log_probabilities
from tfrobust.evaluation.predictor import Predictor
from tfrobust.evaluation.searching import LastPoints, check_last_points, last_points
from tfrobust.ops import pictures
from tfrobust.structs import Series


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdversarialExamples(Evaluator):
    """The series `attack.<label>_<norm>_<epsilon>.examples`: images clean, attacked, and their amplified difference.

    Drawn by the seed among the images that are rightly classified as they are: some that the attack's last point
    brings down, some that it does not. How many of each says nothing about accuracy. A row per image: label;
    predicted class and its probability, clean and attacked; three pictures as `ops.pictures.encode` writes them
    (large images averaged over squares of pixels; of differences the largest in each). The third is
    1/2 + factor x difference, one factor for all, in the settings.

    Attributes:
        attack: one that climbs the loss, such as PGD.
        label: what tells it apart in the id, "{steps}" in it its steps; None: the attack's own name.
        fallen: at most so many that it brings down.
        standing: at most so many that it does not.
        limit: among at most so many images, drawn by the seed; None: all.
    """

    attack: Attack
    label: str | None = None
    fallen: int = 4
    standing: int = 2
    limit: int | None = 1000

    def __post_init__(self):
        check_last_points("AdversarialExamples", self.attack)
        if min(self.fallen, self.standing) < 0 or self.fallen + self.standing < 1:
            raise InputError(
                f"AdversarialExamples shows {self.fallen} fallen and {self.standing} standing images; neither is "
                "negative, and together at least 1."
            )

    def run(self, setting: Setting) -> Outcome:
        found = last_points(setting, self.attack, self.limit)
        rows = self._chosen(setting, found)
        if not len(rows):
            return Outcome()
        differences = found.images[rows] - setting.images[found.positions[rows]]
        factor = _factor(float(np.abs(differences).max()))
        settings = attack_settings(self.attack, setting) | {"difference_factor": factor}
        shown = [_row(setting, found, row, factor) for row in rows]
        columns = {name: [one[name] for one in shown] for name in shown[0]}
        return Outcome(series=[Series(self.ids()[0], "Images clean and attacked", columns, settings)])

    def ids(self) -> tuple[str, ...]:
        return (f"{attack_id(self.attack, self.label)}.examples",)

    def _chosen(self, setting: Setting, found: LastPoints) -> np.ndarray:
        """Rows of `found`, those brought down first."""
        order = setting.order("examples", len(found.positions))
        order = order[setting.clean_correct[found.positions[order]]]
        right = found.logits.argmax(axis=-1) == setting.labels[found.positions]
        return np.concatenate([order[~right[order]][: self.fallen], order[right[order]][: self.standing]])


def _factor(largest: float) -> float:
    """By how much differences of at most `largest` can be multiplied to stay within 1/2; two digits, rounded down."""
    if largest <= 0.0:
        return 1.0
    unit = 10.0 ** (math.floor(math.log10(0.5 / largest)) - 1)
    # A float32 difference may exceed the radius by its last bit.
    return float(f"{math.floor(0.5 / largest / unit + 1e-3) * unit:.6g}")


def _row(setting: Setting, found: LastPoints, row: int, factor: float) -> dict:
    position = found.positions[row]
    image, adversary = setting.images[position], found.images[row]
    drawn = {
        "image": pictures.shrunk(image),
        "adversarial": pictures.shrunk(adversary),
        "difference": 0.5 + factor * pictures.extremes(adversary - image),
    }
    sizes = dict(zip(("height", "width", "channels"), drawn["image"].shape, strict=True))
    return {
        "position": int(position),
        "label": int(setting.labels[position]),
        **_answer("clean", setting.clean_logits[position], setting.predictor),
        **_answer("attacked", found.logits[row], setting.predictor),
        **sizes,
        **{name: pictures.encode(picture) for name, picture in drawn.items()},
    }


def _answer(name: str, logits: np.ndarray, predictor: Predictor) -> dict:
    confidence = known(float(np.exp(log_probabilities(logits, predictor.one_per_class).max())))
    return {f"{name}_class": int(logits.argmax()), f"{name}_confidence": confidence}
