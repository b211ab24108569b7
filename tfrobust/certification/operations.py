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

import keras
import tensorflow as tf

from tfrobust.ops import distribution

# Roundings of a layer besides those of its sum: scales, offsets and folded kernels.
_FURTHER = 32
# Units by which a function such as tanh may err, relative to max(1, its value); libraries state less than 8.
_FUNCTION_ERROR = 64
# Slack of a backward step in units: it covers the sums of a bound in float64 of up to 2^29 terms, and two roundings.
_BACKWARD = 4.0
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

    def union(self, other: Window | None) -> Window:
        """Return the smallest window that contains both."""
        if other is None or other == self:
            return self
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
    """How bounds are computed.

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
    error = _BACKWARD * arithmetic.unit * box.magnitude
    return _dot(tf.maximum(coefficients, 0.0), box.lower - error) + _dot(
        tf.minimum(coefficients, 0.0), box.upper + error
    )


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


class Affine(Operation):
    """y = L x + offset. Subclasses define `linear`, and if needed `offset` and `summands`.

    Attributes:
        summands: terms of one output; None for all places of a map.
    """

    summands: int | None = 1

    def linear(self, hidden: tf.Tensor, arithmetic: Arithmetic, absolute: bool = False) -> tf.Tensor:
        """Return L x, or |L| x with `absolute`."""
        raise NotImplementedError(type(self).__name__)

    def offset(self, arithmetic: Arithmetic, absolute: bool = False) -> tf.Tensor | float:
        """Return the offset, or with `absolute` a bound of the sizes of its parts."""
        return 0.0

    def box(self, boxes, arithmetic):
        """Return center and radius: L c + offset, |L| r, the latter with the margin for rounding."""
        (box,) = boxes
        growth = arithmetic.growth(self._count(box))
        # |L| (r + gamma m) is |L| r + gamma |L| m by one product.
        radius = (box.upper - box.lower) / 2 + growth * box.magnitude
        center = self.linear((box.upper + box.lower) / 2, arithmetic) + self.offset(arithmetic)
        radius = self.linear(radius, arithmetic, absolute=True) + growth * self.offset(arithmetic, absolute=True)
        radius += self._underflow(box, center.shape.rank, arithmetic)
        return Box(center - radius, center + radius)

    def in_range(self, boxes, output, arithmetic):
        """Bound the parts of all sums: the largest value times the largest row sum of |L|, and the offset's parts."""
        (box,) = boxes
        row_sums = self.linear(tf.ones_like(box.lower[:1]), arithmetic, absolute=True)
        shift = tf.reduce_max(arithmetic.read(self.offset(arithmetic, absolute=True)))
        parts = tf.reduce_max(row_sums) * self._largest(box, arithmetic) + shift
        return super().in_range(boxes, output, arithmetic) & (parts <= LARGEST)

    def backward(self, coefficients, boxes, output, arithmetic, slope):
        """Return A L, and A offset less what rounding can take from it."""
        (box,) = boxes
        constant = _dot(coefficients, self.offset(arithmetic))
        if arithmetic.unit:
            error = self.linear(box.magnitude, arithmetic, absolute=True) + self.offset(arithmetic, absolute=True)
            error *= arithmetic.growth(self._count(box))
            error += self._underflow(box, error.shape.rank, arithmetic)
            constant -= _dot(tf.abs(coefficients), error)
        return [self._transposed(coefficients, box, arithmetic)], constant

    def _count(self, box: Box) -> int:
        return math.prod(box.lower.shape[1:-1]) if self.summands is None else self.summands

    def _largest(self, box: Box, arithmetic: Arithmetic) -> tf.Tensor:
        """Return the largest absolute value of each example, at least 1, [b]."""
        return tf.maximum(tf.reduce_max(box.magnitude, list(range(1, box.lower.shape.rank))), 1.0)

    def _underflow(self, box: Box, rank: int, arithmetic: Arithmetic) -> tf.Tensor | float:
        """Return what each output, of this rank, can lose to underflow."""
        if not arithmetic.unit:
            return 0.0
        lost = arithmetic.underflow(self._count(box)) * self._largest(box, arithmetic)
        return tf.reshape(lost, [-1] + [1] * (rank - 1))

    def _transposed(self, coefficients, box: Box, arithmetic: Arithmetic) -> tf.Tensor:
        """Return the coefficients on the input, A L: the gradient of A . L x."""
        rows = tf.shape(coefficients)[:2]
        flat = tf.reshape(coefficients, tf.concat([[-1], tf.shape(coefficients)[2:]], 0))
        shape = box.lower.shape[1:]
        origin = tf.zeros(tf.concat([tf.shape(flat)[:1], shape], 0), arithmetic.dtype)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(origin)
            output = self.linear(origin, arithmetic)
        gradient = tape.gradient(output, origin, output_gradients=tf.reshape(flat, tf.shape(output)))
        return tf.reshape(gradient, tf.concat([rows, shape], 0))


