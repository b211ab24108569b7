"""Probabilities where logits are wanted: how answers look, and the logits behind them."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

# Of float32 without what float16 and bfloat16 keep: the bits that are 0 in all answers of a 16 bit model.
_BEYOND_16_BITS = 0x1FFF
# How far sums of rows of probabilities are from 1: 16 bit softmaxes of 2 to 1000 classes miss it by up to 0.006.
_ROUNDING, _ROUNDING_16_BITS = 1e-3, 1e-2
# A row that reaches from one end of [0, 1] to the other, and how many make a bound of both.
_FROM_END_TO_END, _ENOUGH_ROWS = 0.98, 3
# What is put in place of 0: for p, and for 1 - p half of what lies between 1 and the next smaller float32.
_SMALLEST_PROBABILITY, _SMALLEST_COMPLEMENT = 1e-30, 2.0**-25


def kind_of_answers(answers: np.ndarray) -> str:
    """What a model answers with, seen from its answers to some images.

    Args:
        answers: float [n, k].

    Returns:
        "softmax": all are in [0, 1], and each row sums to 1 up to rounding. "sigmoid": all are in [0, 1], and at
        least three rows reach from one end to the other. "unclear": all are in [0, 1], and no more is known.
        "logits" otherwise.
    """
    answers = np.asarray(answers)
    if not np.all((answers >= 0) & (answers <= 1 + _ROUNDING)):
        return "logits"
    coarse = not np.any(answers.astype(np.float32).view(np.uint32) & _BEYOND_16_BITS)
    if np.all(np.abs(answers.sum(axis=-1) - 1) < (_ROUNDING_16_BITS if coarse else _ROUNDING)):
        return "softmax"
    # The small logits of an untrained or strongly regularised model may all lie in [0, 1], and those that end with a
    # ReLU stop at 0. But nothing stops them at 1: that several come within 0.02 of it, in rows that also go down to
    # 0, while none of all goes beyond, takes a bound. Sigmoids that keep away from the ends look like small logits.
    reaching = np.sum(answers.max(axis=-1) - answers.min(axis=-1) > _FROM_END_TO_END)
    return "sigmoid" if reaching >= _ENOUGH_ROWS else "unclear"


def log_probabilities(probabilities: Callable, images) -> tf.Tensor:
    """log(p) float32 [b, k] of a softmax: its logits up to a constant per image."""
    return tf.math.log(tf.maximum(tf.cast(probabilities(images), tf.float32), _SMALLEST_PROBABILITY))


def log_odds(probabilities: Callable, images) -> tf.Tensor:
    """log(p / (1 - p)) float32 [b, k] of sigmoids: their logits."""
    p = tf.cast(probabilities(images), tf.float32)
    odds = tf.math.log(tf.maximum(p, _SMALLEST_PROBABILITY)) - tf.math.log(tf.maximum(1.0 - p, _SMALLEST_COMPLEMENT))
    # Of probabilities 0. A model that goes beyond [0, 1] elsewhere was none, but its largest answer stays the largest.
    return odds + (p - tf.clip_by_value(p, 0.0, 1.0))


# What turns answers of a kind into logits.
INVERSES = {"softmax": log_probabilities, "sigmoid": log_odds}
