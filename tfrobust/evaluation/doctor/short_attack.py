"""Evaluation checks of the doctor's short attack: its curve, its saved images, and the gradients it uses."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.transfer import Transfer
from tfrobust.evaluation.doctor.limits import graded, verdict
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Setting, are_correct
from tfrobust.evaluation.engine.searching import attack_result, search
from tfrobust.structs import Finding


def still_correct(setting: Setting, attack: Attack, epsilon: float, limit: int) -> np.ndarray:
    """Return which of at most `limit` images remain correctly classified, bool [m]; epsilon 0 is the clean prediction.

    The attack's own epsilon shares its work with `check_repredict`, other values with the chunks of a curve.
    """
    positions = setting.subset(limit)
    if epsilon == 0:
        return setting.clean_correct[positions]
    if epsilon == attack.threat.epsilon:
        return ~np.asarray(attack_result(setting, attack, limit)[1].success)
    return ~search(setting, attack.with_epsilon(epsilon), positions).success


def check_monotone(setting: Setting, attack: Attack, factors: tuple[float, ...], limit: int) -> Finding:
    """Check that a larger epsilon never leaves more accuracy: the smaller ball lies inside the larger one."""
    sizes = (0.0, *attack.threat.possible(factor * attack.threat.epsilon for factor in factors))
    robust = [still_correct(setting, attack, size, limit) for size in sizes]
    count = len(robust[0])
    curve = ", ".join(f"{size:.4g}: {row.mean():.1%}" for size, row in zip(sizes, robust, strict=True))
    rises = [statistics.paired_difference(after, before) for before, after in zip(robust, robust[1:], strict=False)]
    largest = max(rise for rise, _, _ in rises)
    return graded(
        "monotone",
        f"Accuracy by epsilon over {count} {setting.examples}: {curve}.",
        "The attack fails at the larger epsilon: give it more steps and restarts, and look for masked gradients.",
        verdict("monotone, certain rise", max(low for _, low, _ in rises)),
        verdict("monotone, rise", largest, round(largest * count)),
    )


def check_repredict(setting: Setting, attack: Attack, limit: int) -> Finding:
    """Check that the saved adversarial images lie in the threat set and are misclassified when predicted again."""
    positions, result = attack_result(setting, attack, limit)
    images, threat = np.asarray(result.adversarial), attack.threat
    fooled = ~are_correct(setting.predict(images), setting.labels[positions])
    differ = int(np.sum(fooled != np.asarray(result.success)))
    inside = np.asarray(threat.contains(tf.constant(setting.images[positions]), tf.constant(images)))
    outside = int(np.sum(~inside))
    return graded(
        "repredict",
        f"Of {len(images)} saved {setting.examples}, {differ} have another prediction than the attack reported and "
        f"{outside} lie outside the threat set; {np.mean(fooled):.1%} are misclassified.",
        f"Compute the accuracy by predicting the saved {setting.examples}, not from the attack's own report.",
        verdict("repredict, other prediction", differ / len(images)),
        verdict("repredict, outside", outside / len(images)),
    )


def check_rounding(setting: Setting, attack: Attack, limit: int) -> Finding:
    """Check that the saved adversarial images are still misclassified as 8-bit images."""
    positions, result = attack_result(setting, attack, limit)
    images, labels = np.asarray(result.adversarial), setting.labels[positions]
    caused = setting.clean_correct[positions] & ~are_correct(setting.predict(images), labels)
    if not caused.any():
        return Finding("rounding", "pass", "The attack caused no misclassification, so nothing was rounded.")
    rounded = np.round(images[caused] * 255) / np.float32(255)
    remaining = float(np.mean(~are_correct(setting.predict(rounded), labels[caused])))
    return graded(
        "rounding",
        f"Of {caused.sum()} adversarial {setting.examples}, {remaining:.1%} are still misclassified when rounded to 8 "
        "bits.",
        f"On 8-bit {setting.examples} the model is more robust than these numbers, or it masks gradients between gray "
        "levels: attack in uint8.",
        verdict("rounding", 1 - remaining),
    )


def check_surrogate(setting: Setting, attack: Attack, limit: int) -> Finding | None:
    """Check that an attack succeeds on the same images with the surrogate's gradients; None without a surrogate.

    Where only the model's own gradients succeed, robustness to transfer attacks says nothing about the model. Where
    only those of the surrogate do, the model's own are masked.
    """
    surrogate = setting.predictor.surrogate
    if surrogate is None or attack.members or not attack.needs_gradient:
        return None
    positions, result = attack_result(setting, attack, limit)
    direct, transferred = ~np.asarray(result.success), ~search(setting, Transfer(attack), positions).success
    apart = [int(np.sum(robust & ~elsewhere)) for robust, elsewhere in ((transferred, direct), (direct, transferred))]
    shares = [count / len(positions) for count in apart]
    masked = (
        "the surrogate's gradients are masked, or it is another model" if apart[0] > apart[1] else "its own are masked"
    )
    return graded(
        "surrogate",
        f"{attack.name} leaves {direct.mean():.1%} of {len(positions)} {setting.examples} with the model's gradients, "
        f"and {transferred.mean():.1%} with those of {surrogate.name}. Only the first succeed on {shares[0]:.1%}, only "
        f"the second on {shares[1]:.1%}.",
        f"Use the accuracy that all attacks together leave (gin/eval/litert.gin): {masked}.",
        verdict("surrogate", max(shares), max(apart)),
    )
