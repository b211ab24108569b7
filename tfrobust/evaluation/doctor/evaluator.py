"""Evaluation checks (the doctor): inexpensive tests of whether the other numbers are credible."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from tfrobust.attacks.shared.attack import Attack
from tfrobust.common.kinds import ANY
from tfrobust.common.settings import require_least
from tfrobust.errors import InputError
from tfrobust.evaluation.doctor import claims, model, pixels, radius, short_attack, strength
from tfrobust.evaluation.doctor.duplicates import check_duplicates
from tfrobust.evaluation.doctor.fine_tuning import check_fine_tuning
from tfrobust.evaluation.doctor.overfitting import check_overfitting
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.structs import Finding


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doctor(Evaluator):
    """Evaluation checks: findings on model, data and attacks (pass, warn or fail), with evidence and remedy.

    | finding | fails or warns where |
    |---|---|
    | `logits` | the outputs are probabilities (`warn` if none is close to 1), or may be (`warn`) |
    | `deterministic` | equal images get different outputs |
    | `batch_independent` | an output depends on the other images of the batch |
    | `clean_accuracy` | no better than predicting the most frequent class |
    | `pixel_range` | another range of pixels, such as [0, 255], suits the model clearly better than [0, 1] |
    | `gradients` | input gradients are missing, 0, vanishing, exploding, not finite, or stochastic |
    | `ascent` | a small step up the gradient increases the loss no more than a step in a random direction |
    | `monotone` | a larger epsilon leaves more accuracy |
    | `repredict` | saved adversarial images are not misclassified again, or lie outside the threat set |
    | `rounding` | they are correctly classified when rounded to 8 bits |
    | `surrogate` | the gradients of a surrogate (a LiteRT file's float model) succeed on other images than its own |
    | `attack_strength` | the evaluation searches less than the training did, or within another radius, norm or box |
    | `overfitting` | FGSM leaves much more accuracy than PGD at the epsilon of a training by single steps |
    | `fine_tuning` | an adversarial fine-tuning with settings that usually fail ended low under attack |
    | `epsilon_units` | epsilon is not a sensible radius in pixels of [0, 1] for these images |
    | `test_size` | too few test images for the claim |
    | `classes` | classes without test images or training images (only named if there are any) |
    | `duplicates` | test images are among the training images of either stage (if those are known) |
    | `selection` | the weights were selected on the test split |

    Without input gradients, the checks that need them are left out, and `gradients` says so. The curve of the same
    attack over the same images shares its work if finished chunks are stored. For text, which no attack perturbs, the
    checks are `logits`, `deterministic`, `batch_independent`, `clean_accuracy`, `test_size`, `classes`, `duplicates`
    and `selection`.

    Attributes:
        attack: a short attack for `monotone`, `repredict` and `rounding`; a few steps are enough. None for text.
        factors: the radii to compare, as multiples of its epsilon; 1 is added for `repredict`. Those beyond the pixel
            box are left out.
        limit: maximum number of images, drawn by the seed.
        other_threat: True if the evaluation is meant to attack within another threat model than the training. The
            commands set it where a recipe sets EVAL_EPSILON or EVAL_NORM.
    """

    attack: Attack | None = None
    factors: tuple[float, ...] = (0.5, 1.0, 2.0)
    limit: int = 1000
    other_threat: bool = False

    uses_training: ClassVar[bool] = True
    uses_attacks: ClassVar[bool] = True
    kinds: ClassVar[tuple[str, ...]] = ANY

    def __post_init__(self):
        if len(self.factors) < 2 or min(self.factors) <= 0:
            raise InputError(f"Doctor.factors is {tuple(self.factors)}; it must hold two or more positive numbers.")
        require_least(self.limit, "Doctor.limit", 1)
        if self.attack is not None and self.attack.minimal:
            raise InputError(
                f"Doctor.attack is {self.attack.name}, a minimal-norm attack without epsilon; use one with "
                "epsilon, such as PGD."
            )

    def check(self, setting: Setting) -> None:
        """Raise ValueError unless there is an attack exactly if the data are images."""
        if setting.predictor.is_text != (self.attack is None):
            remedy = "None" if self.attack else "a short attack, as @PGD()"
            raise InputError(
                f"{setting.predictor.name} takes {setting.predictor.kind.name}: Doctor.attack must be {remedy}."
            )

    def run(self, setting: Setting) -> Outcome:
        """Run all checks that apply."""
        attack, limit = self.attack, self.limit
        climbs = attack is not None and not isinstance(model.gradients(setting), str)
        findings: list[Finding | None] = [
            model.check_logits(setting),
            model.check_deterministic(setting),
            model.check_batch_independent(setting),
            claims.check_accuracy(setting),
        ]
        if attack is not None:
            findings += [pixels.check_pixel_range(setting), model.check_gradients(setting)]
        if climbs:
            unequal_threat = None if self.other_threat else strength.check_equal_threat(setting, attack)
            findings += [
                model.check_ascent(setting, attack.threat),
                short_attack.check_monotone(setting, attack, tuple(sorted(self.factors)), limit),
                short_attack.check_repredict(setting, attack, limit),
                short_attack.check_rounding(setting, attack, limit),
                short_attack.check_surrogate(setting, attack, limit),
                unequal_threat or strength.check_strength(setting, attack),
                check_overfitting(setting),
            ]
        robust = short_attack.still_correct(setting, attack, attack.threat.epsilon, limit) if climbs else None
        findings.append(check_fine_tuning(setting, robust))
        if attack is not None:
            findings.append(radius.check_units(setting, attack))
        findings += [
            claims.check_test_size(setting, robust),
            claims.check_classes(setting),
            check_duplicates(setting),
            claims.check_selection(setting),
        ]
        return Outcome(findings=[finding for finding in findings if finding is not None])
