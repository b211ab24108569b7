"""Cheap checks of whether the other numbers can be believed."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from tfrobust.attacks import objectives
from tfrobust.attacks.base import Attack
from tfrobust.evaluation import statistics
from tfrobust.evaluation.adversarial import attacked, robust_at
from tfrobust.evaluation.base import Evaluator, Outcome, Setting
from tfrobust.structs import Finding

# Shares of images above which a finding warns or fails.
_FEW, _MANY = 0.05, 0.5
_SAME = 1e-5
_ALONE = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doctor(Evaluator):
    """Findings logits, deterministic, batch_independent, gradients, monotone, repredict, selection.

    A configured attack equal to the accuracy curve's, with the same `limit`, shares its work; else the doctor
    makes three short attacks of its own.

    Attributes:
        attack: a short attack for `monotone` and `repredict`; a few steps are enough.
        factors: the sizes to compare, as multiples of its epsilon; 1 is added for `repredict`.
        limit: at most so many images, drawn by the seed.
    """

    attack: Attack
    factors: tuple[float, ...] = (0.5, 1.0, 2.0)
    limit: int = 1000

    def __post_init__(self):
        if len(self.factors) < 2 or min(self.factors) <= 0:
            raise ValueError(f"Doctor.factors is {tuple(self.factors)}; it must hold two or more positive numbers.")
        if self.limit < 1:
            raise ValueError(f"Doctor.limit is {self.limit}; it must be at least 1.")

    def run(self, setting: Setting) -> Outcome:
        gradients = check_gradients(setting)
        findings = [
            check_logits(setting),
            check_deterministic(setting),
            check_batch_independent(setting),
            gradients,
        ]
        if setting.predictor.differentiable and "cannot be had" not in gradients.evidence:
            findings += [check_monotone(setting, self.attack, tuple(sorted(self.factors)), self.limit)]
            findings += [check_repredict(setting, self.attack, self.limit)]
        return Outcome(findings=[*findings, check_selection(setting)])


def check_logits(setting: Setting) -> Finding:
    """Whether the model answers with logits; probabilities fail where rounding leaves log(p) empty."""
    if not setting.predictor.outputs_probabilities:
        return Finding("logits", "pass", "The answers are logits, not probabilities.")
    # log(p) of a probability that rounded to 0 or 1 has no gradient left.
    saturated = np.mean(setting.clean_logits.max(axis=-1) > -1e-7)
    verdict = "fail" if saturated > _FEW else "warn"
    return Finding(
        "logits",
        verdict,
        f"The answers are probabilities; log(p) is attacked instead. For {saturated:.1%} of the images p "
        "rounds to 1, which hides the gradient.",
        "Let the model answer with logits (drop the softmax), or name them with --logits_output.",
    )


def check_deterministic(setting: Setting) -> Finding:
    """Whether the same images get the same answer twice, compiled and not."""
    images = setting.images[: setting.batch_size]
    first = np.asarray(setting.predictor.compiled_logits(tf.constant(images)))
    second = np.asarray(setting.predictor.compiled_logits(tf.constant(images)))
    # A Python-side draw is frozen into the compiled function, so that only an uncompiled call shows it.
    third = np.asarray(setting.predictor.logits(tf.constant(images)))
    gap, scale = max(np.abs(first - second).max(), np.abs(first - third).max()), np.abs(first).max()
    if gap <= _SAME * max(1.0, scale):
        return Finding("deterministic", "pass", f"Equal images get equal answers (largest difference {gap:.1e}).")
    return Finding(
        "deterministic",
        "fail",
        f"Equal images get answers up to {gap:.3g} apart (largest logit {scale:.3g}): the model draws.",
        "Export it in inference mode (no dropout, no noise), or attack the expectation over its draws.",
    )


def check_batch_independent(setting: Setting) -> Finding:
    """Whether an image's answer depends on the images beside it, as with batch norm in training mode."""
    images = setting.images[: setting.batch_size]
    count = min(_ALONE, len(images))
    together = np.asarray(setting.predictor.compiled_logits(tf.constant(images)))[:count]
    alone = np.concatenate([np.asarray(setting.predictor.logits(tf.constant(images[i : i + 1]))) for i in range(count)])
    gap, scale = np.abs(together - alone).max(), np.abs(together).max()
    if gap <= 1e-3 * max(1.0, scale):
        evidence = f"{count} images get the same answers alone as in their batch (largest difference {gap:.1e})."
        return Finding("batch_independent", "pass", evidence)
    return Finding(
        "batch_independent",
        "fail",
        f"Answers move by {gap:.3g} when images stand alone: they depend on the batch.",
        "Call the model with training=False, so that batch norm uses its moving statistics.",
    )


