"""The operations of a network that bounds can pass, each with its interval rule and its backward rule.

A box holds a lower and an upper bound of each value. The interval rule of an operation maps the box of its input to a
box that contains every output, also of a network that computes in floating point: an affine operation with n summands
and unit roundoff u errs, in any order of summation, by at most gamma (|L| |x| + |offset|), gamma = m u / (1 - m u) with
m = n + 32 (Higham 2002, section 3.1). The 32 cover folded normalizations, and the rounding of the bounds themselves,
which are computed in float64. Convolutions by FFT or Winograd's algorithm and TF32 are not covered.

    y = L x + o on a box with center c, radius r and largest magnitude m

    in exact arithmetic   L c + o                 +- |L| r
    in float32            the same                +- |L| r  +- gamma (|L| m + |o|)  +- underflow

      |<- gamma ->|<------- |L| r ------->|<------- |L| r ------->|<- gamma ->|
      lower                             L c + o                            upper

The margin is added to the box of each operation (`Affine.box`), since the next one begins with rounded values. Backward
(`Affine.backward`), the same margin is subtracted from the constant: for coefficients A that is |A| times it.

That holds as long as no number overflows or underflows. An operation therefore also says whether all numbers that occur
inside it stay below 2^100 (`Operation.in_range`), and bounds are wider by what subnormal numbers can lose, which
kernels set to 0.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import tensorflow as tf

# Roundings of a layer besides those of its sum: scales, offsets and folded kernels.
_FURTHER = 32
# Slack of a backward step in units: it covers the sums of a bound in float64 of up to 2^29 terms, and two roundings.
BACKWARD = 4.0
# Values beyond it are out of range: far below the largest float32, 2^128, so that also sums in another order fit.
LARGEST = 2.0**100
# Error of a product or a sum by underflow, relative to max(1, the largest value): a factor below 2^-126 counts as 0.
_UNDERFLOW = 2.0**-120


class Box(NamedTuple):
    """Bounds of a tensor.

    Attributes:
        lower: float [b, ...].
        upper: float [b, ...], at least `lower`.
    """

    lower: tf.Tensor
    upper: tf.Tensor

    @property
    def magnitude(self) -> tf.Tensor:
        """Largest absolute value inside the box, elementwise, but at least 2^-90: margins then cover underflow."""
        return tf.maximum(tf.maximum(tf.abs(self.lower), tf.abs(self.upper)), 2.0**-90)

    def widened(self, margin) -> Box:
        """Return the box with `margin` added on both sides."""
        return Box(self.lower - margin, self.upper + margin)


class Window(NamedTuple):
    """Places of a map that a value at the place i of another map depends on: stride i + start and the next size - 1.

    Attributes:
        size: by spatial axis.
        stride: by spatial axis.
        start: by spatial axis; negative where the first window begins outside the map.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    start: tuple[int, ...]

    def union(self, other: Window | None) -> Window | None:
        """Return the smallest window that contains both; None if they move by different strides."""
        if other is None or other == self:
            return self
        if other.stride != self.stride:
            return None
        start = tuple(map(min, self.start, other.start))
        ends = (
            tuple(begin + size for begin, size in zip(window.start, window.size, strict=True))
            for window in (self, other)
        )
        size = tuple(end - begin for end, begin in zip(map(max, *ends), start, strict=True))
        return Window(size, self.stride, start)

    def before(self, kernel, strides, dilation, padding) -> Window:
        """Return the window of the input of a convolution: its extent, strides, and padding before the first place."""
        extent = [(size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True)]
        return Window(
            tuple((size - 1) * step + reach for size, step, reach in zip(self.size, strides, extent, strict=True)),
            tuple(stride * step for stride, step in zip(self.stride, strides, strict=True)),
            tuple(start * step - first for start, step, first in zip(self.start, strides, padding, strict=True)),
        )


class Arithmetic(NamedTuple):
    """The arithmetic of bounds: dtype, rounding and statistics.

    Attributes:
        dtype: of the bounds.
        unit: unit roundoff u of the network, 2^-24 in float32; 0 for bounds of the network in exact arithmetic.
        statistics: (mean, variance) of a batch by operation, for batch normalization in training; others use the moving
            statistics.
    """

    dtype: tf.DType = tf.float64
    unit: float = 2.0**-24
    statistics: dict = {}

    def growth(self, summands: int) -> float:
        """Return gamma of a sum."""
        roundings = (summands + _FURTHER) * self.unit
        return roundings / (1.0 - roundings)

    def underflow(self, summands: int) -> float:
        """Return what a sum of products with values of at most 1 can lose to underflow."""
        return (summands + _FURTHER) * _UNDERFLOW if self.unit else 0.0

    def read(self, values) -> tf.Tensor:
        """Return a variable or array in the dtype of the bounds."""
        return tf.cast(tf.convert_to_tensor(values), self.dtype)


