"""Operations that are affine in their inputs: both bounding rules are exact up to rounding."""

from __future__ import annotations

import math
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfrobust.certification.operations import LARGEST, Arithmetic, Box, Operation, dot, length
from tfrobust.ops import distribution


class Affine(Operation):
    """y = L x + offset. Subclasses define `linear`, and if needed `offset` and `summands`.

    Attributes:
        summands: terms of one output; None for all places of a map.
        copies: True if an input appears in several outputs though no output has several terms.
        folded: the batch normalization whose scale the model multiplies the kernel by; None for a kernel of its own.
    """

    summands: int | None = 1
    copies = False
    folded: Affine | None = None

    @property
    def mixes(self) -> bool:
        """True if an output depends on several inputs, or an input appears in several outputs."""
        return (self.summands != 0 or self.copies) and not self.elementwise

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
        if self.folded is not None:
            row_sums = tf.maximum(row_sums, self.folded.linear(row_sums, arithmetic, absolute=True))
        shift = tf.reduce_max(arithmetic.read(self.offset(arithmetic, absolute=True)))
        parts = tf.reduce_max(row_sums) * self._largest(box, arithmetic) + shift
        return super().in_range(boxes, output, arithmetic) & (parts <= LARGEST)

    def backward(self, coefficients, boxes, output, arithmetic, slope):
        """Return A L, and A offset less what rounding can take from it."""
        (box,) = boxes
        constant = dot(coefficients, self.offset(arithmetic))
        if arithmetic.unit:
            constant -= dot(tf.abs(coefficients), self.error(box, arithmetic))
        return [self.transposed(coefficients, box, arithmetic)], constant

    def error(self, box: Box, arithmetic: Arithmetic) -> tf.Tensor:
        """Return what rounding can take from each output for an input in a box."""
        error = self.linear(box.magnitude, arithmetic, absolute=True) + self.offset(arithmetic, absolute=True)
        error *= arithmetic.growth(self._count(box))
        return error + self._underflow(box, error.shape.rank, arithmetic)

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
        lost = tf.reshape(lost, [-1] + [1] * (rank - 1))
        if self.folded is None:
            return lost
        # What a kernel times a small scale loses, as it counts before the scale.
        scale = self.folded.linear(tf.ones([1], arithmetic.dtype), arithmetic, absolute=True)
        return lost / tf.where((scale > 0) & (scale < 1), scale, 1.0)

    def transposed(self, coefficients, box: Box, arithmetic: Arithmetic) -> tf.Tensor:
        """Return the coefficients on the input, A L: the gradient of A . L x."""
        examples, rows = length(coefficients, 0), length(coefficients, 1)
        shape = box.lower.shape[1:]
        origin = tf.zeros([examples * rows, *shape], arithmetic.dtype)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(origin)
            output = self.linear(origin, arithmetic)
        sizes = [length(output, axis) for axis in range(output.shape.rank)]
        gradient = tape.gradient(output, origin, output_gradients=tf.reshape(coefficients, sizes))
        return tf.reshape(gradient, [examples, rows, *shape])


