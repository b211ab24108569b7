"""Describe the fine-tuning of a run, for the advice of the doctor before and after the training."""

from __future__ import annotations

import keras
import tensorflow as tf

from tfrobust.evaluation.doctor.fine_tuning import FineTuning
from tfrobust.methods.shared.method import Method
from tfrobust.models.shared.normalization import BranchedBatchNormalization
from tfrobust.ops import keras_private
from tfrobust.runs.stage import Stage

_BATCH_NORMS = (keras.layers.BatchNormalization, BranchedBatchNormalization)


def fine_tuning(stage: Stage, first: Stage | None, origin: dict) -> FineTuning | None:
    """Describe the fine-tuning of a run; None for a training without attacks, or from random weights.

    Args:
        stage: the main stage, built.
        first: the first of two stages, or None.
        origin: facts on weights that another model gave, {} without.
    """
    method, encoder = stage.method, stage.method.encoder
    start = _origin(encoder, first, origin)
    if start is None or getattr(method, "adversary", None) is None:
        return None
    ramp = method.radius_ramp
    layers = keras_private.all_layers(encoder)
    return FineTuning(
        origin=start,
        elsewhere=first is None or bool(first.frozen),
        frozen=bool(stage.frozen) or not encoder.trainable,
        ramped=ramp is not None and float(ramp[0](tf.constant(0, tf.int64))) < 1,
        epochs=stage.epochs,
        trades="kl" in method.terms and getattr(method.adversary, "objective", None) == "kl",
        batch_normalized=any(isinstance(layer, _BATCH_NORMS) for layer in layers),
    )


def advice_lines(tuning: FineTuning | None) -> list[str]:
    """Return the lines of advice for a summary, none where there is none."""
    pairs = [] if tuning is None else tuning.advice()
    return [f"{'advice':12}{expected} {remedy}" for expected, remedy in pairs]


def _origin(encoder: keras.Model, first: Stage | None, origin: dict) -> str | None:
    """Return how the weights were trained before the main stage, None for random weights."""
    if first is not None and not first.frozen:
        return "adversarial" if trains_within_a_radius(first.method) else "plain"
    if "pretrained" in origin:
        return {True: "adversarial", False: "plain"}.get(origin["pretrained"].get("robust"), "unknown")
    return "unknown" if getattr(encoder, "origin", "") else None


def trains_within_a_radius(method: Method) -> bool:
    """Return True if a method trains on adversarial examples or on bounds."""
    return getattr(method, "adversary", None) is not None or getattr(method, "epsilon", None) is not None
