"""Operations that are not affine: activations, maxima, and normalization by the statistics of a value itself."""

from __future__ import annotations

import math
from typing import NamedTuple

import tensorflow as tf

from tfrobust.certification.operations import BACKWARD, LARGEST, Arithmetic, Box, Operation, dot

# Units by which a function such as tanh may err, relative to max(1, its value); libraries state less than 8.
_FUNCTION_ERROR = 64
# Widths, relative to max(1, the ends), below which the slope of a chord would be a difference of roundings.
_NARROW = 2.0**-20
# Inputs of the functions with a minimum stay below it, so that their cubes are in range.
_LARGEST_BASE = 2.0**33


class Ordering(Operation):
    """Max pooling or sorting, whose outputs are inputs. Its backward rule is the box of its output.

    Attributes:
        function: of the values; it falls in none of them.
        windows: number of outputs that a value can become; 0: not known.
    """

    stops = True

    def __init__(self, name: str, function, windows: int = 0):
        super().__init__(name)
        self.function, self.windows = function, windows

    def box(self, boxes, arithmetic):
        """Apply the function to both ends."""
        return Box(*map(self.function, boxes[0]))


class Softmax(Operation):
    """Softmax, which has no bounds: a network may only end with it."""


class Monotone(Operation):
    """An increasing activation function. Its backward rule is the box of its output."""

    stops = True

    def __init__(self, name: str, function):
        super().__init__(name)
        self.function = function

    def box(self, boxes, arithmetic):
        """Apply the function to both ends."""
        box = Box(*map(self.function, boxes[0]))
        return box.widened(self._error(box, arithmetic))

    def _error(self, output: Box, arithmetic: Arithmetic) -> tf.Tensor:
        """Return by how much the function may err in float32."""
        return _FUNCTION_ERROR * arithmetic.unit * tf.maximum(output.magnitude, 1.0)


class Line(NamedTuple):
    """The line slope x + offset, elementwise."""

    slope: tf.Tensor
    offset: tf.Tensor


class Curve(Monotone):
    """An increasing function that is convex, or convex below 0 and concave above; its slope is at most 1.

    Attributes:
        derivative: of the function.
        convex: True if it is convex everywhere.
    """

    stops = False
    elementwise = True

    def __init__(self, name: str, function, derivative, convex: bool):
        super().__init__(name, function)
        self.derivative, self.convex = derivative, convex

    def backward(self, coefficients, boxes, output, arithmetic, slope):
        """Bound the function by two lines: tangent and chord where it is convex or concave.

        Elsewhere the lines start at the ends, with the least slope, which is that of an end.

        Source: Singh et al. 2019, https://doi.org/10.1145/3290354, section 4.3.
        """
        if slope is None:
            return super().backward(coefficients, boxes, output, arithmetic, slope)
        under, over = self.lines(boxes[0])
        positive, negative = tf.maximum(coefficients, 0.0), tf.minimum(coefficients, 0.0)
        part = positive * under.slope[:, None] + negative * over.slope[:, None]
        constant = dot(positive, under.offset) + dot(negative, over.offset)
        if arithmetic.unit:
            error = self._error(output, arithmetic) + BACKWARD * arithmetic.unit * boxes[0].magnitude
            constant -= dot(tf.abs(coefficients), error)
        return [part], constant

    def lines(self, box: Box) -> tuple[Line, Line]:
        """Return a line below the function and one above it, on a box."""
        lower, upper = box
        middle, width = (lower + upper) / 2, upper - lower
        wide = width > _NARROW * tf.maximum(box.magnitude, 1.0)
        chord = (self.function(upper) - self.function(lower)) / tf.where(wide, width, 1.0)
        least = tf.minimum(self.derivative(lower), self.derivative(upper))
        tangent = self.derivative(middle)
        convex = tf.ones_like(wide) if self.convex else upper <= 0
        concave = (lower >= 0) & ~convex
        below = tf.where(convex, tangent, tf.where(concave & wide, chord, least))
        above = tf.where(concave, tangent, tf.where(convex & wide, chord, least))
        return self._line(below, tf.where(convex, middle, lower)), self._line(above, tf.where(concave, middle, upper))

    def _line(self, slope: tf.Tensor, point: tf.Tensor) -> Line:
        """Return the line with a slope that meets the function at a point."""
        return Line(slope, self.function(point) - slope * point)


