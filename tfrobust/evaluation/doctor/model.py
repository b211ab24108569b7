"""Evaluation checks of the model alone: its outputs and its gradients."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared import objectives
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.evaluation.doctor.limits import CLOSE_TO_ONE, EXACT_SUM, EXPLODING, VANISHING, graded, verdict
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.evaluators.calibration import log_probabilities
from tfrobust.ops import randomness
from tfrobust.ops.probabilities import kind_of_outputs
from tfrobust.structs import Finding

_ALONE = 4
_PROBES = 128
# Length of the step along the gradient at which the loss is compared, as a share of epsilon.
_SMALL_STEP = 0.1


class Gradients(NamedTuple):
    """Input gradients of the cross-entropy at some clean images.

    Attributes:
        rows: float32 [m, d].
        again: the same gradients, computed a second time.
    """

    rows: np.ndarray
    again: np.ndarray


def check_logits(setting: Setting) -> Finding:
    """Check that the model returns logits: log(p) has no gradient where rounding has made p 0 or 1."""
    predictor, largest = setting.predictor, setting.clean_logits.max(axis=-1)
    if not predictor.outputs_probabilities:
        if kind_of_outputs(setting.clean_logits) == "logits":
            return Finding("logits", "pass", "The outputs are logits, not probabilities.")
        return Finding(
            "logits",
            "warn",
            f"All outputs lie in [0, 1] (the largest of each of the {setting.examples} from {largest.min():.3g} to "
            f"{largest.max():.3g}): they may be probabilities. They were treated as logits.",
            "If the model ends with sigmoids, let it return logits: attacks and calibration are wrong otherwise.",
        )
    attacked, last = ("log(p / (1 - p))", "sigmoids") if predictor.one_per_class else ("log(p)", "softmax")
    top = log_probabilities(largest[:, None], one_per_class=True) if predictor.one_per_class else largest
    total = np.exp(setting.clean_logits.astype(np.float64)).sum(axis=-1)
    if not predictor.one_per_class and top.max() < -CLOSE_TO_ONE and np.abs(total - 1).max() < EXACT_SUM:
        return Finding(
            "logits",
            "warn",
            f"The outputs are probabilities; log(p) is attacked instead, whose gradients are exact here: p is at most "
            f"{np.exp(top.max()):.6f}.",
            "Let the model return logits: where p is closer to 1, their gradients vanish.",
        )
    return Finding(
        "logits",
        "fail",
        f"The outputs are probabilities; {attacked} is attacked instead. For {np.mean(top > -1e-7):.1%} of the "
        f"{setting.examples} p rounds to 1, which leaves no gradient.",
        f"Let the model return logits (drop the {last}), or name them with --logits_output.",
    )


def check_deterministic(setting: Setting) -> Finding:
    """Check that the same images get the same output twice, compiled and not."""
    images, (first, second) = setting.images[: setting.batch_size], setting.repeated_logits
    # A random draw in Python is frozen into the compiled function, so only an uncompiled call reveals it.
    third = np.asarray(setting.predictor.logits(tf.constant(images)))
    gap, scale = max(np.abs(first - second).max(), np.abs(first - third).max()), np.abs(first).max()
    grade = verdict("deterministic", gap / max(1.0, scale))
    evidence = f"Equal {setting.examples} have equal outputs (largest difference {gap:.1e})."
    if grade != "pass":
        evidence = (
            f"Equal {setting.examples} have outputs that differ by up to {gap:.3g} (largest logit {scale:.3g}): the "
            "model is stochastic."
        )
    return graded(
        "deterministic",
        evidence,
        "Export it in inference mode (no dropout, no noise), or attack the expectation over its samples.",
        grade,
    )


def check_batch_independent(setting: Setting) -> Finding:
    """Check that an image's output does not depend on the other images in the batch, or on its position among them."""
    images = setting.images[: max(setting.batch_size, 2 * _ALONE)]
    count = min(_ALONE, len(images))
    together = np.asarray(setting.predictor.compiled_logits(tf.constant(images)))[:count]
    alone = np.concatenate([np.asarray(setting.predictor.logits(tf.constant(images[i : i + 1]))) for i in range(count)])
    gap, scale = np.abs(together - alone).max(), np.abs(together).max()
    grade = verdict("batch_independent", gap / max(1.0, scale))
    evidence = (
        f"{count} {setting.examples} have the same outputs alone as in their batch (largest difference {gap:.1e})."
    )
    if grade != "pass":
        evidence = f"Outputs change by {gap:.3g} when {setting.examples} are predicted alone: they depend on the batch."
    return graded(
        "batch_independent",
        evidence,
        "Call the model with training=False, so that batch norm uses its moving statistics and dropout drops nothing.",
        grade,
    )


def gradients(setting: Setting) -> Gradients | str:
    """Return input gradients at correctly classified images (any, if there are none), or why there are none."""
    return setting.cached("input gradients", lambda: _gradients(setting))