class Dense(Affine):
    """A dense layer without its activation."""

    def __init__(self, layer: keras.layers.Dense):
        super().__init__(layer.name)
        self.layer = layer
        self.summands = int(layer.kernel.shape[0])

    def linear(self, hidden, arithmetic, absolute=False):
        """Multiply by the kernel."""
        kernel = arithmetic.read(self.layer.kernel)
        return tf.tensordot(hidden, tf.abs(kernel) if absolute else kernel, 1)

    def offset(self, arithmetic, absolute=False):
        """Return the bias."""
        if self.layer.bias is None:
            return 0.0
        bias = arithmetic.read(self.layer.bias)
        return tf.abs(bias) if absolute else bias


class Convolution(Dense):
    """A convolution without its activation, in any number of dimensions.

    Attributes:
        padding: "same" or "valid"; "causal" as the layer does it.
    """

    def __init__(self, layer, padding: str | None = None):
        super().__init__(layer)
        self.summands = math.prod(map(int, layer.kernel.shape[:-1]))
        self.padding = layer.padding if padding is None else padding

    @property
    def on_windows(self):
        """The convolution without padding."""
        return Convolution(self.layer, "valid")

    def window(self, window, extent):
        """Return the window that the kernel covers."""
        kernel, strides, dilation = self.layer.kernel.shape[:-2], self.layer.strides, self.layer.dilation_rate
        if self.padding == "causal":
            return None
        padding = [0] * len(kernel)
        if self.padding == "same":
            padding = [
                max((math.ceil(places / step) - 1) * step + (size - 1) * spread + 1 - places, 0) // 2
                for places, step, size, spread in zip(extent, strides, kernel, dilation, strict=True)
            ]
        return window.before(kernel, strides, dilation, padding)

    def linear(self, hidden, arithmetic, absolute=False):
        """Convolve with the kernel."""
        kernel = arithmetic.read(self.layer.kernel)
        kernel = tf.abs(kernel) if absolute else kernel
        if self.padding == self.layer.padding:
            return self.layer.convolution_op(hidden, kernel)
        layer = self.layer
        return keras.ops.conv(hidden, kernel, layer.strides, self.padding, "channels_last", layer.dilation_rate)


