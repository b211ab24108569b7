"""The fast minimum-norm attack (FMN): a gradient step onto a ball whose radius closes in on the boundary."""

from typing import ClassVar

import keras
import tensorflow as tf

from tfrobust.attacks.shared import checks
from tfrobust.attacks.shared.minimal_norm import MinimalNorm
from tfrobust.attacks.shared.threat import ThreatModel, required_threat
from tfrobust.ops import norms
from tfrobust.ops.gradients import finite
from tfrobust.ops.shapes import by_example

# Both fall by a cosine: the length of a step to this share of the first, the change of the radius to this share of it.
_LAST_STEP = 0.01
_LAST_CHANGE = 0.001


@keras.saving.register_keras_serializable(package="tfrobust")
class FMN(MinimalNorm):
    """FMN: climbs the margin inside a ball around the image whose radius r adapts in every step.

    With m the margin by which x is misclassified, g its gradient, and b the nearest misclassified point met:

        r <- min(r (1 - c), |b - x_0|)          if x is misclassified
             r (1 + c)                          if it is not, but a misclassified point was met
             (|x - x_0| + |m| / |g|_q) (1 + c)  otherwise: beyond the distance where the linearized margin is 0
        x <- clip(x_0 + P_r(x + a g / |g|_2 - x_0))

    q is the dual norm, P_r the projection onto the ball of radius r, and r at most the distance of the farthest corner
    of the pixel box. a and c fall by a cosine. With L0 the radius is a whole number: it falls to the floor of r (1 -
    c), at least to 1, and rises to that of r (1 + c), at least by 1, from r = 1. The result is the nearest
    misclassified point met. Any wrong class counts; where no misclassified point was met, the search has failed and
    reports so.

    One step is one forward and backward pass; the first is that of the image.

    Differences from adv-lib 0.2.8, which the authors refer to: L2 perturbations shorter than r are not lengthened to
    r (a slip there); r >= 1 in L0, as in Foolbox; and the factor (1 + c) in the third line, without which the search
    approaches a plane from the wrong side for ever.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: 10.0 * (images[:, 0, 0] - 0.5)  # two classes: which of two channels is brighter
        >>> images = np.array([0.75, 0.25], "float32").reshape(1, 1, 1, 2)
        >>> attack = robust.attacks.FMN(robust.attacks.ThreatModel(norm="linf", epsilon=0.5))
        >>> robust.attacks.run_attack(attack, predict, images, np.array([0])).distance.round(2).tolist()
        [0.25]

    Args:
        threat: the norm to be minimized, and the pixel box; epsilon does not influence the search.
        steps: number of passes, >= 1.
        step_size: a > 0, the L2 length of the first step in units of the pixels' range.
        radius_change: c of the first step, in (0, 1).

    Raises:
        ValueError: a value out of its range.

    Source:
        Pintor et al. 2021, https://arxiv.org/abs/2102.12827, algorithm 1, without starting points.
    """

    name = "fmn"
    norms: ClassVar[tuple[str, ...]] = norms.ALL_KINDS
    objective = "margin"  # for the report

    def __init__(
        self,
        threat: ThreatModel | None = None,
        *,
        steps: int = 100,
        step_size: float = 1.0,
        radius_change: float = 0.05,
    ):
        self.threat = required_threat(threat, type(self).__name__)
        self.steps = steps
        self.step_size = step_size
        self.radius_change = radius_change
        checks.check_counts(self, "steps")
        checks.check_positive(self, "step_size")
        checks.check_share(self, "radius_change")

    def _start(self, inputs, goal, keys):
        first = 1.0 if self.threat.norm == "l0" else float("inf")
        return {"radius": tf.fill(tf.shape(goal.labels), first)}

    def _move(self, inputs, state, reached, height, gradient):
        low, high = self.threat.bounds
        cosine, gradient = self._cosine(state), finite(gradient)
        gradient = tf.where(tf.where(gradient > 0, state["trial"] < high, state["trial"] > low), gradient, 0.0)
        radius = self._radius(inputs, state, reached, height, gradient, cosine)
        length = self.step_size * (high - low) * (_LAST_STEP + (1 - _LAST_STEP) * cosine)
        moved = state["trial"] + by_example(length, inputs) * norms.unit_steepest(gradient, "l2")
        change = norms.project_ball(moved - inputs, self.threat.norm, radius)
        return {"trial": tf.clip_by_value(inputs + change, low, high), "radius": radius}

    def _radius(self, inputs, state, reached, height, gradient, cosine):
        """Return the radius of the next trial's ball, float32 [b]."""
        low, high = self.threat.bounds
        change = _LAST_CHANGE + (self.radius_change - _LAST_CHANGE) * cosine
        smaller, larger = state["radius"] * (1 - change), state["radius"] * (1 + change)
        farthest = norms.norm(tf.maximum(inputs - low, high - inputs), self.threat.norm)
        if self.threat.norm == "l0":
            larger = tf.maximum(state["radius"] + 1, tf.floor(larger))
            radius = tf.where(reached, tf.minimum(tf.floor(smaller), state["distance"]), larger)
            return tf.clip_by_value(radius, 1.0, tf.maximum(farthest, 1.0))
        flat = norms.dual_norm(gradient, self.threat.norm)
        away = tf.math.divide_no_nan(tf.abs(height), flat)
        boundary = (self.threat.distance(inputs, state["trial"]) + away) * (1 + change)
        met = tf.math.is_finite(state["distance"])
        radius = tf.where(reached, tf.minimum(smaller, state["distance"]), tf.where(met, larger, boundary))
        # A flat margin, or one that overflows, does not show where the boundary is.
        radius = tf.where((flat > 0) & tf.math.is_finite(radius) | met, radius, farthest)
        return tf.minimum(radius, farthest)
