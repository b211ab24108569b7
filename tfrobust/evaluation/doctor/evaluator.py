"""Evaluation checks (the doctor): inexpensive tests of whether the other numbers are credible."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from tfrobust.attacks.shared.base import Attack
from tfrobust.errors import InputError
from tfrobust.evaluation.doctor import (
    attack as doctor_attack,
)
from tfrobust.evaluation.doctor import (
    data as doctor_data,
)
from tfrobust.evaluation.doctor import (
    model as doctor_model,
)
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doctor(Evaluator):
    """Evaluation checks: findings on model, data and attacks (pass, warn or fail), with evidence and remedy.

    | finding | fails or warns where |
    |---|---|
    | `logits` | the outputs are probabilities, or may be (`warn`) |
    | `deterministic` | equal images get different outputs |
    | `batch_independent` | an output depends on the other images of the batch |
    | `clean_accuracy` | no better than predicting the most frequent class |
    | `gradients` | input gradients are missing, 0, vanishing, exploding, not finite, or stochastic |
    | `ascent` | a small step up the gradient increases the loss no more than a step in a random direction |
    | `monotone` | a larger epsilon leaves more accuracy |
    | `repredict` | saved adversarial images are not misclassified again, or lie outside the threat set |
    | `rounding` | they are correctly classified when rounded to 8 bits |
    | `attack_strength` | the evaluation searches less than the training did |
    | `epsilon_units` | epsilon is not a sensible radius in pixels of [0, 1] for these images |
    | `test_size` | too few test images for the claim |
    | `duplicates` | test images are among the training images of either stage (if those are known) |
    | `selection` | the weights were selected on the test split |

    Without input gradients, the checks that need them are left out, and `gradients` says so. The curve of the same
    attack over the same images shares its work if finished chunks are stored. For text, which no attack perturbs, the
    checks are `logits`, `deterministic`, `batch_independent`, `clean_accuracy`, `test_size`, `duplicates` and
    `selection`.

    Attributes:
        attack: a short attack for `monotone`, `repredict` and `rounding`; a few steps are enough. None for text.
        factors: the radii to compare, as multiples of its epsilon; 1 is added for `repredict`.
        limit: maximum number of images, drawn by the seed.
    """

    attack: Attack | None = None
    factors: tuple[float, ...] = (0.5, 1.0, 2.0)
    limit: int = 1000

    uses_training: ClassVar[bool] = True
    uses_attacks: ClassVar[bool] = True
    judges_text: ClassVar[bool] = True

    def __post_init__(self):
        if len(self.factors) < 2 or min(self.factors) <= 0:
            raise InputError(f"Doctor.factors is {tuple(self.factors)}; it must hold two or more positive numbers.")
        if self.limit < 1:
            raise InputError(f"Doctor.limit is {self.limit}; it must be at least 1.")

        if self.attack is not None and self.attack.minimal:
            raise InputError(
                f"Doctor.attack is {self.attack.name}, which knows no epsilon; give it one of a size, as PGD."
            )

    def check(self, setting: Setting) -> None:
        """Raise ValueError unless there is an attack exactly if the data are images."""
        if setting.predictor.is_text != (self.attack is None):
            kind, remedy = ("text", "None") if self.attack else ("images", "a short attack, as @PGD()")
            raise InputError(f"{setting.predictor.name} takes {kind}: Doctor.attack must be {remedy}.")

    def run(self, setting: Setting) -> Outcome:
        """Run all checks that apply."""
        attack, limit = self.attack, self.limit
        climbs = attack is not None and not isinstance(doctor_model.gradients(setting), str)
        findings = [
            doctor_model.check_logits(setting),
            doctor_model.check_deterministic(setting),
            doctor_model.check_batch_independent(setting),
            doctor_data.check_accuracy(setting),
        ]
        if attack is not None:
            findings.append(doctor_model.check_gradients(setting))
        if climbs:
            findings += [
                doctor_model.check_ascent(setting, attack.threat),
                doctor_attack.check_monotone(setting, attack, tuple(sorted(self.factors)), limit),
                doctor_attack.check_repredict(setting, attack, limit),
                doctor_attack.check_rounding(setting, attack, limit),
                doctor_attack.check_strength(setting, attack),
            ]
        robust = doctor_attack.standing(setting, attack, attack.threat.epsilon, limit) if climbs else None
        if attack is not None:
            findings.append(doctor_data.check_units(setting, attack))
        findings += [
            doctor_data.check_test_size(setting, robust),
            doctor_data.check_duplicates(setting),
            doctor_data.check_selection(setting),
        ]
        return Outcome(findings=[finding for finding in findings if finding is not None])