def check_gradients(setting: Setting) -> Finding:
    """Whether the loss has finite input gradients that are not zero."""
    images, labels = setting.images[: setting.batch_size], setting.labels[: setting.batch_size]
    remedy = "Attacks along gradients overstate this model: add black-box attacks, or remove what masks them."
    try:
        gradient = _input_gradient(setting.predictor.logits, images, labels)
    except (LookupError, ValueError, tf.errors.OpError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:120]
        return Finding("gradients", "fail", f"Input gradients cannot be had: {reason}", remedy)
    if gradient is None:
        return Finding("gradients", "fail", "Input gradients cannot be had: the answer hangs on no pixel.", remedy)
    rows = gradient.reshape(len(gradient), -1)
    broken = np.mean(~np.all(np.isfinite(rows), axis=1))
    zero = np.mean(np.all(rows == 0, axis=1))
    evidence = f"Of {len(rows)} images {zero:.1%} have a gradient of exactly 0 and {broken:.1%} a non-finite one."
    if broken > 0 or zero > _MANY:
        return Finding("gradients", "fail", evidence, remedy)
    return Finding("gradients", "warn", evidence, remedy) if zero > _FEW else Finding("gradients", "pass", evidence)


def check_monotone(setting: Setting, attack: Attack, factors: tuple[float, ...], limit: int) -> Finding:
    """Whether a larger budget never leaves more accuracy: the smaller ball lies inside the larger."""
    sizes = (0.0, *(factor * attack.threat.epsilon for factor in factors))
    robust = [robust_at(setting, attack, size, limit) for size in sizes]
    curve = ", ".join(f"{size:.4g}: {row.mean():.1%}" for size, row in zip(sizes, robust, strict=True))
    evidence = f"Accuracy by epsilon over {len(robust[0])} images: {curve}."
    remedy = "The attack fails at the larger size: give it more steps and restarts, and look for masked gradients."
    rises = [statistics.paired_difference(after, before) for before, after in zip(robust, robust[1:], strict=False)]
    if max(low for _, low, _ in rises) > 0:
        return Finding("monotone", "fail", evidence, remedy)
    # One image may change sides by the luck of a few steps.
    if max(rise for rise, _, _ in rises) * len(robust[0]) > max(1.0, 0.01 * len(robust[0])):
        return Finding("monotone", "warn", evidence, remedy)
    return Finding("monotone", "pass", evidence)


def check_repredict(setting: Setting, attack: Attack, limit: int) -> Finding:
    """Whether the saved adversaries lie in the threat set and fool the model again when predicted anew."""
    attack = attack.with_epsilon(attack.threat.epsilon)  # as the curve has made it
    positions, result = attacked(setting, attack, limit)
    images, threat = np.asarray(result.adversarial), attack.threat
    fooled = setting.predict(images).argmax(axis=-1) != setting.labels[positions]
    differ = int(np.sum(fooled != np.asarray(result.success)))
    distance = np.asarray(threat.distance(tf.constant(setting.images[positions]), tf.constant(images)))
    low, high = threat.bounds
    outside = int(np.sum((distance > threat.epsilon * (1 + 1e-4) + 1e-6) | _out_of_box(images, low, high)))
    rounded = setting.predict(np.round(images * 255) / np.float32(255)).argmax(axis=-1) != setting.labels[positions]
    evidence = (
        f"Of {len(images)} saved images {differ} are predicted otherwise than the attack reported and {outside} "
        f"lie outside the threat set; {np.mean(fooled):.1%} fool the model, {np.mean(rounded):.1%} when rounded "
        "to 8 bits."
    )
    if differ or outside:
        verdict = "warn" if not outside and differ <= 0.01 * len(images) else "fail"
        return Finding(
            "repredict", verdict, evidence, "Judge by predicting the saved images, not by the attack's word."
        )
    return Finding("repredict", "pass", evidence)


def check_selection(setting: Setting) -> Finding:
    """Whether the published weights were chosen on anything but the test split."""
    chosen = setting.selected_on
    if chosen == "test":
        remedy = "Choose on a validation split: numbers on the split that chose are too good."
        return Finding("selection", "fail", "The weights were chosen by their test results.", remedy)
    if chosen:
        return Finding(
            "selection",
            "pass",
            f"The weights are the {chosen} ones."
            if chosen == "last"
            else f"The weights were chosen on the {chosen} split, not on test.",
        )
    return Finding(
        "selection",
        "warn",
        "It is not known on which split the weights were chosen.",
        "Ask whoever trained the model; test results chose many published ones.",
    )


def _out_of_box(images: np.ndarray, low: float, high: float) -> np.ndarray:
    rows = images.reshape(len(images), -1)
    return (rows.min(axis=1) < low) | (rows.max(axis=1) > high) | ~np.all(np.isfinite(rows), axis=1)


def _input_gradient(predict, images: np.ndarray, labels: np.ndarray) -> np.ndarray | None:
    """Gradient of the summed cross-entropy, NumPy [b, h, w, c]; None where the answer hangs on no pixel."""
    images = tf.constant(images)
    with tf.GradientTape() as tape:
        tape.watch(images)
        loss = tf.reduce_sum(objectives.cross_entropy(predict, tf.constant(labels))(images))
    gradient = tape.gradient(loss, images)
    return None if gradient is None else gradient.numpy()
