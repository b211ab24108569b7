"""What methods with adversaries share: how they are made, and the terms of the objectives they stand on."""

import tensorflow as tf

from tfrobust.attacks import modes
from tfrobust.losses import classification, robust
from tfrobust.methods.base import Method
from tfrobust.ops import randomness
from tfrobust.structs import Batch, Context

ROBUST_TERMS = {"adversarial_training": ("ce", "ce_adv"), "trades": ("ce", "kl")}


def adversarial_views(method: Method, adversary, batch: Batch, context: Context) -> dict:
    """The images and their adversaries under a method's own prediction, as views [b, h, w, c]."""

    def predict(images, training):
        return method.propagate(images, training=training)[1]

    # Here, where the layers are known: a bare function hides them from the check that the attack makes.
    for part in (method.encoder, method.head):
        modes.check_mode(adversary.mode, part)
    key = randomness.fold(context.key, "adversary")
    return {"images": batch.images, "adversarial": adversary.perturb(predict, batch.images, batch.labels, key)}


def robust_terms(objective: str, clean_logits: tf.Tensor, adversarial_logits: tf.Tensor, labels: tf.Tensor) -> dict:
    """The terms of the objective that ADV, TRADES and their extensions stand on, per example.

    Args:
        objective: "adversarial_training": `ce` and `ce_adv` (paper 003, eq. 4); "trades": `ce` and `kl`.
        clean_logits, adversarial_logits: float [b, k].
        labels: int32 [b].

    Returns:
        term -> float32 [b].
    """
    terms = {"ce": classification.cross_entropy(clean_logits, labels)}
    if objective == "trades":
        return {**terms, "kl": robust.trades_kl(clean_logits, adversarial_logits)}
    return {**terms, "ce_adv": classification.cross_entropy(adversarial_logits, labels)}