class Dense(Affine):
    """A product with a kernel, and a bias: a dense layer without its activation.

    Attributes:
        kernel: variable [inputs, outputs].
        bias: variable [outputs], or None.
    """

    def __init__(self, name: str, kernel, bias=None):
        super().__init__(name)
        self.kernel, self.bias = kernel, bias
        self.summands = math.prod(map(int, kernel.shape[:-1]))

    def linear(self, hidden, arithmetic, absolute=False):
        """Multiply by the kernel."""
        kernel = arithmetic.read(self.kernel)
        return self.product(hidden, tf.abs(kernel) if absolute else kernel)

    def product(self, hidden: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """Return the product of values and a kernel."""
        return tf.tensordot(hidden, kernel, 1)

    def offset(self, arithmetic, absolute=False):
        """Return the bias."""
        if self.bias is None:
            return 0.0
        bias = arithmetic.read(self.bias)
        return tf.abs(bias) if absolute else bias


class Geometry(NamedTuple):
    """The movement of a kernel over a map.

    Attributes:
        strides: by spatial axis.
        dilation: by spatial axis.
        padding: "same" or "valid".
    """

    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: str


class Convolution(Dense):
    """A convolution without its activation, in any number of dimensions and groups of channels.

    Attributes:
        geometry: how the kernel [*sizes, inputs of a group, outputs] moves.
        groups: of channels.
    """

    def __init__(self, name: str, kernel, bias, geometry: Geometry, groups: int = 1):
        super().__init__(name, kernel, bias)
        self.geometry, self.groups = geometry, groups

    @property
    def on_windows(self):
        """The convolution without padding."""
        geometry = self.geometry._replace(padding="valid")
        convolution = type(self)(self.name, self.kernel, self.bias, geometry, self.groups)
        convolution.folded = self.folded
        return convolution

    def window(self, window, extent):
        """Return the window that the kernel covers."""
        kernel, (strides, dilation, _) = self.kernel.shape[:-2], self.geometry
        padding = [0] * len(kernel)
        if self.geometry.padding == "same":
            padding = [
                max((math.ceil(places / step) - 1) * step + (size - 1) * spread + 1 - places, 0) // 2
                for places, step, size, spread in zip(extent, strides, kernel, dilation, strict=True)
            ]
        return window.before(kernel, strides, dilation, padding)

    def product(self, hidden, kernel):
        """Convolve each group of channels with its part of the kernel."""
        parts = zip(tf.split(hidden, self.groups, -1), tf.split(kernel, self.groups, -1), strict=True)
        strides, dilation, padding = self.geometry
        return tf.concat(
            [keras.ops.conv(part, own, strides, padding, "channels_last", dilation) for part, own in parts], -1
        )


class DepthwiseConvolution(Convolution):
    """A convolution of each channel with some kernels of its own, [*sizes, channels, kernels of a channel]."""

    def __init__(self, name: str, kernel, bias, geometry: Geometry, groups: int = 1):
        super().__init__(name, kernel, bias, geometry, groups)
        self.summands = math.prod(map(int, kernel.shape[:-2]))

    def product(self, hidden, kernel):
        """Convolve each channel."""
        strides, dilation, padding = self.geometry
        return keras.ops.depthwise_conv(hidden, kernel, strides, padding, "channels_last", dilation)


class TransposedConvolution(Dense):
    """A transposed convolution without its activation.

    Attributes:
        geometry: how the kernel [*sizes, outputs, inputs] moves.
        output_padding: by spatial axis; None for that of the padding.
    """

    def __init__(self, name: str, kernel, bias, geometry: Geometry, output_padding=None):
        super().__init__(name, kernel, bias)
        self.geometry, self.output_padding = geometry, output_padding
        # A place of the output takes each entry of the kernel once at most.
        self.summands = math.prod(map(int, kernel.shape)) // int(kernel.shape[-2])

    def product(self, hidden, kernel):
        """Convolve transposed."""
        strides, dilation, padding = self.geometry
        return keras.ops.conv_transpose(
            hidden, kernel, strides, padding, self.output_padding, "channels_last", dilation
        )


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
    """scale x + shift with constants, each a number, one per channel, or one per value."""

    elementwise = True

    def __init__(self, name: str, scale, shift):
        super().__init__(name)
        self.scale, self.shift = scale, shift

    def window(self, window, extent):
        """Return the window; None if constants differ from place to place, because windows have no places."""
        uniform = all(math.prod(np.shape(constant)[:-1]) == 1 for constant in (self.scale, self.shift))
        return super().window(window, extent) if uniform else None

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
        return [coefficients, coefficients], -dot(tf.abs(coefficients), error)


class Copies(Rearrangement):
    """Values in several places each."""

    copies = True


class Concatenation(Operation):
    """Tensors side by side along an axis.

    Attributes:
        axis: counted from the end, -1 for channels.
    """

    def __init__(self, name: str, axis: int):
        super().__init__(name)
        self.axis, self.elementwise = axis, axis == -1

    def box(self, boxes, arithmetic):
        """Concatenate both ends."""
        return Box(*(tf.concat(ends, self.axis) for ends in zip(*boxes, strict=True)))

    def backward(self, coefficients, boxes, output, arithmetic, slope):
        """Return the part of the coefficients of each tensor."""
        sizes = [box.lower.shape[self.axis] for box in boxes]
        return tf.split(coefficients, sizes, self.axis), tf.zeros([], coefficients.dtype)
