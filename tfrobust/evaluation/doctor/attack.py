"""Evaluation checks of the attacks: their results must be consistent, real, and from a long enough search."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared.base import Attack
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.searching import attacked, search
from tfrobust.structs import Finding

# With fewer steps an attack is not a search.
_FEW_STEPS = 10
_LOST = 0.1


def standing(setting: Setting, attack: Attack, epsilon: float, limit: int) -> np.ndarray:
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
    robust = [standing(setting, attack, size, limit) for size in sizes]
    curve = ", ".join(f"{size:.4g}: {row.mean():.1%}" for size, row in zip(sizes, robust, strict=True))
    evidence = f"Accuracy by epsilon over {len(robust[0])} images: {curve}."
    remedy = "The attack fails at the larger size: give it more steps and restarts, and look for masked gradients."
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
        f"Of {len(images)} saved images {differ} are predicted otherwise than the attack reported and {outside} "
        f"lie outside the threat set; {np.mean(fooled):.1%} fool the model."
    )
    if differ or outside:
        verdict = "warn" if not outside and differ <= 0.01 * len(images) else "fail"
        remedy = "Judge by predicting the saved images, not by the attack's word."
        return Finding("repredict", verdict, evidence, remedy)
    return Finding("repredict", "pass", evidence)


def check_rounding(setting: Setting, attack: Attack, limit: int) -> Finding:
    """Check that the saved adversarial images are still misclassified as 8-bit images."""
    positions, result = attacked(setting, attack, limit)
    images, labels = np.asarray(result.adversarial), setting.labels[positions]
    made = setting.clean_correct[positions] & (setting.predict(images).argmax(axis=-1) != labels)
    if not made.any():
        return Finding("rounding", "pass", "The attack made no image that fools the model, so none is rounded.")
    rounded = np.round(images[made] * 255) / np.float32(255)
    left = float(np.mean(setting.predict(rounded).argmax(axis=-1) != labels[made]))
    evidence = f"Of {made.sum()} images that were made to fool the model {left:.1%} still do when rounded to 8 bits."
    if 1 - left <= _LOST:
        return Finding("rounding", "pass", evidence)
    remedy = (
        "On 8-bit images the model is less fragile than this says, or it hides between grey levels: attack in uint8."
    )
    return Finding("rounding", "warn", evidence, remedy)


def check_strength(setting: Setting, own: Attack) -> Finding:
    """Check that the evaluation attacks the model at least as hard as its training did."""
    attacks = [one for attack in setting.evaluation_attacks or (own,) for one in attack.members or (attack,)]
    climbers = [attack for attack in attacks if attack.needs_gradient]
    trained = setting.training_attack
    if trained is None:
        steps = max((attack.steps for attack in climbers), default=0)
        evidence = f"The longest search along gradients takes {steps} steps; no attack is known of the training."
        return _judged_by_steps(steps, _FEW_STEPS, evidence)
    norm, epsilon, needed = (trained[name] for name in ("norm", "epsilon", "steps"))
    same = [attack for attack in climbers if attack.threat.norm == norm]
    reach = max((np.inf if attack.minimal else attack.threat.epsilon for attack in same), default=0.0)
    full = [attack for attack in same if attack.minimal or attack.threat.epsilon >= epsilon * (1 - 1e-6)]
    steps = max((attack.steps for attack in full), default=0)
    evidence = f"Training attacked by {needed} steps within {norm} {epsilon:.6g}; the evaluation "
    if not same:
        remedy = f"Evaluate within {norm} {epsilon:.6g} as well: the model was trained for that."
        return Finding("attack_strength", "warn", f"{evidence}makes no search along gradients in that norm.", remedy)
    if not full:
        remedy = f"Evaluate at {epsilon:.6g} too, the size that was trained for."
        verdict = "fail" if reach < epsilon / 2 else "warn"
        return Finding("attack_strength", verdict, f"{evidence}goes to {reach:.6g} at most.", remedy)
    return _judged_by_steps(steps, max(needed, _FEW_STEPS), f"{evidence}takes up to {steps} steps there.", needed)


def _judged_by_steps(steps: int, wanted: int, evidence: str, trained: int = 0) -> Finding:
    if steps >= wanted:
        return Finding("attack_strength", "pass", evidence)
    remedy = f"Give the attack at least {wanted} steps; gin/eval/pgd.gin takes 100."
    return Finding("attack_strength", "fail" if steps < trained else "warn", evidence, remedy)


def _out_of_box(images: np.ndarray, low: float, high: float) -> np.ndarray:
    rows = images.reshape(len(images), -1)
    return (rows.min(axis=1) < low) | (rows.max(axis=1) > high) | ~np.all(np.isfinite(rows), axis=1)
