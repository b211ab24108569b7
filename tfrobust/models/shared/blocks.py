"""Building blocks of the convolutional encoders: convolution units, residual blocks, chains of layers."""

import dataclasses
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
        same = {name: getattr(self, name) for name in ("momentum", "epsilon", "synchronized", "scale")}
        return BranchedBatchNormalization(self.branches, **same, dtype=dtype)

    def activated_normalization(self, dtype) -> list:
        """Return unbuilt layers: batch normalization, then the activation."""
        return [self.normalization(dtype), keras.layers.Activation(self.activation, dtype=dtype)]


@keras.saving.register_keras_serializable(package="tfrobust")
class ConvolutionUnit(Configured, keras.layers.Layer):
    """Convolution, then batch normalization, then the activation; the last two are optional.

    Args:
        width: output channels, >= 1.
        size: side of the square kernel in pixels, >= 1.
        stride: in pixels, >= 1.
        padding: "same" or "valid".
        normalize: add batch normalization.
        activate: add the activation of the style.
        style: settings shared by the encoder's units; default `ConvolutionStyle()`.
    """

    def __init__(
        self,
        width: int,
        *,
        size: int = 3,
        stride: int = 1,
        padding: str = "same",
        normalize: bool = True,
        activate: bool = True,
        style: ConvolutionStyle | None = None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.width = width
        self.size = size
        self.stride = stride
        self.padding = padding
        self.normalize = normalize
        self.activate = activate
        self.style = style or ConvolutionStyle()
        self.branched = normalize
        self.margin = size // 2 if self.style.symmetric and padding == "same" and stride > 1 else 0
        self.chain = self._make_chain()

    def _make_chain(self) -> list:
        style, policy = self.style, self.dtype_policy
        chain = [
            keras.layers.Conv2D(
                self.width,
                self.size,
                strides=self.stride,
                padding="valid" if self.margin else self.padding,
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
        count, *sides, channels = shape
        return (count, *(side and side + 2 * self.margin for side in sides), channels)

    def call(self, hidden, *, training=None, branch=0):
        """Apply the layers; in inference mode the normalization is folded into the convolution."""
        if self.margin:
            hidden = tf.pad(hidden, [[0, 0], *[[self.margin, self.margin]] * 2, [0, 0]])
        if training or not self.normalize:
            return run_chain(self.chain, hidden, training=training, branch=branch)
        # With fixed statistics the normalization is folded into the convolution. It saves two passes over the map in
        # the forward pass and one in the backward pass, a quarter of an attack's time.
        convolution, normalization, *others = self.chain
        scale, offset = normalization.moments(branch)
        if convolution.bias is not None:
            offset += tf.cast(convolution.bias, offset.dtype) * scale
        kernel = tf.cast(convolution.kernel, scale.dtype) * scale
        hidden = convolution.convolution_op(hidden, tf.cast(kernel, hidden.dtype))
        return run_chain(others, tf.nn.bias_add(hidden, tf.cast(offset, hidden.dtype)))


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
        convolutions: (width, size, stride) of each convolution of the path, at least one.
        project: shortcut by a 1x1 convolution, required if width or resolution change.
        normalize_projection: batch normalization after that convolution.
        style: settings shared by the encoder's units; default `ConvolutionStyle()`.

    Raises:
        ValueError: when built, if path and shortcut have different shapes.

    Source: He et al. 2016 (Deep residual learning), figures 2 and 5.
    """

    def __init__(
        self,
        convolutions: tuple[tuple[int, int, int], ...],
        *,
        project: bool = False,
        normalize_projection: bool = False,
        style: ConvolutionStyle | None = None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        self.convolutions = tuple(tuple(step) for step in convolutions)
        self.project = project
        self.normalize_projection = normalize_projection
        self.style = style or ConvolutionStyle()
        common = {"style": self.style, "dtype": self.dtype_policy}
        last = len(self.convolutions) - 1
        self.units = [
            ConvolutionUnit(width, size=size, stride=stride, activate=position < last, **common)
            for position, (width, size, stride) in enumerate(self.convolutions)
        ]
        self.shortcut = []
        if project:
            unit = ConvolutionUnit(
                self.convolutions[-1][0],
                size=1,
                stride=math.prod(stride for _, _, stride in self.convolutions),
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
        *others, last = self.convolutions
        for width, size, stride in others:
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
