"""L2 and L1 balls in the pixel box, as the first operation of a network.

Position 0 holds the image, and the output of the operation the smallest box around the ball. A linear function of the
perturbation d has a bound over both, ball and box, for each multiplier m >= 0 of the norm:

    min a . d  >=  min over the box of  a . d + m / 2 (|d|^2 - r^2)       in L2
    min a . d  >=  min over the box of  a . d + m (|d| - r)               in L1

The right sides are sums over pixels, whose minima are known. They are concave in m, and the best m, at which both sides
are equal, is where the minimizer crosses the surface of the ball. A few steps lead there in L2, and bisection in L1, to
2^-30 of its largest value.
"""

from __future__ import annotations

import math

import tensorflow as tf

from tfrobust.certification.operations import BACKWARD, Box, Operation, concretize, dot

NORMS = ("l2", "l1")
# In float64, and in the search of slopes and counterexamples, in which any moves inside the ball will do.
_BISECTIONS, _SEARCH_BISECTIONS = 30, 12
# Most steps in L2, each of which is as sound a multiplier as the last, and the relative change that ends them.
_STEPS, _STEADY = 30, 2.0**-20
# Error of the product of a multiplier and a radius, relative.
_PENALTY_ERROR = 2.0**-40
# Divisors of no size: all coefficients are 0, or the radius is.
_LEAST = 2.0**-100


