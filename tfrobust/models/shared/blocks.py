"""Building blocks of the convolutional encoders: convolution units, residual blocks, chains of layers."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.models.shared.dropout import CountedDropout
from tfrobust.models.shared.normalization import BranchedBatchNormalization

SHORTCUTS = ("standard", "activated", "raw")


def l2_penalty(weight: float):
    """Return the Keras regularizer weight * sum w^2, or None for weight 0.

    Raises:
        ValueError: a weight below 0.
    """
    if not weight >= 0:
        raise InputError(f"kernel_regularization must be >= 0, got {weight!r}.")
    return keras.regularizers.L2(weight) if weight else None


def build_chain(layers: Sequence, shape: tuple) -> tuple:
    """Build layers in sequence, skipping those already built, and return the last output shape."""
    for layer in layers:
        if not layer.built:
            layer.build(shape)
        shape = tuple(layer.compute_output_shape(shape))
    return shape


def run_chain(layers: Sequence, hidden, *, training=None, branch: int = 0):
    """Apply layers in sequence; those with a true attribute `branched` also get `branch`."""
    for layer in layers:
        if getattr(layer, "branched", False):
            hidden = layer(hidden, training=training, branch=branch)
        else:
            hidden = layer(hidden, training=training)
    return hidden


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvolutionStyle(Configured):
    """Settings shared by all units of one encoder.

    Args:
        activation: name of a Keras activation.
        use_bias: add a bias in convolutions. Before batch normalization it has no effect on the function, but the
            reference networks have it.
        kernel_regularization: weight of the sum of squared kernel entries, >= 0.
        branches, momentum, epsilon, synchronized, scale: as in `BranchedBatchNormalization`.
        symmetric: pad 'same' convolutions with a stride by size // 2 zeros on every side, as PyTorch's networks do.
            Keras pads none before and one after for 3x3 with stride 2 on even sizes, so that weights cannot be
            exchanged.
    """

    activation: str = "relu"
    use_bias: bool = True
    kernel_regularization: float = 0.0
    branches: int = 1
    momentum: float = 0.9
    epsilon: float = 1e-5
    synchronized: bool = False
    scale: bool = True
    symmetric: bool = False

    def normalization(self, dtype) -> BranchedBatchNormalization:
        """Return an unbuilt batch normalization of this style."""
        settings = {name: getattr(self, name) for name in ("momentum", "epsilon", "synchronized", "scale")}
        return BranchedBatchNormalization(self.branches, **settings, dtype=dtype)

    def activated_normalization(self, dtype) -> list:
        """Return unbuilt layers: batch normalization, then the activation."""
        return [self.normalization(dtype), keras.layers.Activation(self.activation, dtype=dtype)]


@keras.saving.register_keras_serializable(package="tfrobust")
class ConvolutionUnit(Configured, keras.layers.Layer):
    """Convolution, then batch normalization, then the activation; the last two are optional.

    Args:
        width: output channels, >= 1.
        size: side of the square kernel in pixels, >= 1; of clips (frames, height, width).
        stride: in pixels, >= 1; of clips (frames, height, width).
        dilation: distance in frames between the kernel's entries in time, >= 1; clips only.
        padding: "same" or "valid".
        normalize: add batch normalization.
        activate: add the activation of the style.
        style: settings shared by the encoder's units; default `ConvolutionStyle()`.
    """

    def __init__(
        self,
        width: int,
        *,
        size: int | tuple[int, int, int] = 3,
        stride: int | tuple[int, int, int] = 1,
        dilation: int = 1,
        padding: str = "same",
        normalize: bool = True,
        activate: bool = True,
        style: ConvolutionStyle | None = None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.width = width
        self.size = size if isinstance(size, int) else tuple(size)
        self.stride = stride if isinstance(stride, int) else tuple(stride)
        self.dilation = dilation
        self.padding = padding
        self.normalize = normalize
        self.activate = activate
        self.style = style or ConvolutionStyle()
        self.branched = normalize
        self.margins = self._make_margins()
        self.chain = self._make_chain()

    def _make_margins(self) -> tuple[int, ...]:
        """Return the zeros to add on both sides of every axis; none if Keras pads, or nothing does."""
        sizes = (self.size, self.size) if isinstance(self.size, int) else self.size
        strides = (self.stride, self.stride) if isinstance(self.stride, int) else self.stride
        strided = self.style.symmetric and max(strides) > 1
        # oneDNN leaves parts of the kernel's bfloat16 gradient unwritten where it pads a clip shorter than the kernel.
        plain = len(sizes) == 3 and max(strides) == 1 and all(size % 2 for size in sizes)
        unwritten = plain and self.compute_dtype == "bfloat16"
        if self.padding != "same" or not (strided or unwritten or self.dilation > 1):
            return ()
        margins = [size // 2 for size in sizes]
        margins[0] *= self.dilation
        return tuple(margins) if any(margins) else ()

    def _make_chain(self) -> list:
        style, policy = self.style, self.dtype_policy
        make = keras.layers.Conv2D if isinstance(self.size, int) else keras.layers.Conv3D
        if self.dilation > 1:
            make = functools.partial(_DilatedConvolution, self.dilation)
        chain = [
            make(
                self.width,
                self.size,
                strides=self.stride,
                padding="valid" if self.margins else self.padding,
                use_bias=style.use_bias,
                kernel_initializer="he_normal",
                kernel_regularizer=l2_penalty(style.kernel_regularization),
                dtype=policy,
            )
        ]
        if self.normalize:
            chain.append(style.normalization(policy))
        if self.activate:
            chain.append(keras.layers.Activation(style.activation, dtype=policy))
        return chain

    def build(self, input_shape):
        """Build the layers."""
        build_chain(self.chain, self._padded_shape(input_shape))

    def compute_output_shape(self, input_shape):
        """Return the output shape of the convolution."""
        return self.chain[0].compute_output_shape(self._padded_shape(input_shape))

    def _padded_shape(self, shape) -> tuple:
        if not self.margins:
            return tuple(shape)
        count, *sides, channels = shape
        padded = (side and side + 2 * margin for side, margin in zip(sides, self.margins, strict=True))
        return (count, *padded, channels)

    def call(self, hidden, *, training=None, branch=0):
        """Apply the layers; in inference mode the normalization is folded into the convolution."""
        if self.margins:
            hidden = tf.pad(hidden, [[0, 0], *([margin, margin] for margin in self.margins), [0, 0]])
        if training or not self.normalize:
            return run_chain(self.chain, hidden, training=training, branch=branch)
        # With fixed statistics the normalization is folded into the convolution. It saves two passes over the map in
        # the forward pass and one in the backward pass, a quarter of an attack's time.
        convolution, normalization, *following = self.chain
        scale, offset = normalization.moments(branch)
        if convolution.bias is not None:
            offset += tf.cast(convolution.bias, offset.dtype) * scale
        kernel = tf.cast(convolution.kernel, scale.dtype) * scale
        hidden = convolution.convolution_op(hidden, tf.cast(kernel, hidden.dtype))
        return run_chain(following, tf.nn.bias_add(hidden, tf.cast(offset, hidden.dtype)))


class _DilatedConvolution(keras.layers.Conv3D):
    """Convolution of clips without padding whose entries in time are `dilation` frames apart; stride 1 in time.

    The frames are split into `dilation` interleaved clips, which are convolved one by one. TensorFlow's own dilation
    in time needs oneDNN on processors, and Keras refuses it next to a stride in space.
    """

    def __init__(self, dilation: int, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.dilation = dilation

    def compute_output_shape(self, input_shape):
        """Return the shape of `call`: the dilated kernel covers dilation * (size - 1) + 1 frames."""
        count, frames, *sizes = input_shape
        lost = (self.dilation - 1) * (self.kernel_size[0] - 1)
        return super().compute_output_shape((count, frames and frames - lost, *sizes))

    def convolution_op(self, inputs, kernel):
        """Convolve the interleaved clips."""
        frames = tf.shape(inputs)[1]
        padded = tf.pad(inputs, [[0, 0], [0, -frames % self.dilation], *[[0, 0]] * 3])
        count, length, *sizes = tf.unstack(tf.shape(padded))
        split = tf.reshape(padded, [count, length // self.dilation, self.dilation, *sizes])
        folded = tf.reshape(tf.transpose(split, [2, 0, 1, 3, 4, 5]), [-1, length // self.dilation, *sizes])
        hidden = super().convolution_op(tf.ensure_shape(folded, [None, None, *inputs.shape[2:]]), kernel)
        split = tf.reshape(hidden, [self.dilation, count, *tf.unstack(tf.shape(hidden))[1:]])
        _, _, length, *sizes = tf.unstack(tf.shape(split))
        hidden = tf.reshape(tf.transpose(split, [1, 2, 0, 3, 4, 5]), [count, length * self.dilation, *sizes])
        hidden = hidden[:, : frames - self.dilation * (self.kernel_size[0] - 1)]
        return tf.ensure_shape(hidden, self.compute_output_shape(inputs.shape))


class _Block(Configured, keras.layers.Layer):
    """Base of the residual blocks; `units` are the layers of the path."""

    branched = True

    def compute_output_shape(self, input_shape):
        """Return the output shape of the path."""
        shape = tuple(input_shape)
        for layer in self.units:
            shape = tuple(layer.compute_output_shape(shape))
        return shape

    def _require_equal(self, out: tuple, skipped: tuple) -> None:
        if out[1:] != skipped[1:]:
            raise InputError(
                f"{type(self).__name__} {self.name}: the path ends in {out[1:]}, the shortcut in {skipped[1:]}; "
                "set project=True where width or stride change."
            )


@keras.saving.register_keras_serializable(package="tfrobust")
class ResidualBlock(_Block):
    """Post-activation residual block, plain or bottleneck: activation(path(x) + shortcut(x)).

    The last unit of the path has no activation of its own. The shortcut is the identity, or with `project` a 1x1
    convolution with the path's width and stride.

    Args:
        convolutions: (width, size, stride) of each convolution of the path, at least one; of clips also with a dilation
            in time. The numbers are those of `ConvolutionUnit`.
        project: shortcut by a 1x1 convolution, required if width or resolution change.
        normalize_projection: batch normalization after that convolution.
        style: settings shared by the encoder's units; default `ConvolutionStyle()`.

    Raises:
        ValueError: when built, if path and shortcut have different shapes.

    Source: He et al. 2016 (Deep residual learning), figures 2 and 5.
    """

    def __init__(
        self,
        convolutions: tuple[tuple, ...],
        *,
        project: bool = False,
        normalize_projection: bool = False,
        style: ConvolutionStyle | None = None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.convolutions = tuple((*step, 1)[:4] for step in convolutions)
        self.project = project
        self.normalize_projection = normalize_projection
        self.style = style or ConvolutionStyle()
        common = {"style": self.style, "dtype": self.dtype_policy}
        last = len(self.convolutions) - 1
        self.units = [
            ConvolutionUnit(width, size=size, stride=stride, dilation=dilation, activate=position < last, **common)
            for position, (width, size, stride, dilation) in enumerate(self.convolutions)
        ]
        self.shortcut = []
        if project:
            strides = [step[2] for step in self.convolutions]
            clips = not isinstance(strides[0], int)
            product: int | tuple[int, int, int] = 1
            if clips:
                frames, rows, columns = map(math.prod, zip(*strides, strict=True))
                product = frames, rows, columns
            else:
                product = math.prod(strides)
            unit = ConvolutionUnit(
                self.convolutions[-1][0],
                size=(1, 1, 1) if clips else 1,
                stride=product,
                normalize=normalize_projection,
                activate=False,
                **common,
            )
            self.shortcut.append(unit)
        self.activation = keras.layers.Activation(self.style.activation, dtype=self.dtype_policy)

    def build(self, input_shape):
        """Build path and shortcut."""
        shape = tuple(input_shape)
        self._require_equal(build_chain(self.units, shape), build_chain(self.shortcut, shape))

    def call(self, hidden, *, training=None, branch=0):
        """Apply the block."""
        residual = run_chain(self.units, hidden, training=training, branch=branch)
        skipped = run_chain(self.shortcut, hidden, training=training, branch=branch)
        return self.activation(residual + skipped)


@keras.saving.register_keras_serializable(package="tfrobust")
class PreActivationBlock(_Block):
    """Pre-activation residual block: path(a) + shortcut, a = activation(norm(x)).

    Normalization and activation precede each convolution.

    Args:
        convolutions: (width, size, stride) of each convolution of the path, at least one.
        project: shortcut by a 1x1 convolution with the path's width and stride, required if either changes.
        shortcut: input of the shortcut. "standard": x for an identity, a for a projection (He et al. 2016; the released
            Wide ResNets). "activated": a for both (the released NFM and NoisyMix). "raw": x for both.
        dropout: share of the entries dropped between two convolutions, in [0, 1).
        dropout_first: drop before the normalization that follows a convolution, not after its activation.
        style: settings shared by the encoder's units; default `ConvolutionStyle()`.

    Raises:
        ValueError: an unknown shortcut; when built, if path and shortcut have different shapes.

    Source: He et al. 2016 (Identity mappings in deep residual networks), figures 1b and 4e.
    """

    def __init__(
        self,
        convolutions: tuple[tuple[int, int, int], ...],
        *,
        project: bool = False,
        shortcut: str = "standard",
        dropout: float = 0.0,
        dropout_first: bool = False,
        style: ConvolutionStyle | None = None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.convolutions = tuple(tuple(step) for step in convolutions)
        self.project = project
        self.shortcut = require_choice(shortcut, "shortcut", SHORTCUTS)
        self.dropout = dropout
        self.dropout_first = dropout_first
        self.style = style or ConvolutionStyle()
        policy = self.dtype_policy
        self.entry = self.style.activated_normalization(policy)
        self.units = self._make_units()
        self.projection = []
        if project:
            stride = math.prod(stride for _, _, stride in self.convolutions)
            width = self.convolutions[-1][0]
            self.projection.append(plain_convolution(width, size=1, stride=stride, style=self.style, dtype=policy))

    def _make_units(self) -> list:
        common = {"style": self.style, "dtype": self.dtype_policy}
        early = bool(self.dropout) and self.dropout_first
        layers = []
        *earlier, last = self.convolutions
        for width, size, stride in earlier:
            # A unit ends with the normalization that precedes the next convolution.
            make = plain_convolution if early else ConvolutionUnit
            layers.append(make(width, size=size, stride=stride, **common))
            if self.dropout:
                layers.append(CountedDropout(self.dropout, dtype=self.dtype_policy))
            if early:
                layers += self.style.activated_normalization(self.dtype_policy)
        width, size, stride = last
        return [*layers, plain_convolution(width, size=size, stride=stride, **common)]

    def build(self, input_shape):
        """Build entry, path and projection."""
        shape = build_chain(self.entry, tuple(input_shape))
        self._require_equal(build_chain(self.units, shape), build_chain(self.projection, shape))

    def call(self, hidden, *, training=None, branch=0):
        """Apply the block."""
        activated = run_chain(self.entry, hidden, training=training, branch=branch)
        begins_activated = self.shortcut == "activated" or (self.shortcut == "standard" and self.project)
        skipped = run_chain(self.projection, activated if begins_activated else hidden)
        return run_chain(self.units, activated, training=training, branch=branch) + skipped


def plain_convolution(width: int, **keywords) -> ConvolutionUnit:
    """Return a unit without normalization and activation."""
    return ConvolutionUnit(width, normalize=False, activate=False, **keywords)