class Dip(Operation):
    """A function that falls up to a point and rises after it. Its backward rule is the box of its output.

    Attributes:
        bottom: the point, in float64.
    """

    stops = True

    def __init__(self, name: str, function, bottom: float):
        super().__init__(name)
        self.function, self.bottom = function, bottom

    def box(self, boxes, arithmetic):
        """Take the ends and, if it lies between them, the minimum."""
        first, last = map(self.function, boxes[0])
        bottom = tf.constant(self.bottom, first.dtype)
        inside = (boxes[0].lower <= bottom) & (bottom <= boxes[0].upper)
        box = Box(tf.where(inside, self.function(bottom), tf.minimum(first, last)), tf.maximum(first, last))
        scale = tf.maximum(tf.maximum(box.magnitude, boxes[0].magnitude), 1.0)
        return box.widened(_FUNCTION_ERROR * arithmetic.unit * scale)

    def in_range(self, boxes, output, arithmetic):
        """Require also inputs whose cubes are in range."""
        axes = list(range(1, output.lower.shape.rank))
        small = tf.reduce_all(boxes[0].magnitude <= _LARGEST_BASE, axes)
        return super().in_range(boxes, output, arithmetic) & small


class ReLU(Operation):
    """ReLU, or with a slope in [0, 1) below 0: leaky ReLU, and PReLU, whose slopes are a variable.

    Attributes:
        below: the slope below 0, a number or a variable that broadcasts to a value.
    """

    def __init__(self, name: str, below=0.0):
        super().__init__(name)
        self.below = below
        # Slopes that differ from place to place do not belong to all windows.
        self.elementwise = math.prod(getattr(below, "shape", ())[:-1]) == 1

    def box(self, boxes, arithmetic):
        """Apply the function to both ends."""
        below = arithmetic.read(self.below)
        box = Box(*(tf.maximum(end, below * end) for end in boxes[0]))
        return box.widened(BACKWARD * arithmetic.unit * box.magnitude) if self._leaks else box

    def in_range(self, boxes, output, arithmetic):
        """Require also slopes in [0, 1)."""
        below = arithmetic.read(self.below)
        return super().in_range(boxes, output, arithmetic) & tf.reduce_all((below >= 0) & (below < 1))

    def backward(self, coefficients, boxes, output, arithmetic, slope):
        """Bound the function by two lines: the chord from above, a line through 0 from below.

        The lower line's slope is 1 or that below 0, whichever encloses the smaller area ("adaptive"); that below 0
        ("zero"); that of the chord ("same"); or a given one, [b, 1 or s, ...], where the input may have both signs.
        """
        if slope is None:
            return super().backward(coefficients, boxes, output, arithmetic, slope)
        lower, upper = tf.minimum(boxes[0].lower, 0.0), tf.maximum(boxes[0].upper, 0.0)
        width = upper - lower
        below = arithmetic.read(self.below)
        chord = (upper - below * lower) / tf.where(width > 0, width, 1.0)
        height = upper - chord * upper
        under = self._under(boxes[0], chord, below, slope)
        part = coefficients * tf.where(coefficients > 0, under, chord[:, None])
        constant = dot(tf.minimum(coefficients, 0.0), height)
        if arithmetic.unit:
            constant -= dot(tf.abs(coefficients), BACKWARD * arithmetic.unit * boxes[0].magnitude)
        return [part], constant

    @property
    def _leaks(self) -> bool:
        return not isinstance(self.below, float) or self.below > 0

    def _under(self, box: Box, chord: tf.Tensor, below: tf.Tensor, slope: str | tf.Tensor) -> tf.Tensor:
        """Return the slope of the lower line, [b, 1 or s, ...]."""
        full = tf.ones_like(chord)
        of_sign = tf.where(box.lower >= 0, full, below)[:, None]
        if not isinstance(slope, str):
            unstable = (box.lower < 0) & (box.upper > 0)
            return tf.where(unstable[:, None], tf.clip_by_value(slope, below, 1.0), of_sign)
        if slope == "same":
            return chord[:, None]
        return of_sign if slope == "zero" else tf.where(2 * chord > 1 + below, full, below)[:, None]


