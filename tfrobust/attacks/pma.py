"""The probability-margin attack (PMA): sign steps of a cosine schedule, on losses of probabilities in two stages."""

import math

import keras
import tensorflow as tf

from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.common.settings import require_least


@keras.saving.register_keras_serializable(package="tfrobust")
class PMA(PGD):
    """Probability-margin attack: PGD that begins with one probability and ends with the margin of probabilities.

    With p the softmax, y the label, j the largest other class, and K steps, step i ascends

        i = 0                 p_y, which leaves the random start
        0 < i < K / 2         -p_y in even rounds, p_j in odd ones
        K / 2 <= i            p_j - p_y

    by 2 epsilon (1 + cos(pi t)) / 2 in the steepest direction, where t runs from 0 to 1 in each half. The losses are
    divided by p_j or 1 - p_y, which changes no direction: the gradients of confident models would vanish in rounding.

    In training (`perturb`) it is PGD with this step size.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: 10.0 * (images[:, 0, 0] - 0.5)  # two classes: which of two channels is brighter
        >>> images = np.array([[0.6, 0.4], [1.0, 0.0]], "float32").reshape(2, 1, 1, 2)
        >>> attack = robust.attacks.PMA(robust.attacks.ThreatModel(epsilon=0.2), steps=6)
        >>> robust.attacks.run_attack(attack, predict, images, np.array([0, 0])).success.tolist()
        [True, False]

    Args:
        threat: the threat model, with its radius.
        steps: gradient steps per restart, >= 3, since the last step of each half has length 0.
        restarts: runs from new random starts, for the remaining examples, >= 1.

    Raises:
        ValueError: a value out of its range.

    Source:
        Xie et al. 2025, https://arxiv.org/abs/2411.15210; other norms step along their own steepest direction.
    """

    name = "pma"
    objective = "probability_margin"  # for the report

    def __init__(self, threat: ThreatModel | None = None, *, steps: int = 100, restarts: int = 2):
        super().__init__(threat, steps=steps, restarts=restarts)
        require_least(steps, "PMA.steps", 3)

    @property
    def resolved_step_size(self) -> float:
        """The largest step, with which each half begins."""
        return 2.0 * self.threat.epsilon

    @property
    def change(self) -> int:
        """The first step of the second half."""
        return self.steps // 2

    def _memory(self, inputs):
        return {"step": tf.zeros([tf.shape(inputs)[0]], tf.int32)}

    def _steer(self, gradient, memory):
        return gradient, {"step": tf.ensure_shape(memory["step"] + 1, memory["step"].shape)}

    def _step_length(self, memory):
        # i - 1 of step i, which `_steer` has counted already.
        before = tf.cast(memory["step"] - 2, tf.float32)
        share = (before - tf.where(before < self.change - 1, 0.0, float(self.change))) / (self.steps - self.change)
        return self.threat.epsilon * (1.0 + tf.cos(math.pi * share))

    def _values(self, logits, goal, rounds, memory):
        pull = self._pull(logits, goal.labels if goal.targets is None else goal.targets, rounds, memory["step"])
        values = tf.reduce_sum(tf.stop_gradient(pull) * logits, axis=-1)
        return values if goal.targets is None else -values

    def _pull(self, logits, labels, rounds, step):
        """Return the gradient of each example's loss in its logits, up to a factor: float32 [b, k].

        With q the softmax over the other classes, p_k = (1 - p_y) q_k, and no difference of nearly equal numbers is
        left in the gradients.
        """
        count = logits.shape[-1]
        label = tf.one_hot(labels, count)
        rival_logits = tf.where(label > 0, logits.dtype.min, logits)
        rival = tf.one_hot(tf.argmax(rival_logits, axis=-1), count)
        p, q = tf.nn.softmax(logits), tf.nn.softmax(rival_logits)
        p_label, p_rival, q_rival = (
            tf.reduce_sum(a * b, -1, keepdims=True) for a, b in ((p, label), (p, rival), (q, rival))
        )
        margin = q * (p_label - p_rival) + q_rival * rival - p_label * (1.0 + q_rival) * label
        early = tf.where((rounds % 2 == 0)[:, None], q - label, rival - p)
        step = step[:, None]
        return tf.where(step >= self.change, margin, tf.where(step > 0, early, label - q))
