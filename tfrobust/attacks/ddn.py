"""The decoupled direction and norm attack (DDN): a gradient step, then a perturbation of a given length."""

from typing import ClassVar

import keras
import tensorflow as tf

from tfrobust.attacks.shared import checks, objectives
from tfrobust.attacks.shared.minimal_norm import MinimalNorm
from tfrobust.attacks.shared.threat import ThreatModel, required_threat
from tfrobust.ops import norms, randomness
from tfrobust.ops.gradients import finite
from tfrobust.ops.shapes import by_example, select, shape_of

# The length of the last step, as a share of the pixels' range.
_LAST_STEP = 0.01


@keras.saving.register_keras_serializable(package="tfrobust")
class DDN(MinimalNorm):
    """DDN: climbs the cross-entropy, and gives the perturbation a length r of its own (L2 only).

    With g the gradient of the label's cross-entropy at x (targeted: of minus the target's):

        d <- x - x_0 + a g / |g|_2
        r <- r (1 - c) if x is misclassified, r (1 + c) if it is not
        x <- clip(x_0 + r d / |d|_2)

    r is at most the distance of the farthest corner of the pixel box; a falls by a cosine. Where g is 0, a random
    direction takes its place. The result is the nearest misclassified point met. Any wrong class counts; where no
    misclassified point was met, the search has failed and reports so.

    One step is one forward and backward pass; the first is that of the image. The authors' code also rounds each point
    to 256 levels; here `evaluate` rounds the points of models whose inputs are integers, and of no others.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: 10.0 * (images[:, 0, 0] - 0.5)  # two classes: which of two channels is brighter
        >>> images = np.array([0.75, 0.25], "float32").reshape(1, 1, 1, 2)
        >>> attack = robust.attacks.DDN(robust.attacks.ThreatModel(norm="l2", epsilon=0.5))
        >>> robust.attacks.run_attack(attack, predict, images, np.array([0])).distance.round(2)
        array([0.35], dtype=float32)

    Args:
        threat: the norm, 'l2', and the pixel box; epsilon does not influence the search.
        steps: number of passes, >= 1.
        radius_change: c, in (0, 1).
        first_radius: r before the first step, > 0, in units of the pixels' range.

    Raises:
        ValueError: a value out of its range.

    Source:
        Rony et al. 2019, https://arxiv.org/abs/1811.09600, algorithm 1.
    """

    name = "ddn"
    norms: ClassVar[tuple[str, ...]] = ("l2",)

    def __init__(
        self,
        threat: ThreatModel | None = None,
        *,
        steps: int = 100,
        radius_change: float = 0.05,
        first_radius: float = 1.0,
    ):
        self.threat = required_threat(threat, type(self).__name__)
        self.steps = steps
        self.radius_change = radius_change
        self.first_radius = first_radius
        checks.check_counts(self, "steps")
        checks.check_share(self, "radius_change")
        checks.check_positive(self, "first_radius")

    def _start(self, inputs, goal, keys):
        low, high = self.threat.bounds
        noise = randomness.draw(randomness.normal(), randomness.fold(keys, "start"), shape_of(inputs))
        radius = tf.fill(tf.shape(goal.labels), self.first_radius * (high - low))
        return {"radius": radius, "noise": norms.unit_steepest(noise, "l2")}

    def _height(self, goal, logits):
        return goal.cross_entropy(objectives.in_range(logits))

    def _move(self, inputs, state, reached, height, gradient):
        low, high = self.threat.bounds
        uphill = norms.unit_steepest(finite(gradient), "l2")
        uphill = select(norms.norm(uphill, "l2") > 0, uphill, state["noise"])
        length = (high - low) * (_LAST_STEP + (1 - _LAST_STEP) * self._cosine(state))
        direction = norms.unit_steepest(state["trial"] - inputs + by_example(length, inputs) * uphill, "l2")
        farthest = norms.norm(tf.maximum(inputs - low, high - inputs), "l2")
        factor = tf.where(reached, 1 - self.radius_change, 1 + self.radius_change)
        radius = tf.minimum(factor * state["radius"], farthest)
        return {"trial": tf.clip_by_value(inputs + by_example(radius, inputs) * direction, low, high), "radius": radius}