def check_gradients(setting: Setting) -> Finding:
    """Check that the loss has usable input gradients: finite, neither 0 nor lost in rounding."""
    computed = gradients(setting)
    if isinstance(computed, str):
        return Finding(
            "gradients",
            "fail",
            f"There are no input gradients: {computed.rstrip('.')}. White-box attacks were left out.",
            "Evaluate the model with black-box attacks (gin/eval/square.gin), and read the numbers as upper bounds.",
        )
    largest = np.abs(computed.rows).max(axis=1)
    faults = {
        "of exactly 0": np.mean(largest == 0),
        f"below {VANISHING:g}": np.mean((largest > 0) & (largest < VANISHING)),
        f"above {EXPLODING:g}": np.mean(largest > EXPLODING),
        "that is not finite": np.mean(~np.isfinite(largest)),
        "that changes when computed again": np.mean(
            np.abs(computed.rows - computed.again).max(axis=1) > 1e-3 * largest
        ),
    }
    seen = " and ".join(f"{share:.1%} have a gradient {fault}" for fault, share in faults.items() if share)
    evidence = (
        f"Of {len(largest)} {setting.examples} {seen or 'all have a gradient that is finite and not 0'}; its largest "
        f"entry is {np.median(largest):.2g} in the median."
    )
    zero, vanishing, exploding, broken, drawn = faults.values()
    remedy = "Attacks along gradients overstate this model: add black-box attacks, or remove what masks them."
    useless = verdict("gradients", max(zero + vanishing, exploding, drawn))
    return graded("gradients", evidence, remedy, useless, verdict("gradients, not finite", broken))


def check_ascent(setting: Setting, threat: ThreatModel) -> Finding | None:
    """Check that a step up the gradient increases the loss more than a step in a random direction.

    The cross-entropy a tenth of epsilon along the steepest direction is compared with that along a random direction. A
    gradient of pure noise is better for half of the images. The result is None if no image has a gradient to follow:
    `gradients` reports that.
    """
    positions = _probe_positions(setting)
    images, labels = tf.constant(setting.images[positions]), setting.labels[positions]
    gradient = tf.reshape(tf.constant(np.nan_to_num(gradients(setting).rows)), images.shape)
    key = randomness.make_key(setting.seed, "evaluation", "ascent")
    drawn = tf.random.stateless_normal(images.shape, key)
    stepped = [threat.step(images, direction, _SMALL_STEP * threat.epsilon) for direction in (gradient, drawn)]
    up, anywhere = (np.asarray(threat.project(images, point)) for point in stepped)
    followed = np.abs(up - np.asarray(images)).reshape(len(up), -1).max(axis=1) > 0
    if not followed.any():
        return None
    losses = [_cross_entropy(setting.predict(points)[followed], labels[followed]) for points in (up, anywhere)]
    won = float(np.mean(losses[0] > losses[1]))
    evidence = (
        f"A step of {_SMALL_STEP:g} epsilon up the gradient increases the loss more than a random one for "
        f"{won:.1%} of {followed.sum()} {setting.examples}."
    )
    remedy = "The gradient does not show where the loss increases: average it over noise, or add black-box attacks."
    return graded("ascent", evidence, remedy, verdict("ascent", won))


def _cross_entropy(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Compute log(sum_k exp(z_k - z_y)) in float64, which distinguishes confident outputs where float32 gives 0."""
    logits = logits.astype(np.float64)
    gaps = logits - logits[np.arange(len(labels)), labels][:, None]
    gaps[np.arange(len(labels)), labels] = -np.inf
    largest = gaps.max(axis=1)
    return np.logaddexp(0, largest + np.log(np.exp(gaps - largest[:, None]).sum(axis=1)))


def _probe_positions(setting: Setting) -> np.ndarray:
    """Return the positions of the images at which gradients are examined; int64 [m]."""
    order = setting.order("probes")  # a class-sorted split begins with images of one class
    correct = order[setting.clean_correct[order]]
    chosen = correct if len(correct) else order
    return np.sort(chosen[: min(_PROBES, setting.batch_size)])


def _gradients(setting: Setting) -> Gradients | str:
    if not setting.predictor.differentiable:
        return setting.predictor.no_gradient or f"{setting.predictor.name} has none"
    positions = _probe_positions(setting)
    return Gradients(*(_input_gradient(setting, positions) for _ in range(2)))


def _input_gradient(setting: Setting, positions: np.ndarray) -> np.ndarray:
    """Compute the gradient of the summed cross-entropy, float32 [m, d]."""
    images, labels = tf.constant(setting.images[positions]), tf.constant(setting.labels[positions])
    with tf.GradientTape() as tape:
        tape.watch(images)
        loss = tf.reduce_sum(objectives.cross_entropy(setting.predictor.logits, labels)(images))
    return tf.reshape(tape.gradient(loss, images), [len(positions), -1]).numpy()
