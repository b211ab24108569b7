"""What the convolutional encoders are made of: a convolution unit, a residual block, and chains of layers."""

import dataclasses
from collections.abc import Sequence

import keras
import tensorflow as tf

from tfrobust.models.normalization import BranchedBatchNormalization
from tfrobust.ops.configured import Configured


def require_whole(value, what: str, minimum: int = 1) -> int:
    """The value itself if it is an integer of at least `minimum`; a ValueError that names it otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{what} must be an integer >= {minimum}, got {value!r}.")
    return value


def require_wholes(values, what: str) -> tuple[int, ...]:
    """The values as a tuple if all are integers >= 1; a ValueError that names them otherwise."""
    if not isinstance(values, (list, tuple)):
        raise ValueError(f"{what} must be a tuple of integers >= 1, got {values!r}.")
    return tuple(require_whole(value, f"each entry of {what}") for value in values)


def require_choice(value, what: str, choices: Sequence[str]) -> str:
    """The value itself if it is one of `choices`; a ValueError that lists them otherwise."""
    if value not in choices:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, choices))}, got {value!r}.")
    return value


def l2_penalty(weight: float):
    """weight * sum w^2 as a Keras regulariser, or None for weight 0; a ValueError below 0."""
    if not weight >= 0:
        raise ValueError(f"kernel_regularization must be >= 0, got {weight!r}.")
    return keras.regularizers.L2(weight) if weight else None


def build_chain(layers: Sequence, shape: tuple) -> tuple:
    """Builds the layers one after the other (those already built are left alone); returns the last shape."""
    for layer in layers:
        if not layer.built:
            layer.build(shape)
        shape = tuple(layer.compute_output_shape(shape))
    return shape


def run_chain(layers: Sequence, hidden, *, training=None, branch: int = 0):
    """Applies the layers one after the other; `branch` goes to those whose attribute `branched` is true."""
    for layer in layers:
        if getattr(layer, "branched", False):
            hidden = layer(hidden, training=training, branch=branch)
        else:
            hidden = layer(hidden, training=training)
    return hidden


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvolutionStyle(Configured):
    """What all units of one encoder have in common.

    Args:
        activation: name of a Keras activation.
        use_bias: whether convolutions add a bias (with batch normalisation behind, it has no effect on
            the function, yet the reference networks have it).
        kernel_regularization: weight of the sum of squared kernel entries, >= 0.
        branches, momentum, epsilon, synchronized: as in `BranchedBatchNormalization`.
    """

    activation: str = "relu"
    use_bias: bool = True
    kernel_regularization: float = 0.0
    branches: int = 1
    momentum: float = 0.9
    epsilon: float = 1e-5
    synchronized: bool = False


@keras.saving.register_keras_serializable(package="tfrobust")
class ConvolutionUnit(Configured, keras.layers.Layer):
    """Convolution, then batch normalisation, then the activation; the last two can be left out.

    Args:
        width: output channels, >= 1.
        size: side of the square kernel in pixels, >= 1.
        stride: in pixels, >= 1.
        padding: "same" or "valid".
        normalize: with batch normalisation.
        activate: with the style's activation.
        style: what the encoder's units share; default `ConvolutionStyle()`.
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
        self.chain = self._make_chain()

    def _make_chain(self) -> list:
        style, policy = self.style, self.dtype_policy
        chain = [
            keras.layers.Conv2D(
                self.width,
                self.size,
                strides=self.stride,
                padding=self.padding,
                use_bias=style.use_bias,
                kernel_initializer="he_normal",
                kernel_regularizer=l2_penalty(style.kernel_regularization),
                dtype=policy,
            )
        ]
        if self.normalize:
            norm = BranchedBatchNormalization(
                style.branches,
                momentum=style.momentum,
                epsilon=style.epsilon,
                synchronized=style.synchronized,
                dtype=policy,
            )
            chain.append(norm)
        if self.activate:
            chain.append(keras.layers.Activation(style.activation, dtype=policy))
        return chain

    def build(self, input_shape):
        build_chain(self.chain, tuple(input_shape))

    def compute_output_shape(self, input_shape):
        return self.chain[0].compute_output_shape(tuple(input_shape))

    def call(self, hidden, *, training=None, branch=0):
        if training or not self.normalize:
            return run_chain(self.chain, hidden, training=training, branch=branch)
        # With fixed statistics the normalisation is part of the convolution: two passes over the map less on the
        # way in, one less on the way back, a quarter of an attack's time.
        convolution, normalization, *others = self.chain
        scale, offset = normalization.moments(branch)
        if convolution.bias is not None:
            offset += tf.cast(convolution.bias, offset.dtype) * scale
        kernel = tf.cast(convolution.kernel, scale.dtype) * scale
        hidden = convolution.convolution_op(hidden, tf.cast(kernel, hidden.dtype))
        return run_chain(others, tf.nn.bias_add(hidden, tf.cast(offset, hidden.dtype)))


@keras.saving.register_keras_serializable(package="tfrobust")
class ResidualBlock(Configured, keras.layers.Layer):
    """activation(path(x) + shortcut(x)): the post-activation block, plain or bottleneck by its path.

    The last unit of the path has no activation of its own. The shortcut is the identity, or with `project`
    a 1x1 convolution with the path's width and stride.

    Args:
        convolutions: (width, size, stride) of each convolution of the path, at least one.
        project: shortcut by a 1x1 convolution; needed where width or resolution change.
        normalize_projection: batch normalisation behind that convolution.
        style: what the encoder's units share; default `ConvolutionStyle()`.

    Source: He et al. 2016 (Deep residual learning), figures 2 and 5.
    """

    branched = True

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
            stride = 1
            for _, _, step in self.convolutions:
                stride *= step
            unit = ConvolutionUnit(
                self.convolutions[-1][0],
                size=1,
                stride=stride,
                normalize=normalize_projection,
                activate=False,
                **common,
            )
            self.shortcut.append(unit)
        self.activation = keras.layers.Activation(self.style.activation, dtype=self.dtype_policy)

    def build(self, input_shape):
        shape = tuple(input_shape)
        out = build_chain(self.units, shape)
        skipped = build_chain(self.shortcut, shape)
        if out[1:] != skipped[1:]:
            raise ValueError(
                f"ResidualBlock {self.name}: the path ends in {out[1:]}, the shortcut in {skipped[1:]}; "
                "set project=True where width or stride change."
            )

    def compute_output_shape(self, input_shape):
        shape = tuple(input_shape)
        for unit in self.units:
            shape = tuple(unit.compute_output_shape(shape))
        return shape

    def call(self, hidden, *, training=None, branch=0):
        residual = run_chain(self.units, hidden, training=training, branch=branch)
        skipped = run_chain(self.shortcut, hidden, training=training, branch=branch)
        return self.activation(residual + skipped)
