"""Proximal operators of the norms of perturbations.

Everything is per example: the first axis counts examples, all others together are one vector.
"""

import tensorflow as tf

from tfrobust.ops import norms
from tfrobust.ops.shapes import by_example


def proximal(difference: tf.Tensor, kind: str, strength) -> tf.Tensor:
    """Compute prox_{T |.|}(s) = argmin over v of |v - s|_2^2 / 2 + T |v|, for each example.

        L2:   s max(0, 1 - T / |s|_2)
        L1:   sign(s_j) max(0, |s_j| - T)
        Linf: s - T P(s / T), P the projection onto the L1 ball of radius 1 (Moreau); 0 where |s|_1 <= T
        L0:   s_j where |s_j| > sqrt(2 T), else 0

    Args:
        difference: float [b, ...], s.
        kind: 'linf', 'l2', 'l1' or 'l0'.
        strength: T > 0: a number, or float [b].

    Returns:
        Like difference.

    Raises:
        ValueError: unknown kind.

    Source:
        Parikh & Boyd 2014, Proximal algorithms, sections 6.5 and 7.1. The code of Pooladian et al. 2020
        (https://arxiv.org/abs/1908.01667) differs in three cases: its L1 keeps sign(s_j) instead of shrinking, its L0
        cuts at sqrt(2) T, and its Linf pushes s with |s|_1 < T out to a sphere instead of returning 0.
    """
    norms.check_kind(kind, norms.ALL_KINDS)
    strength = tf.cast(strength, difference.dtype)
    if strength.shape.rank:
        strength = by_example(strength, difference)
    magnitude = tf.abs(difference)
    if kind == "l0":
        return tf.where(tf.square(magnitude) > 2.0 * strength, difference, tf.zeros_like(difference))
    if kind == "l1":
        return tf.sign(difference) * tf.maximum(magnitude - strength, 0.0)
    if kind == "linf":
        return difference - strength * norms.project_ball(difference / strength, "l1", 1.0)
    length = by_example(norms.norm(difference, "l2"), difference)
    return difference * tf.maximum(1.0 - tf.math.divide_no_nan(strength, length), 0.0)