class LayerNormalization(Operation):
    """Normalization over the last axis. Its backward rule is the box of its output.

    With the deviations d_i from the mean, and S_i the sum of the squares of all others, the output before scale and
    offset is

        d_i / sqrt((d_i^2 + S_i) / n + epsilon),

    which rises in d_i, and falls in S_i for d_i > 0 and rises for d_i < 0. Its range over the boxes of d_i and S_i is
    therefore at their ends. The margin for rounding covers the difference x_i - mean, computed after the scaling.

    Attributes:
        gamma: variable [n], or None.
        beta: variable [n], or None.
        epsilon: added to the variance, at least 1e-12, so that squares that underflow do not count.
    """

    stops = True

    def __init__(self, name: str, gamma, beta, epsilon: float):
        super().__init__(name)
        self.gamma, self.beta, self.epsilon = gamma, beta, epsilon

    def box(self, boxes, arithmetic):
        """Bound deviations, squares, and their quotients."""
        (box,) = boxes
        count = box.lower.shape[-1]
        growth, sizes = arithmetic.growth(count), box.magnitude
        sizes += tf.reduce_mean(sizes, -1, keepdims=True)
        deviations = self._deviations(box).widened(growth * sizes)
        least, most = self._squares(deviations)
        least_rest, most_rest = (tf.reduce_sum(squares, -1, keepdims=True) - squares for squares in (least, most))

        def quotient(value, falls):
            rest = tf.maximum(tf.where(falls, most_rest, least_rest), 0.0)
            return value * tf.math.rsqrt((tf.square(value) + rest) / count + self.epsilon)

        quotients = Box(
            quotient(deviations.lower, deviations.lower >= 0), quotient(deviations.upper, deviations.upper < 0)
        )
        steepest = tf.math.rsqrt(tf.reduce_mean(least, -1, keepdims=True) + self.epsilon)
        margin = growth * (quotients.magnitude + sizes * steepest)
        return self._scaled(quotients.widened(margin), box, arithmetic)

    def in_range(self, boxes, output, arithmetic):
        """Require squares and scaled values in range."""
        axes = list(range(1, output.lower.shape.rank))
        largest = tf.reduce_max(boxes[0].magnitude, axes)
        gamma, beta = self._parameters(arithmetic)
        scale = tf.maximum(tf.reduce_max(tf.abs(gamma)), 1.0) / math.sqrt(self.epsilon)
        squares = 4 * boxes[0].lower.shape[-1] * tf.square(largest) <= LARGEST
        parts = 4 * scale * largest + tf.reduce_max(tf.abs(beta)) <= LARGEST
        return super().in_range(boxes, output, arithmetic) & squares & parts

    def _deviations(self, box: Box) -> Box:
        """Bound x_i - mean = (1 - 1 / n) x_i - (the sum of all others) / n."""
        count = box.lower.shape[-1]
        center, radius = (box.upper + box.lower) / 2, (box.upper - box.lower) / 2
        center -= tf.reduce_mean(center, -1, keepdims=True)
        radius = tf.reduce_mean(radius, -1, keepdims=True) + (1 - 2 / count) * radius
        return Box(center - radius, center + radius)

    def _squares(self, box: Box) -> tuple[tf.Tensor, tf.Tensor]:
        nearest = tf.nn.relu(tf.maximum(box.lower, -box.upper))
        return tf.square(nearest), tf.square(box.magnitude)

    def _parameters(self, arithmetic: Arithmetic) -> tuple[tf.Tensor, tf.Tensor]:
        gamma, beta = (1.0 if self.gamma is None else self.gamma), (0.0 if self.beta is None else self.beta)
        return arithmetic.read(gamma), arithmetic.read(beta)

    def _scaled(self, quotients: Box, inputs: Box, arithmetic: Arithmetic) -> Box:
        """Return gamma quotient + beta."""
        gamma, beta = self._parameters(arithmetic)
        center = gamma * (quotients.upper + quotients.lower) / 2 + beta
        radius = tf.abs(gamma) * (quotients.upper - quotients.lower) / 2
        error = arithmetic.growth(1) * (tf.abs(gamma) * quotients.magnitude + tf.abs(beta))
        axes = list(range(1, inputs.lower.shape.rank))
        largest = tf.maximum(tf.reduce_max(inputs.magnitude, axes, keepdims=True), 1.0)
        error += arithmetic.underflow(inputs.lower.shape[-1]) * largest
        return Box(center - radius - error, center + radius + error)
