"""HopSkipJump: the nearest misclassified point of a model that returns labels alone.

A step moves along the boundary between right and wrong predictions, from a misclassified point x_t next to it:

    _direction       B_t noisy copies of x_t: the mean of the noise, + where misclassified and - where not, points away
                     from the boundary
    _jump            a move in this direction, halved until its end is misclassified
    _to_boundary     bisection of the way from the image to that end: the next point
"""

import math
from typing import ClassVar

import keras
import tensorflow as tf

from tfrobust.attacks.shared import checks
from tfrobust.attacks.shared.minimal_norm import MinimalNorm
from tfrobust.attacks.shared.threat import ThreatModel, required_threat
from tfrobust.errors import InputError
from tfrobust.ops import hashing, norms
from tfrobust.ops.shapes import by_example, select

# Of the pixels' range: the noise before the first step, and the least noise of a value, which float32 resolves.
_FIRST_NOISE = 0.1
_LEAST_NOISE = 1e-6
# More halvings of an interval do not change a float32.
_MOST_HALVINGS = 24


@keras.saving.register_keras_serializable(package="tfrobust")
class HopSkipJump(MinimalNorm):
    """HopSkipJump: a decision-based attack, which uses only whether a point is misclassified (L2 and Linf).

    With s = +-1 the answer at x_t + d u, misclassified or not, for B_t = min(B_0 sqrt(t + 1), B_max) random directions
    u of length 1, and d = gamma |x_t - x_0| / n for n values (0.1 of the pixels' range at first):

        v = sum (s - mean s) u, in L2 of length 1, in Linf its signs
        x_{t+1} = the boundary between x_0 and clip(x_t + a v)

    a starts at |x_t - x_0| / sqrt(t + 1) and is halved until the point is misclassified. The boundary is found by
    bisection: in L2 on the line to x_0, in Linf by shrinking the ball onto which the point is projected, up to gamma /
    n^1.5 and gamma / n^2 of the way. The search starts from the inverted image or from noise, whichever is
    misclassified first. The result is the nearest misclassified point met; where the start finds none, the search has
    failed and reports so.

    Each answer is one forward pass (a query), which the settings of a measurement count as `forward_passes`; there are
    no backward passes.

    Differences from Foolbox 3.3.4: it starts from a blend of the image with noise; its noise has no lower bound, and
    vanishes in float32 for photographs.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> label = lambda images: np.argmin(np.asarray(images)[:, 0, 0], axis=-1)  # the darker of two channels
        >>> one_hot = lambda images: np.eye(2, dtype="float32")[label(images)]
        >>> images = np.array([0.25, 0.75], "float32").reshape(1, 1, 1, 2)
        >>> attack = robust.attacks.HopSkipJump(robust.attacks.ThreatModel(norm="linf", epsilon=0.5))
        >>> robust.attacks.run_attack(attack, one_hot, images, np.array([0])).distance.round(2)
        array([0.25], dtype=float32)

    Args:
        threat: the norm, 'l2' or 'linf', and the pixel box; epsilon does not influence the search.
        steps: number of steps, >= 1.
        first_samples: B_0, >= 1.
        most_samples: B_max, >= first_samples.
        gamma: > 0, of the noise and of the ends of the bisections.
        tries: number of points that the start tries, >= 1.

    Raises:
        ValueError: a value out of its range.

    Source:
        Chen, Jordan & Wainwright 2020, https://arxiv.org/abs/1904.02144, algorithm 2.
    """

    name = "hop_skip_jump"
    needs_gradient = False
    norms: ClassVar[tuple[str, ...]] = ("linf", "l2")

    def __init__(
        self,
        threat: ThreatModel | None = None,
        *,
        steps: int = 32,
        first_samples: int = 100,
        most_samples: int = 10_000,
        gamma: float = 1.0,
        tries: int = 100,
    ):
        self.threat = required_threat(threat, type(self).__name__)
        self.steps = steps
        self.first_samples = first_samples
        self.most_samples = most_samples
        self.gamma = gamma
        self.tries = tries
        checks.check_counts(self, "steps", "first_samples", "most_samples", "tries")
        checks.check_positive(self, "gamma")
        if most_samples < first_samples:
            raise InputError(f"HopSkipJump.most_samples is {most_samples}; it is at least first_samples.")

    def round_passes(self, class_count: int) -> tuple[int, int]:
        """Return the largest number of queries, for images of any size, and no backward passes."""
        samples = [int(self.first_samples * math.sqrt(step + 1)) for step in range(self.steps)]
        in_steps = sum(min(count, self.most_samples) + 2 * _MOST_HALVINGS for count in samples)
        return self.tries + _MOST_HALVINGS + in_steps, 0

    def start(self, predict, inputs, goal, keys, rounds):
        """Find a first misclassified point and the boundary before it; see `Attack.start`."""
        state = super().start(predict, inputs, goal, keys, rounds) | {"key": keys}

        def unsuccessful(number, point, reached):
            return (number < self.tries) & ~tf.reduce_all(reached)

        def draw(number, point, reached):
            tried = self._first_point(inputs, keys, number)
            fresh = goal.reached(predict(tried)) & ~reached
            return number + 1, tf.ensure_shape(select(fresh, tried, point), inputs.shape), reached | fresh

        loop = (tf.constant(0), tf.identity(inputs), state["found"])
        _, point, reached = tf.while_loop(unsuccessful, draw, loop, parallel_iterations=1)
        point = self._to_boundary(predict, inputs, goal, point)
        distance = tf.where(reached, self.threat.distance(inputs, point), float("inf"))
        return state | {"trial": point, "best": select(reached, point, inputs), "distance": distance}

    def advance(self, predict, inputs, goal, rounds, state, count):
        """Take `count` steps; see `Attack.advance`."""

        def body(step, old):
            distance = self.threat.distance(inputs, old["trial"])
            direction = self._direction(predict, inputs, goal, old, distance)
            point = self._jump(predict, goal, old, direction, distance)
            point = self._to_boundary(predict, inputs, goal, point)
            point = select(tf.math.is_finite(old["distance"]), point, old["trial"])
            distance = self.threat.distance(inputs, point)
            # A stochastic model may misclassify the clean input, which was verified before.
            nearer = (0 < distance) & (distance < old["distance"])
            new = {
                **old,
                "trial": tf.ensure_shape(point, inputs.shape),
                "best": tf.ensure_shape(select(nearer, point, old["best"]), inputs.shape),
                "distance": tf.where(nearer, distance, old["distance"]),
                "passes": old["passes"] + 1,
            }
            return step + 1, new

        _, state = tf.while_loop(lambda step, _: step < count, body, (tf.constant(0), state), parallel_iterations=1)
        return state

    def _start(self, inputs, goal, keys):
        return {}

    def _first_point(self, inputs, keys, number):
        """Return the start's try of a number: the inverted image, then in turns uniform noise and its ends."""
        low, high = self.threat.bounds
        draws = hashing.uniform(self._keys(keys, tf.fill([tf.shape(keys)[0]], number), "start"), inputs.shape[1:], "")
        ends = tf.where(number % 2 == 1, draws, tf.round(draws))
        return tf.where(number == 0, high + low - inputs, low + (high - low) * ends)

    def _keys(self, keys, steps, purpose):
        """Return a key int32 [b, 2] of each example for a step int32 [b]."""
        return tf.bitcast(hashing.random_bits(keys, steps, 2, purpose), tf.int32)

    def _direction(self, predict, inputs, goal, state, distance):
        """Return the direction away from the boundary at `trial`, float32 [b, ...]."""
        low, high = self.threat.bounds
        size, point = inputs.shape[1:].num_elements(), state["trial"]
        noise = tf.maximum(distance * self.gamma / size, _LEAST_NOISE * math.sqrt(size) * (high - low))
        noise = by_example(tf.where(state["passes"] == 0, _FIRST_NOISE * (high - low), noise), inputs)
        count = tf.cast(self.first_samples * tf.sqrt(tf.cast(state["passes"] + 1, tf.float32)), tf.int32)
        count = tf.minimum(count, self.most_samples)

        def sample(number, signed, plain, signs):
            keys = self._keys(state["key"], state["passes"] * self.most_samples + number, "direction")
            if self.threat.norm == "l2":
                draw = hashing.normal(keys, inputs.shape[1:], "")
            else:
                draw = hashing.uniform(keys, inputs.shape[1:], "", -1.0, 1.0)
            tried = tf.clip_by_value(point + noise * norms.unit_steepest(draw, "l2"), low, high)
            sign = tf.where(goal.reached(predict(tried)), 1.0, -1.0)
            # Examples at an earlier step take fewer samples.
            sign = tf.where(number < count, sign, 0.0)
            moved = (tried - point) / noise
            plain += by_example(tf.abs(sign), inputs) * moved
            return number + 1, signed + by_example(sign, inputs) * moved, plain, signs + sign

        zeros = tf.zeros_like(point)
        loop = (tf.constant(0), zeros, zeros, tf.zeros_like(distance))
        _, signed, plain, signs = tf.while_loop(
            lambda number, *_: number < tf.reduce_max(count), sample, loop, parallel_iterations=1
        )
        mean = signs / tf.cast(count, tf.float32)
        mean = tf.where(tf.abs(mean) < 1.0, mean, 0.0)
        direction = norms.unit_steepest(signed - by_example(mean, inputs) * plain, "l2")
        return direction if self.threat.norm == "l2" else tf.sign(direction)

    def _jump(self, predict, goal, state, direction, distance):
        """Return the misclassified point that the longest halved move reaches, or `trial` if none does."""
        point = state["trial"]

        def halve(number, length, end, reached):
            tried = tf.clip_by_value(point + by_example(length, point) * direction, *self.threat.bounds)
            fresh = goal.reached(predict(tried)) & ~reached
            return number + 1, 0.5 * length, tf.ensure_shape(select(fresh, tried, end), point.shape), reached | fresh

        length = distance / tf.sqrt(tf.cast(state["passes"] + 1, tf.float32))
        # Where the start has found nothing, there is nothing to reach.
        loop = (tf.constant(0), length, tf.identity(point), ~tf.math.is_finite(state["distance"]))
        _, _, end, _ = tf.while_loop(
            lambda number, _length, _end, reached: (number < _MOST_HALVINGS) & ~tf.reduce_all(reached),
            halve,
            loop,
            parallel_iterations=1,
        )
        return end

    def _to_boundary(self, predict, inputs, goal, point):
        """Return the misclassified point next to the boundary between the inputs and a misclassified point."""
        size = inputs.shape[1:].num_elements()
        exponent = 1.5 if self.threat.norm == "l2" else 2.0
        halvings = min(max(math.ceil(math.log2(size**exponent / self.gamma)), 1), _MOST_HALVINGS)
        scale = self.threat.distance(inputs, point)
        scale = scale if self.threat.norm == "linf" else tf.ones_like(scale)

        def halve(number, low, high):
            middle = 0.5 * (low + high)
            reached = goal.reached(predict(self._between(inputs, point, middle)))
            return number + 1, tf.where(reached, low, middle), tf.where(reached, middle, high)

        loop = (tf.constant(0), tf.zeros_like(scale), scale)
        _, _, share = tf.while_loop(lambda number, *_: number < halvings, halve, loop, parallel_iterations=1)
        return select(share < scale, self._between(inputs, point, share), point)

    def _between(self, inputs, point, share):
        """Return the point at a share [b] of the way in L2; in Linf its projection onto the ball of that radius."""
        if self.threat.norm == "linf":
            return inputs + norms.project_ball(point - inputs, "linf", share)
        return inputs + by_example(share, inputs) * (point - inputs)
