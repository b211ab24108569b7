"""Adversarial views and the two robust objectives that several methods share."""

import tensorflow as tf

from tfrobust.attacks.shared import modes
from tfrobust.losses import classification, robust
from tfrobust.methods.shared.method import Method
from tfrobust.ops import randomness
from tfrobust.structs import Batch, Context

ROBUST_TERMS = {"adversarial_training": ("ce", "ce_adv"), "trades": ("ce", "kl")}
INNER_OBJECTIVES = {"adversarial_training": "cross_entropy", "trades": "kl"}


def adversarial_views(method: Method, adversary, batch: Batch, context: Context) -> dict:
    """Return images and adversarial examples generated against a method's own predictions.

    Args:
        method: the method that is attacked.
        adversary: generates the examples: its `perturb(predict, images, labels, key)` is called, with a ramp also with
            `step=`.
        batch: the batch.
        context: key, step and rows of this step.

    Returns:
        `images` and `adversarial`, float32 [b, h, w, c].
    """

    def predict(images, training):
        with modes.following_precision(method.encoder, method.head):
            return method.propagate(images, training=training)[1]

    # The attack cannot check the layers itself, because it only gets a function.
    for part in (method.encoder, method.head):
        modes.check_mode(adversary.mode, part)
    key = randomness.fold(context.key, "adversary")
    ramped = {} if getattr(adversary, "ramp", None) is None else {"step": context.step}
    adversarial = adversary.perturb(predict, batch.images, batch.labels, key, **ramped)
    return {"images": batch.images, "adversarial": adversarial}


def robust_terms(objective: str, clean_logits: tf.Tensor, adversarial_logits: tf.Tensor, labels: tf.Tensor) -> dict:
    """Compute the terms of adversarial training or of TRADES for each example.

    Args:
        objective: "adversarial_training": `ce` and `ce_adv` (Bui et al. 2021, eq. 4). "trades": `ce` and `kl`.
        clean_logits: float [b, k].
        adversarial_logits: float [b, k].
        labels: int32 [b], or target distributions [b, k].

    Returns:
        A dict from term to float32 [b].
    """
    terms = {"ce": classification.cross_entropy(clean_logits, labels)}
    if objective == "trades":
        return {**terms, "kl": robust.trades_kl(clean_logits, adversarial_logits)}
    return {**terms, "ce_adv": classification.cross_entropy(adversarial_logits, labels)}
