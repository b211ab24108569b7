"""The proximal log barrier attack: the nearest misclassified point, in any norm with a proximal operator."""

from typing import ClassVar

import keras
import tensorflow as tf

from tfrobust.attacks.shared import checks
from tfrobust.attacks.shared.minimal_norm import MinimalNorm
from tfrobust.attacks.shared.threat import ThreatModel, required_threat
from tfrobust.errors import InputError
from tfrobust.ops import norms, randomness
from tfrobust.ops.shapes import by_example, select, shape_of

# The search for a first misclassified point: so many gradient steps, each 1/16 of the pixels' range, then as many tries
# with noise. The noise grows by 1.3 per try, in total 400 times: from 1/100 of the range to every pixel at one of its
# ends. Where no try succeeds, gradient steps follow again, from the last noise.
_START_STEPS = 24
_CLIMB = 1.0 / 16.0
_NOISE_GROWTH = 1.3
# After that many, a share of 0.05 has become 6e-6, and the remaining step is not worth another pass.
_MOST_BACKTRACKS = 4
# L0: the push of values in units of the barrier's largest push and of the image's diagonal.
_SPARSE_PUSH = 32.0


@keras.saving.register_keras_serializable(package="tfrobust")
class ProxLogBarrier(MinimalNorm):
    """PLB: minimizes |x - x_0| - a log m(x), m the margin by which x is misclassified, while a decreases to 0.

    With g the gradient of m, d = m / |g|_2 the distance from the boundary, and w = sqrt(dt a) |b - x_0|_2, b the
    nearest point found so far:

        y = x + p g / |g|_2,   p = (sqrt(d^2 + 4 w^2) - d) / 2
        x' = clip(x_0 + prox_{T |.|}(y - x_0)),   T = prox_parameter w |g|_q / |g|_2

    where q is the dual norm and g is restricted to the pixels that can move. Where x' is classified correctly, x' <- x
    + backtracking (x' - x), a few times, and then x again. The result is the nearest misclassified point met. L0 pushes
    all values by a multiple of w in units of the image's diagonal, and T is chosen so that a given share fewer values
    change than in b. Any wrong class counts; where no misclassified point was met, the search has failed and reports
    so.

    One step is one forward and backward pass, also where it backtracks or searches for the first point.

    Differences from the released code, and reasons: (1) p is the proximal step of the barrier along a linear margin;
    the code's explicit dt a / d is the same far from the boundary, and unbounded at it. (2) Lengths are measured in
    units of |b - x_0|, so that one set of defaults serves all norms and sizes; the code's T = 1 returns every L2
    perturbation shorter than 1 to the image at once. (3) T decreases with a, is halved after a step that was rejected
    and doubled after one that was not. (4) The first point is found by ascending the margin, and by growing noise only
    where that fails: noise ends in more distant basins. (5) Everything is bounded: backtracking ends at x, never at
    x_0. (6) The operators are the exact ones (`ops.norms.proximal`). (7) All images count: initially misclassified ones
    with distance 0, and those for which no point was found as such.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: 10.0 * (images[:, 0, 0] - 0.5)  # two classes: which of two channels is brighter
        >>> images = np.array([0.75, 0.25], "float32").reshape(1, 1, 1, 2)
        >>> attack = robust.attacks.ProxLogBarrier(robust.attacks.ThreatModel(norm="linf", epsilon=0.5))
        >>> robust.attacks.run_attack(attack, predict, images, np.array([0])).distance.round(2).tolist()
        [0.25]

    Args:
        threat: the norm to be minimized, and the pixel box; epsilon does not influence the search.
        outer_steps: number of barrier weights, >= 1.
        inner_steps: passes with each weight, >= 1.
        step_size: dt > 0, of a step on the barrier; only dt times `barrier` matters.
        barrier: a > 0, its first weight, in units of the squared L2 distance found so far.
        barrier_decay: factor of a from one outer step to the next, in (0, 1].
        backtracking: share of a step that is kept when it led back to the right class, in (0, 1).
        prox_parameter: T relative to the largest push of the barrier, in (0, 1): near 1 the search runs close to the
            boundary. L0: share of the changed values that a step tries to restore.
        noise_scale: first standard deviation of the noise, > 0, in units of the pixels' range.

    Raises:
        ValueError: a value out of its range.

    Source:
        Pooladian et al. 2020, https://arxiv.org/abs/1908.01667, and its code APooladian/ProxLogBarrierAttack, Top-1,
        the origin of the defaults of the first five arguments; Campbell et al. 2020 uses it in L2.
    """

    name = "prox_log_barrier"
    norms: ClassVar[tuple[str, ...]] = norms.ALL_KINDS
    objective = "log_barrier"  # for the report

    def __init__(
        self,
        threat: ThreatModel | None = None,
        *,
        outer_steps: int = 30,
        inner_steps: int = 30,
        step_size: float = 0.1,
        barrier: float = 0.1,
        barrier_decay: float = 0.75,
        backtracking: float = 0.05,
        prox_parameter: float = 0.8,
        noise_scale: float = 0.01,
    ):
        self.threat = required_threat(threat, type(self).__name__)
        self.outer_steps = outer_steps
        self.inner_steps = inner_steps
        self.step_size = step_size
        self.barrier = barrier
        self.barrier_decay = barrier_decay
        self.backtracking = backtracking
        self.prox_parameter = prox_parameter
        self.noise_scale = noise_scale
        self._check()
        self.steps = 2 * _START_STEPS + outer_steps * inner_steps

    def _start(self, inputs, goal, keys):
        count = tf.zeros_like(goal.labels)
        return {
            "point": inputs,  # the last misclassified one
            "noise": randomness.draw(randomness.normal(), randomness.fold(keys, "start"), shape_of(inputs)),
            "barriers": count,  # passes since the first misclassified point
            "rejected": count,  # consecutive trials that were not misclassified
            "pull": tf.ones(tf.shape(goal.labels)),
            "inside": tf.zeros_like(goal.labels, tf.bool),
        }

    def _move(self, inputs, state, reached, height, gradient):
        trial, inside, rejected = state["trial"], state["inside"] | reached, state["rejected"]
        new = {
            **state,
            "point": select(reached, trial, state["point"]),
            "barriers": state["barriers"] + tf.cast(inside, tf.int32),
            "rejected": tf.where(reached | ~inside, 0, rejected + 1),
            "inside": inside,
        }
        factor = tf.where(rejected > 0, 1.0, tf.where(reached, 2.0, 0.5))
        new["pull"] = tf.where(inside, tf.minimum(factor * state["pull"], 1.0), 1.0)
        back = new["point"] + self.backtracking * (trial - new["point"])
        back = select(rejected < _MOST_BACKTRACKS, back, new["point"])
        outside = select(inside, back, self._search(inputs, new, gradient))
        following = select(reached, self._propose(inputs, new, height, gradient), outside)
        # Where a model overflows, the trial must not become NaN.
        new["trial"] = tf.where(tf.math.is_finite(following), following, new["point"])
        return new

    def _search(self, inputs, state, gradient):
        """Return the next try for a first misclassified point."""
        low, high = self.threat.bounds
        tries = tf.cast(state["passes"] - _START_STEPS, tf.float32)
        deviation = (high - low) * self.noise_scale * _NOISE_GROWTH**tries
        noisy = inputs + by_example(deviation, inputs) * state["noise"]
        climbed = state["trial"] + _CLIMB * (high - low) * tf.sign(gradient)
        return tf.clip_by_value(select((0 <= tries) & (tries < _START_STEPS), noisy, climbed), low, high)

    def _propose(self, inputs, state, margin, gradient):
        """Move a misclassified trial (`margin` > 0) away from the boundary, then towards the image."""
        low, high = self.threat.bounds
        trial, pull = state["trial"], self.prox_parameter * state["pull"]
        outer = tf.minimum((state["barriers"] - 1) // self.inner_steps, self.outer_steps - 1)
        weight = self.barrier_decay ** tf.cast(outer, tf.float32)
        push = tf.sqrt(self.step_size * self.barrier * weight)
        if self.threat.norm == "l0":
            diagonal = (high - low) * trial.shape[1:].num_elements() ** 0.5
            moved = trial + by_example(_SPARSE_PUSH * diagonal * push, trial) * norms.unit_steepest(gradient, "l2")
            return self._sparsest(inputs, moved, tf.floor(state["distance"] * (1.0 - pull)))
        gradient = tf.where(tf.where(gradient > 0, trial < high, trial > low), gradient, 0.0)
        direction = norms.unit_steepest(gradient, "l2")
        push *= norms.norm(state["best"] - inputs, "l2")
        length = norms.norm(gradient, "l2")
        away = tf.math.divide_no_nan(margin, length)
        moved = trial + by_example(0.5 * (tf.sqrt(away**2 + 4.0 * push**2) - away), trial) * direction
        # A flat margin has no direction to push: the norm alone pulls, until that step is rejected.
        strength = pull * push * tf.where(length > 0, norms.dual_norm(direction, self.threat.norm), 1.0)
        shrunk = norms.proximal(moved - inputs, self.threat.norm, tf.maximum(strength, 1e-30))
        return tf.clip_by_value(inputs + shrunk, low, high)

    def _sparsest(self, inputs, moved, count):
        """Return the proximal point of T |.|_0 plus the pixel box, with the T that leaves `count` [b] changes."""
        low, high = self.threat.bounds
        difference = moved - inputs
        room = tf.where(difference > 0, high - inputs, inputs - low)
        largest = norms.largest_mask(norms.distance_reduction(difference, room), tf.maximum(count, 1.0))
        return tf.where(largest, tf.clip_by_value(moved, low, high), inputs)

    def _check(self):
        checks.check_counts(self, "outer_steps", "inner_steps")
        checks.check_positive(self, "step_size", "barrier", "noise_scale")
        checks.check_share(self, "backtracking", "prox_parameter")
        if not 0 < self.barrier_decay <= 1:
            raise InputError(f"ProxLogBarrier.barrier_decay is {self.barrier_decay!r}; it is above 0 and at most 1.")
