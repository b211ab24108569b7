"""Predicted distributions: divergence and entropy from logits, and models that return probabilities, not logits."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

# The bits of float32 beyond float16 and bfloat16: they are 0 in all outputs of a 16-bit model.
_BEYOND_16_BITS = 0x1FFF
# Deviation of row sums of probabilities from 1: 16-bit softmaxes of 2 to 1000 classes are off by up to 0.006.
_ROUNDING, _ROUNDING_16_BITS = 1e-3, 1e-2
# The spread of a row that spans [0, 1], and the number of such rows that shows both bounds.
_FROM_END_TO_END, _ENOUGH_ROWS = 0.98, 3
# Replacements of 0: for p, and for 1 - p half of the gap between 1 and the next smaller float32.
_SMALLEST_PROBABILITY, _SMALLEST_COMPLEMENT = 1e-30, 2.0**-25


def kl_from_logits(p_logits: tf.Tensor, q_logits: tf.Tensor) -> tf.Tensor:
    """Compute KL(p || q) = sum_k p_k (log p_k - log q_k) per example, p = softmax(p_logits), q = softmax(q_logits).

    Args:
        p_logits: float [..., k], the reference. Gradients flow through both arguments.
        q_logits: float [..., k].

    Returns:
        float32 [...], nats, >= 0 up to rounding; summed over the classes, never divided by their number.
    """
    log_p = tf.nn.log_softmax(tf.cast(p_logits, tf.float32))
    log_q = tf.nn.log_softmax(tf.cast(q_logits, tf.float32))
    return tf.reduce_sum(tf.exp(log_p) * (log_p - log_q), axis=-1)


def entropy_from_logits(logits: tf.Tensor) -> tf.Tensor:
    """Compute the entropy -sum_k p_k log p_k of p = softmax(logits), per example.

    Args:
        logits: float [..., k]. The gradient flows through both factors.

    Returns:
        float32 [...], nats, between 0 and log(k).
    """
    log_p = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    return -tf.reduce_sum(tf.exp(log_p) * log_p, axis=-1)


def kind_of_outputs(outputs: np.ndarray) -> str:
    """Classify a model's outputs for some images as logits or probabilities.

    Args:
        outputs: float [n, k].

    Returns:
        "softmax": all are in [0, 1], and each row sums to 1 up to rounding. "sigmoid": all are in [0, 1], and at least
        three rows span the whole interval. "unclear": all are in [0, 1], and neither holds. "logits" otherwise.
    """
    outputs = np.asarray(outputs)
    if not np.all((outputs >= 0) & (outputs <= 1 + _ROUNDING)):
        return "logits"
    coarse = not np.any(outputs.astype(np.float32).view(np.uint32) & _BEYOND_16_BITS)
    if np.all(np.abs(outputs.sum(axis=-1) - 1) < (_ROUNDING_16_BITS if coarse else _ROUNDING)):
        return "softmax"
    # Small logits of an untrained or strongly regularized model may all lie in [0, 1], and logits after a ReLU end at
    # 0. But they are not bounded at 1. That several come within 0.02 of 1, in rows that also reach 0, while none
    # exceeds 1, requires a bound. Sigmoids that keep away from both ends look like small logits.
    reaching = np.sum(outputs.max(axis=-1) - outputs.min(axis=-1) > _FROM_END_TO_END)
    return "sigmoid" if reaching >= _ENOUGH_ROWS else "unclear"


def log_probabilities(probabilities: Callable, images) -> tf.Tensor:
    """Return log(p) float32 [b, k] of a softmax: its logits up to a constant per image.

    An output outside [0, 1] shows that the model returns scores that only look like probabilities elsewhere, such as
    those of a linear regression, which sum to 1 too: then they are the logits of that image.
    """
    p = tf.cast(probabilities(images), tf.float32)
    is_score = tf.reduce_any((p < -_ROUNDING) | (p > 1.0 + _ROUNDING), axis=-1, keepdims=True)
    return tf.where(is_score, p, tf.math.log(tf.maximum(p, _SMALLEST_PROBABILITY)))


def log_odds(probabilities: Callable, images) -> tf.Tensor:
    """Return log(p / (1 - p)) float32 [b, k] of sigmoids: their logits."""
    p = tf.cast(probabilities(images), tf.float32)
    odds = tf.math.log(tf.maximum(p, _SMALLEST_PROBABILITY)) - tf.math.log(tf.maximum(1.0 - p, _SMALLEST_COMPLEMENT))
    # This term is 0 for probabilities. A model with outputs outside [0, 1] elsewhere did not return probabilities, but
    # its largest output stays the largest.
    return odds + (p - tf.clip_by_value(p, 0.0, 1.0))


# What a model of two classes with one output can return in its place.
OF_ONE_OUTPUT = (
    "A model of two classes with one output returns [0, z] in place of a logit z, [1 - p, p] of a probability."
)
# Functions that convert outputs of a kind into logits.
INVERSES = {"softmax": log_probabilities, "sigmoid": log_odds}