class NormBall(Operation):
    """The images of a ball around position 0, within the pixel box.

    Attributes:
        norm: "l2" or "l1".
        radius: > 0, in pixel units.
        bounds: (low, high) of the pixels.
    """

    elementwise = True

    def __init__(self, norm: str, radius: float, bounds: tuple[float, float]):
        super().__init__(f"{norm} ball")
        self.norm, self.radius, self.bounds = norm, radius, bounds

    def value(self, inputs, arithmetic):
        """Return the image."""
        return inputs[0]

    def box(self, boxes, arithmetic):
        """Return the smallest box around the ball."""
        center, (low, high) = boxes[0].lower, self.bounds
        return Box(tf.maximum(center - self.radius, low), tf.minimum(center + self.radius, high))

    def backward(self, coefficients, boxes, output, arithmetic, slope):
        """Bound the function over the ball; there is no input to bound it by."""
        rows, (lower, upper), center = self._flat(coefficients, boxes[0].lower)
        moves, multiplier = self._least(rows, lower, upper)
        if not arithmetic.unit:  # the value at the minimizer, whose derivative by the coefficients is the minimizer
            return [], dot(coefficients, boxes[0].lower) + tf.reduce_sum(rows * tf.stop_gradient(moves), -1)
        moves = self._minimizer(rows, multiplier, lower, upper)
        multiplier = multiplier[..., 0]
        size, budget = self._size(moves), self.radius
        if self.norm == "l2":
            size, budget, multiplier = size**2, budget**2, multiplier / 2
        bound = tf.reduce_sum(rows * (center + moves), -1) + multiplier * (size - budget)
        bound -= tf.reduce_sum(tf.abs(rows) * BACKWARD * arithmetic.unit * (tf.abs(center) + tf.abs(moves)), -1)
        bound -= _PENALTY_ERROR * multiplier * (size + budget)
        return [], tf.maximum(bound, concretize(coefficients, output, arithmetic))

    def lowest(self, coefficients: tf.Tensor, center: tf.Tensor) -> tf.Tensor:
        """Return the points of the balls around `center` where linear functions are least, both [b, ...]."""
        rows, (lower, upper), _ = self._flat(coefficients[:, None], center)
        return center + tf.reshape(self._least(rows, lower, upper)[0], tf.shape(center))

    def pulled(self, points: tf.Tensor, center: tf.Tensor) -> tf.Tensor:
        """Return points [b, ...], and those outside the ball on the way to its center, at its surface."""
        moves = tf.reshape(points - center, [tf.shape(points)[0], -1])
        share = tf.minimum(1.0, self.radius / tf.maximum(self._size(moves), _LEAST))
        return center + tf.reshape(moves * share[:, None], tf.shape(points))

    def _flat(self, coefficients: tf.Tensor, center: tf.Tensor) -> tuple:
        """Return coefficients [b or 1, s, n], the least and largest moves of each pixel, and the center, [b, 1, n]."""
        count = math.prod(center.shape[1:])
        rows = tf.reshape(coefficients, [tf.shape(coefficients)[0], tf.shape(coefficients)[1], count])
        center = tf.reshape(center, [-1, 1, count])
        low, high = self.bounds
        return rows, (tf.minimum(low - center, 0.0), tf.maximum(high - center, 0.0)), center

    def _least(self, rows: tf.Tensor, lower: tf.Tensor, upper: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the moves in ball and box that make the functions least, [b, s, n], and the multipliers, [b, s, 1]."""
        rows = tf.stop_gradient(rows)
        if self.norm == "l2":
            multiplier = self._l2_multiplier(rows, lower, upper)
            return self._minimizer(rows, multiplier, lower, upper), multiplier
        largest = tf.maximum(tf.reduce_max(tf.abs(rows), -1, keepdims=True), _LEAST) + tf.zeros_like(lower[..., :1])

        def halve(number, least, largest):
            middle = (least + largest) / 2
            outside = self._size(self._minimizer(rows, middle, lower, upper))[..., None] > self.radius
            return number + 1, tf.where(outside, middle, least), tf.where(outside, largest, middle)

        count = _SEARCH_BISECTIONS if rows.dtype == tf.float32 else _BISECTIONS
        state = (tf.constant(0), tf.zeros_like(largest), largest)
        _, least, largest = tf.while_loop(lambda number, *_: number < count, halve, state)
        # Between the minimizers of both multipliers, at the surface.
        inner, outer = (self._minimizer(rows, multiplier, lower, upper) for multiplier in (largest, least))
        sizes = (self._size(moves)[..., None] for moves in (inner, outer))
        first, second = sizes
        share = tf.clip_by_value((self.radius - first) / tf.maximum(second - first, _LEAST), 0.0, 1.0)
        return inner + share * (outer - inner), largest

    def _l2_multiplier(self, rows: tf.Tensor, lower: tf.Tensor, upper: tf.Tensor) -> tf.Tensor:
        """Return multipliers [b, s, 1] that fall until the minimizers meet the surface of the ball or fill the box.

        With the pixels that are at an end, the others have the multiplier at which their moves have the length that
        remains. It is at least the best one, at which more pixels are at an end, so that a few steps lead there.
        """
        squares, budget = tf.square(rows), self.radius**2

        def fall(number, _, multiplier):
            free_moves = -rows / tf.maximum(multiplier, _LEAST)
            moves = tf.clip_by_value(free_moves, lower, upper)
            free = tf.cast(moves == free_moves, rows.dtype)
            rest = budget - tf.reduce_sum((1 - free) * tf.square(moves), -1, keepdims=True)
            lengths = tf.reduce_sum(free * squares, -1, keepdims=True)
            smaller = tf.sqrt(lengths / tf.maximum(rest, _LEAST))
            return number + 1, multiplier, tf.minimum(multiplier, smaller)

        def falls(number, before, multiplier):
            return (number < _STEPS) & tf.reduce_any(multiplier < before * (1 - _STEADY))

        first = tf.norm(rows, axis=-1, keepdims=True) / self.radius
        first = tf.maximum(first, _LEAST) + tf.zeros_like(lower[..., :1])
        return tf.while_loop(falls, fall, (tf.constant(0), math.inf * first, first))[2]

    def _minimizer(self, rows: tf.Tensor, multiplier: tf.Tensor, lower: tf.Tensor, upper: tf.Tensor) -> tf.Tensor:
        """Return where the function with the multiplier is least in the box."""
        if self.norm == "l2":
            return tf.clip_by_value(-rows / tf.maximum(multiplier, _LEAST), lower, upper)
        end = tf.where(rows > 0, lower, upper)
        return tf.where(tf.abs(rows) > multiplier, end, 0.0)

    def _size(self, moves: tf.Tensor) -> tf.Tensor:
        """Return the norm over the last axis."""
        return tf.norm(moves, axis=-1) if self.norm == "l2" else tf.reduce_sum(tf.abs(moves), -1)