class BatchNormalization(Affine):
    """Batch normalization over the last axis: scale x + offset, scale = gamma / sqrt(variance + epsilon)."""

    elementwise = True

    def __init__(self, layer: keras.layers.BatchNormalization):
        super().__init__(layer.name)
        self.layer = layer

    def batch_statistics(self, hidden: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor] | None:
        """Return mean and biased variance of a batch [b, ..., c]; None for a frozen layer."""
        if not self.layer.trainable:
            return None
        axes = list(range(hidden.shape.rank - 1))
        count = tf.cast(tf.size(hidden) // hidden.shape[-1], hidden.dtype)
        total = distribution.global_sum if self.layer.synchronized else (lambda value: value)
        count = total(count)
        mean = total(tf.reduce_sum(hidden, axes)) / count
        return mean, total(tf.reduce_sum(tf.square(hidden - mean), axes)) / count

    def linear(self, hidden, arithmetic, absolute=False):
        """Multiply by the scale, which may be negative."""
        scale = self._scale(arithmetic)[1]
        return hidden * (tf.abs(scale) if absolute else scale)

    def offset(self, arithmetic, absolute=False):
        """Return beta - scale mean."""
        mean, scale = self._scale(arithmetic)
        beta = arithmetic.read(self.layer.beta) if self.layer.center else tf.zeros_like(mean)
        return tf.abs(beta) + tf.abs(scale * mean) if absolute else beta - scale * mean

    def in_range(self, boxes, output, arithmetic):
        """Require also a variance whose inverse root is in range."""
        spread = self._statistics(arithmetic)[1]
        normal = tf.reduce_all((spread >= 1 / LARGEST) & (spread <= LARGEST))
        return super().in_range(boxes, output, arithmetic) & normal

    def _largest(self, box, arithmetic):
        """Include the mean, which the scale multiplies, too."""
        mean = tf.reduce_max(tf.abs(self._statistics(arithmetic)[0]))
        return tf.maximum(super()._largest(box, arithmetic), mean)

    def _statistics(self, arithmetic) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the mean, and the variance plus epsilon."""
        mean, variance = arithmetic.statistics.get(self) or (self.layer.moving_mean, self.layer.moving_variance)
        return arithmetic.read(mean), arithmetic.read(variance) + self.layer.epsilon

    def _scale(self, arithmetic) -> tuple[tf.Tensor, tf.Tensor]:
        mean, spread = self._statistics(arithmetic)
        scale = tf.math.rsqrt(spread)
        if self.layer.scale:
            scale *= arithmetic.read(self.layer.gamma)
        return mean, scale


class Scaling(Affine):
    """scale x + shift with constants, each a number or one per channel."""

    elementwise = True

    def __init__(self, name: str, scale, shift):
        super().__init__(name)
        self.scale, self.shift = scale, shift

    def linear(self, hidden, arithmetic, absolute=False):
        """Multiply by the scale."""
        scale = arithmetic.read(self.scale)
        return hidden * (tf.abs(scale) if absolute else scale)

    def offset(self, arithmetic, absolute=False):
        """Return the shift."""
        shift = arithmetic.read(self.shift)
        return tf.abs(shift) if absolute else shift


class Average(Affine):
    """Average pooling; `function` averages at most `summands` values of its argument.

    Attributes:
        pool: (sizes, strides) by spatial axis of pooling without padding; None for other averages.
    """

    def __init__(self, name: str, function, summands: int | None, pool: tuple | None = None):
        super().__init__(name)
        self.function, self.summands, self.pool = function, summands, pool

    def window(self, window, extent):
        """Return the window that is averaged."""
        ones, zeros = ((number,) * len(extent) for number in (1, 0))
        return window.before(self.pool[0], self.pool[1], ones, zeros) if self.pool else None

    def linear(self, hidden, arithmetic, absolute=False):
        """Average."""
        return self.function(hidden)


class Rearrangement(Average):
    """Values in other places, or zeros around them: no arithmetic, so no rounding.

    Attributes:
        padding: zeros before the first place, by spatial axis, if zeros around are all that it does; else None.
    """

    def __init__(self, name: str, function, padding: tuple[int, ...] | None = None):
        super().__init__(name, function, 0)
        self.padding = padding

    @property
    def on_windows(self):
        """Nothing: windows hold zeros outside the map."""
        return Rearrangement(self.name, lambda hidden: hidden)

    def window(self, window, extent):
        """Return the window among the places without padding."""
        if self.padding is None:
            return None
        ones = (1,) * len(extent)
        return window.before(ones, ones, ones, self.padding)

    def box(self, boxes, arithmetic):
        """Rearrange both ends."""
        return Box(*map(self.function, boxes[0]))


class Sum(Operation):
    """The sum of two tensors of one shape."""

    elementwise = True

    def box(self, boxes, arithmetic):
        """Add both ends."""
        first, second = boxes
        margin = arithmetic.growth(1) * (first.magnitude + second.magnitude)
        return Box(first.lower + second.lower, first.upper + second.upper).widened(margin)

    def backward(self, coefficients, boxes, output, arithmetic, slope):
        """Return the same coefficients for both."""
        first, second = boxes
        error = arithmetic.growth(1) * (first.magnitude + second.magnitude)
        return [coefficients, coefficients], -_dot(tf.abs(coefficients), error)


class MaxPooling(Operation):
    """Max pooling. Its backward rule is the box of its output."""

    stops = True

    def __init__(self, name: str, function):
        super().__init__(name)
        self.function = function

    def box(self, boxes, arithmetic):
        """Pool both ends."""
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
        return box.widened(_FUNCTION_ERROR * arithmetic.unit * tf.maximum(box.magnitude, 1.0))


class ReLU(Operation):
    """ReLU, or leaky ReLU with a slope in [0, 1) below 0."""

    elementwise = True

    def __init__(self, name: str, below: float = 0.0):
        super().__init__(name)
        self.below = below

    def box(self, boxes, arithmetic):
        """Apply the function to both ends."""
        box = Box(*(tf.maximum(end, self.below * end) for end in boxes[0]))
        return box.widened(_BACKWARD * arithmetic.unit * box.magnitude) if self.below else box

    def backward(self, coefficients, boxes, output, arithmetic, slope):
        """Bound the function by two lines: the chord from above, a line through 0 from below.

        The lower line's slope is 1 or that below 0, whichever encloses the smaller area ("adaptive"); that below 0
        ("zero"); that of the chord ("same"); or a given one, [b, 1 or s, ...], where the input may have both signs.
        """
        if slope is None:
            return super().backward(coefficients, boxes, output, arithmetic, slope)
        lower, upper = tf.minimum(boxes[0].lower, 0.0), tf.maximum(boxes[0].upper, 0.0)
        width = upper - lower
        chord = (upper - self.below * lower) / tf.where(width > 0, width, 1.0)
        height = upper - chord * upper
        under = self._under(boxes[0], chord, slope)
        part = coefficients * tf.where(coefficients > 0, under, chord[:, None])
        constant = _dot(tf.minimum(coefficients, 0.0), height)
        if arithmetic.unit:
            constant -= _dot(tf.abs(coefficients), _BACKWARD * arithmetic.unit * boxes[0].magnitude)
        return [part], constant

    def _under(self, box: Box, chord: tf.Tensor, slope: str | tf.Tensor) -> tf.Tensor:
        """Return the slope of the lower line, [b, 1 or s, ...]."""
        full, below = tf.ones_like(chord), tf.fill(tf.shape(chord), tf.constant(self.below, chord.dtype))
        of_sign = tf.where(box.lower >= 0, full, below)[:, None]
        if not isinstance(slope, str):
            unstable = (box.lower < 0) & (box.upper > 0)
            return tf.where(unstable[:, None], tf.clip_by_value(slope, self.below, 1.0), of_sign)
        if slope == "same":
            return chord[:, None]
        return of_sign if slope == "zero" else tf.where(2 * chord > 1 + self.below, full, below)[:, None]


def _dot(coefficients: tf.Tensor, values: tf.Tensor | float) -> tf.Tensor:
    """Return coefficients . values, [b, s], of coefficients [b or 1, s, ...] and values that broadcast to [b, ...]."""
    shape = coefficients.shape[2:]
    values = tf.convert_to_tensor(values, coefficients.dtype)
    examples = tf.shape(values)[:1] if values.shape.rank > shape.rank else [1]
    values = tf.broadcast_to(values, tf.concat([examples, shape], 0))
    values = tf.reshape(values, [-1, math.prod(shape)])
    rows = tf.reshape(coefficients, tf.concat([tf.shape(coefficients)[:2], [math.prod(shape)]], 0))
    return tf.linalg.matvec(rows, values)