# Bounds that hold for a network in float32, computed in float64.
SOUND = Arithmetic()


def concretize(coefficients: tf.Tensor, box: Box, arithmetic: Arithmetic) -> tf.Tensor:
    """Return a lower bound of coefficients . x over a box.

    Args:
        coefficients: [b, s, ...], s linear functions for each example.
        box: of x, [b, ...].
        arithmetic: how bounds are computed.

    Returns:
        [b, s].
    """
    # In units of the network, 2^-24, of which each is 2^29 units of the float64 in which the bound is computed.
    error = BACKWARD * arithmetic.unit * box.magnitude
    return dot(tf.maximum(coefficients, 0.0), box.lower - error) + dot(tf.minimum(coefficients, 0.0), box.upper + error)


class Operation:
    """One operation of a network.

    Attributes:
        name: of the layer.
    """

    # True if the backward rule is the box of the output.
    stops = False
    # True if every output depends on one input alone.
    elementwise = False

    def __init__(self, name: str):
        self.name = name

    @property
    def on_windows(self) -> Operation:
        """The operation on windows of maps, which have no padding."""
        return self

    def window(self, window: Window, extent: tuple[int, ...]) -> Window | None:
        """Return the window of an input, of this spatial extent, for one of the output; None if there is none."""
        return window if self.elementwise else None

    def box(self, boxes: list[Box], arithmetic: Arithmetic) -> Box:
        """Return a box that contains all outputs for inputs in `boxes` (the interval rule)."""
        raise NotImplementedError(type(self).__name__)

    def in_range(self, boxes: list[Box], output: Box, arithmetic: Arithmetic) -> tf.Tensor:
        """Return for which examples no number inside the operation can exceed 2^100, bool [b]; False for NaN."""
        axes = list(range(1, output.lower.shape.rank))
        return tf.reduce_all((output.lower >= -LARGEST) & (output.upper <= LARGEST), axes)

    def value(self, inputs: list[tf.Tensor], arithmetic: Arithmetic) -> tf.Tensor:
        """Return the output for inputs [b, ...], without margins for rounding."""
        exact = arithmetic._replace(unit=0.0)
        return self.box([Box(tensor, tensor) for tensor in inputs], exact).lower

    def backward(self, coefficients, boxes: list[Box], output: Box, arithmetic: Arithmetic, slope):
        """Bound a linear function of the output by one of the inputs (the backward rule).

        coefficients . output >= sum of parts . inputs + constant.

        Args:
            coefficients: [b, s, ...] on the output.
            boxes: of the inputs.
            output: box of the output.
            arithmetic: how bounds are computed.
            slope: as in `linear_bounds.lower_bounds`.

        Returns:
            (parts, constant): [b, s, ...] on each input, and [b, s]. Without parts the constant is the bound: that of
            the output's box.
        """
        return [], concretize(coefficients, output, arithmetic)


def dot(coefficients: tf.Tensor, values: tf.Tensor | float) -> tf.Tensor:
    """Return coefficients . values, [b, s], of coefficients [b or 1, s, ...] and values that broadcast to [b, ...]."""
    shape = coefficients.shape[2:]
    size = math.prod(shape)
    values = tf.convert_to_tensor(values, coefficients.dtype)
    examples = length(values, 0) if values.shape.rank > shape.rank else 1
    # A sum and products without broadcasting of batches: the gradients of others have shapes that are not known when a
    # training step is compiled.
    values = tf.reshape(values + tf.zeros([examples, *shape], values.dtype), [examples, size])
    rows = tf.reshape(coefficients, [length(coefficients, 0), length(coefficients, 1), size])
    if values.shape[0] == 1:
        flat = tf.matmul(tf.reshape(rows, [-1, size]), values, transpose_b=True)
        return tf.reshape(flat, [length(rows, 0), length(rows, 1)])
    if rows.shape[0] == 1:
        return tf.matmul(values, rows[0], transpose_b=True)
    return tf.linalg.matvec(rows, values)


def length(values: tf.Tensor, axis: int) -> int | tf.Tensor:
    """Return the size of an axis, a number where it is known: compiled training steps have static shapes."""
    size = values.shape[axis]
    return tf.shape(values)[axis] if size is None else size
