"""Evaluation checks (the doctor): inexpensive tests of whether the other numbers are credible."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared.base import Attack
from tfrobust.errors import InputError
from tfrobust.evaluation.doctor import data as doctor_data
from tfrobust.evaluation.doctor import model as doctor_model
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.engine.searching import attacked, search
from tfrobust.structs import Finding

# With fewer steps an attack is not a search.
_FEW_STEPS = 10
_LOST = 0.1


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
    supports_text: ClassVar[bool] = True

    def __post_init__(self):
        if len(self.factors) < 2 or min(self.factors) <= 0:
            raise InputError(f"Doctor.factors is {tuple(self.factors)}; it must hold two or more positive numbers.")
        if self.limit < 1:
            raise InputError(f"Doctor.limit is {self.limit}; it must be at least 1.")
        if self.attack is not None and self.attack.minimal:
            raise InputError(
                f"Doctor.attack is {self.attack.name}, a minimal-norm attack without epsilon; use one with "
                "epsilon, such as PGD."
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
                check_monotone(setting, attack, tuple(sorted(self.factors)), limit),
                check_repredict(setting, attack, limit),
                check_rounding(setting, attack, limit),
                check_strength(setting, attack),
            ]
        robust = still_correct(setting, attack, attack.threat.epsilon, limit) if climbs else None
        if attack is not None:
            findings.append(doctor_data.check_units(setting, attack))
        findings += [
            doctor_data.check_test_size(setting, robust),
            doctor_data.check_duplicates(setting),
            doctor_data.check_selection(setting),
        ]
        return Outcome(findings=[finding for finding in findings if finding is not None])


# ------------------------------------------------------------------------------------- checks of the attack


def still_correct(setting: Setting, attack: Attack, epsilon: float, limit: int) -> np.ndarray:
    """Return which of at most `limit` images remain correctly classified, bool [m]; epsilon 0 is the clean prediction.

    The attack's own epsilon shares its work with `check_repredict`, other values with the chunks of a curve.
    """
    positions = setting.subset(limit)
    if epsilon == 0:
        return setting.clean_correct[positions]
    if epsilon == attack.threat.epsilon:
        return ~np.asarray(attacked(setting, attack, limit)[1].success)
    return ~search(setting, attack.with_epsilon(epsilon), positions).success


def check_monotone(setting: Setting, attack: Attack, factors: tuple[float, ...], limit: int) -> Finding:
    """Check that a larger epsilon never leaves more accuracy: the smaller ball lies inside the larger one."""
    sizes = (0.0, *(factor * attack.threat.epsilon for factor in factors))
    robust = [still_correct(setting, attack, size, limit) for size in sizes]
    curve = ", ".join(f"{size:.4g}: {row.mean():.1%}" for size, row in zip(sizes, robust, strict=True))
    evidence = f"Accuracy by epsilon over {len(robust[0])} images: {curve}."
    remedy = "The attack fails at the larger epsilon: give it more steps and restarts, and look for masked gradients."
    rises = [statistics.paired_difference(after, before) for before, after in zip(robust, robust[1:], strict=False)]
    if max(low for _, low, _ in rises) > 0:
        return Finding("monotone", "fail", evidence, remedy)
    # The result of one image may change by chance within a few steps.
    if max(rise for rise, _, _ in rises) * len(robust[0]) > max(1.0, 0.01 * len(robust[0])):
        return Finding("monotone", "warn", evidence, remedy)
    return Finding("monotone", "pass", evidence)


def check_repredict(setting: Setting, attack: Attack, limit: int) -> Finding:
    """Check that the saved adversarial images lie in the threat set and are misclassified when predicted again."""
    positions, result = attacked(setting, attack, limit)
    images, threat = np.asarray(result.adversarial), attack.threat
    fooled = setting.predict(images).argmax(axis=-1) != setting.labels[positions]
    differ = int(np.sum(fooled != np.asarray(result.success)))
    distance = np.asarray(threat.distance(tf.constant(setting.images[positions]), tf.constant(images)))
    low, high = threat.bounds
    outside = int(np.sum((distance > threat.epsilon * (1 + 1e-4) + 1e-6) | _out_of_box(images, low, high)))
    evidence = (
        f"Of {len(images)} saved images, {differ} have another prediction than the attack reported and {outside} "
        f"lie outside the threat set; {np.mean(fooled):.1%} are misclassified."
    )
    if differ or outside:
        verdict = "warn" if not outside and differ <= 0.01 * len(images) else "fail"
        remedy = "Compute the accuracy by predicting the saved images, not from the attack's own report."
        return Finding("repredict", verdict, evidence, remedy)
    return Finding("repredict", "pass", evidence)


def check_rounding(setting: Setting, attack: Attack, limit: int) -> Finding:
    """Check that the saved adversarial images are still misclassified as 8-bit images."""
    positions, result = attacked(setting, attack, limit)
    images, labels = np.asarray(result.adversarial), setting.labels[positions]
    made = setting.clean_correct[positions] & (setting.predict(images).argmax(axis=-1) != labels)
    if not made.any():
        return Finding("rounding", "pass", "The attack caused no misclassification, so nothing was rounded.")
    rounded = np.round(images[made] * 255) / np.float32(255)
    left = float(np.mean(setting.predict(rounded).argmax(axis=-1) != labels[made]))
    evidence = f"Of {made.sum()} adversarial images, {left:.1%} are still misclassified when rounded to 8 bits."
    if 1 - left <= _LOST:
        return Finding("rounding", "pass", evidence)
    remedy = (
        "On 8-bit images the model is more robust than these numbers, or it masks gradients between gray levels: "
        "attack in uint8."
    )
    return Finding("rounding", "warn", evidence, remedy)


def check_strength(setting: Setting, own: Attack) -> Finding:
    """Check that the evaluation attacks the model at least as hard as its training did."""
    attacks = [one for attack in setting.evaluation_attacks or (own,) for one in attack.members or (attack,)]
    climbers = [attack for attack in attacks if attack.needs_gradient]
    trained = setting.training_attack
    if trained is None:
        steps = max((attack.steps for attack in climbers), default=0)
        evidence = f"The longest gradient attack takes {steps} steps; no attack in training is known."
        return _check_steps(steps, _FEW_STEPS, evidence)
    norm, epsilon, needed = (trained[name] for name in ("norm", "epsilon", "steps"))
    same = [attack for attack in climbers if attack.threat.norm == norm]
    reach = max((np.inf if attack.minimal else attack.threat.epsilon for attack in same), default=0.0)
    full = [attack for attack in same if attack.minimal or attack.threat.epsilon >= epsilon * (1 - 1e-6)]
    steps = max((attack.steps for attack in full), default=0)
    evidence = f"Training attacked by {needed} steps within {norm} {epsilon:.6g}; the evaluation "
    if not same:
        remedy = f"Evaluate within {norm} {epsilon:.6g} as well: the model was trained for that."
        return Finding("attack_strength", "warn", f"{evidence}has no gradient attack in that norm.", remedy)
    if not full:
        remedy = f"Evaluate at {epsilon:.6g} too, the epsilon that was trained for."
        verdict = "fail" if reach < epsilon / 2 else "warn"
        return Finding("attack_strength", verdict, f"{evidence}uses at most {reach:.6g}.", remedy)
    return _check_steps(steps, max(needed, _FEW_STEPS), f"{evidence}takes up to {steps} steps there.", needed)


def _check_steps(steps: int, wanted: int, evidence: str, trained: int = 0) -> Finding:
    if steps >= wanted:
        return Finding("attack_strength", "pass", evidence)
    remedy = f"Give the attack at least {wanted} steps; gin/eval/pgd.gin takes 100."
    return Finding("attack_strength", "fail" if steps < trained else "warn", evidence, remedy)


def _out_of_box(images: np.ndarray, low: float, high: float) -> np.ndarray:
    rows = images.reshape(len(images), -1)
    return (rows.min(axis=1) < low) | (rows.max(axis=1) > high) | ~np.all(np.isfinite(rows), axis=1)
