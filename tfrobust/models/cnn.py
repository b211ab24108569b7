"""Plain convolutional encoders: stages of convolutions with pooling, then fully connected layers."""

import keras

from tfrobust.common.settings import require_choice, require_whole, require_wholes
from tfrobust.errors import InputError
from tfrobust.models.shared.blocks import ConvolutionStyle, ConvolutionUnit, l2_penalty
from tfrobust.models.shared.encoder import Encoder

_POOLS = {"max": keras.layers.MaxPooling2D, "average": keras.layers.AveragePooling2D}
_DOWNSAMPLINGS = (*_POOLS, "stride")
_PADDINGS = ("same", "valid")

# Variant -> (widths of the convolutions by stage, units of the fully connected layers before the logits).
PAPER_VARIANTS = {
    "cifar10": (((64, 64), (128, 128)), (256, 256)),
    "cifar100": (((64, 64, 64), (128, 128, 128)), (256, 256, 256)),
    "mnist": (((32, 32), (64, 64)), (200, 200)),
}


def convolution_stages(
    stages: tuple[tuple, ...],
    style: ConvolutionStyle,
    *,
    normalize: bool,
    pooling: str,
    final_pool: bool,
    dtype,
    padding: str = "same",
) -> list[list]:
    """Create the layers of each stage: convolution units and the downsampling.

    Args:
        stages: the convolutions by stage, each a width in channels (3x3, stride 1) or (width, kernel_size, stride).
        style: settings shared by the units.
        normalize: batch normalization between convolution and activation.
        pooling: "max" or "average": 2x2 pooling after the stage. "stride": the next stage begins with stride 2, unless
            its first convolution states its own.
        final_pool: pool after the last stage as well; not available with "stride".
        dtype: the layers' dtype policy.
        padding: of the convolutions, "same" or "valid".

    Returns:
        One list of unbuilt layers per stage.

    Raises:
        ValueError: an unknown pooling or padding, or `final_pool` with "stride".
    """
    require_choice(pooling, "pooling", _DOWNSAMPLINGS)
    require_choice(padding, "padding", _PADDINGS)
    if final_pool and pooling == "stride":
        raise InputError("final_pool needs a pooling of 'max' or 'average': set final_pool=False with 'stride'.")
    stage_layers = []
    for position, stage in enumerate(stages):
        layers = []
        for number, convolution in enumerate(stage):
            begins = pooling == "stride" and position and not number
            width, size, stride = (convolution, 3, 2 if begins else 1) if isinstance(convolution, int) else convolution
            unit = ConvolutionUnit(
                width, size=size, stride=stride, padding=padding, normalize=normalize, style=style, dtype=dtype
            )
            layers.append(unit)
        if pooling in _POOLS and (final_pool or position < len(stages) - 1):
            layers.append(_POOLS[pooling](2, dtype=dtype))
        stage_layers.append(layers)
    return stage_layers


def smallest_side(stages: list[list]) -> int:
    """Return the smallest side of an image for which the maps of all layers have an entry, and strides leave no rest.

    Args:
        stages: layers by stage, as `convolution_stages` returns them.
    """
    side = 1
    for layer in (layer for stage in reversed(stages) for layer in reversed(stage)):
        if not isinstance(layer, ConvolutionUnit):
            side *= 2
        elif layer.padding == "valid":
            side = (side - 1) * layer.stride + layer.size
        else:
            side *= layer.stride
    return side


def dense_neck(units: tuple[int, ...], style: ConvolutionStyle, dtype, *, global_pool: bool = False) -> list:
    """Create Flatten (or global average pooling) and fully connected layers with the style's activation.

    Without units the neck is the global average alone.
    """
    layers = [(keras.layers.GlobalAveragePooling2D if global_pool or not units else keras.layers.Flatten)(dtype=dtype)]
    for width in units:
        dense = keras.layers.Dense(
            width,
            activation=style.activation,
            kernel_initializer="he_normal",
            kernel_regularizer=l2_penalty(style.kernel_regularization),
            dtype=dtype,
        )
        layers.append(dense)
    return layers


@keras.saving.register_keras_serializable(package="tfrobust")
class CNN(Encoder):
    """Convolutional encoder with any number of stages; the embedding is the last layer's activation.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> encoder = robust.models.CNN(stages=((8,), (16,)), dense=(32,), pixel_mean=0.5, pixel_std=0.25)
        >>> encoder(tf.ones([2, 16, 16, 3])).shape
        TensorShape([2, 32])
        >>> strided = robust.models.CNN(stages=(((16, 4, 2),), ((32, 4, 2),)), pooling="stride")

    Args:
        stages: the convolutions by stage, each its output channels (3x3, stride 1) or (channels, kernel_size, stride).
            Empty: a network of `dense` alone, without hidden maps for methods that mix or branch these.
        dense: units of the fully connected layers; the last is the embedding. Empty: global average pooling.
        batch_normalization: between each convolution (then without bias) and its activation.
        kernel_regularization: weight of the sum of squared kernel entries, >= 0.
        activation: name of a Keras activation.
        pooling: "max" or "average": 2x2 with stride 2 after each stage but the last. "stride": each stage but the first
            begins with stride 2, unless its first convolution states a stride.
        final_pool: pool after the last stage as well.
        padding: of the convolutions, "same" or "valid".
        **kwargs: as in `Encoder`.

    Raises:
        ValueError: numbers that are not positive integers, an unknown pooling or padding.
    """

    def __init__(
        self,
        stages: tuple[tuple[int | tuple[int, int, int], ...], ...] = ((32,), (64,), (128,)),
        *,
        dense: tuple[int, ...] = (128,),
        batch_normalization: bool = True,
        kernel_regularization: float = 0.0,
        activation: str = "relu",
        pooling: str = "max",
        final_pool: bool = False,
        padding: str = "same",
        **kwargs,
    ):
        super().__init__(**kwargs)
        tuples = isinstance(stages, (list, tuple)) and all(isinstance(stage, (list, tuple)) for stage in stages)
        if not tuples or not all(stages) or not (stages or dense):
            raise InputError(
                f"CNN.stages must hold a tuple of convolutions per stage, got {stages!r}; () needs CNN.dense."
            )
        self.stages = tuple(tuple(map(_convolution, stage)) for stage in stages)
        self.dense = require_wholes(dense, "CNN.dense")
        self.batch_normalization = batch_normalization
        self.kernel_regularization = kernel_regularization
        self.activation = activation
        self.pooling = pooling
        self.final_pool = final_pool
        self.padding = padding
        style = self.style(
            activation=activation,
            use_bias=not batch_normalization,
            kernel_regularization=kernel_regularization,
        )
        layers = convolution_stages(
            self.stages,
            style,
            normalize=batch_normalization,
            pooling=pooling,
            final_pool=final_pool,
            dtype=self.dtype_policy,
            padding=padding,
        )
        neck = dense_neck(self.dense, style, self.dtype_policy)
        dim = self.dense[-1] if self.dense else layers[-1][-2 if final_pool else -1].width
        self.compose(layers, neck, dim=dim, minimum_size=smallest_side(layers))


def _convolution(entry) -> int | tuple[int, ...]:
    """Check a convolution of `CNN.stages`."""
    if not isinstance(entry, (list, tuple)):
        return require_whole(entry, "each entry of CNN.stages")
    if len(entry) != 3:
        raise InputError(f"CNN.stages: {entry!r} is neither a width nor (width, kernel_size, stride).")
    return require_wholes(entry, "CNN.stages")


@keras.saving.register_keras_serializable(package="tfrobust")
class DigitsCNN(Encoder):
    """Encoder for the embedded 8x8 digits: 32, 64 and 128 channels, then one layer of 128 units.

    conv 32 - conv 64 / 2 - conv 128 / 2 - global average - dense 128; each 3x3 convolution is followed by batch
    normalization and the activation. Downsampling by strides instead of max pooling improves the robust accuracy after
    adversarial training on the digits by about 15 points.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> robust.models.DigitsCNN()(tf.ones([2, 8, 8, 1])).shape
        TensorShape([2, 128])

    Args:
        activation: name of a Keras activation.
        pooling: downsampling between stages: "stride", "max" or "average".
        **kwargs: as in `Encoder`.
    """

    def __init__(self, *, activation: str = "relu", pooling: str = "stride", **kwargs):
        super().__init__(**kwargs)
        self.activation = activation
        self.pooling = pooling
        style = self.style(activation=activation, use_bias=False)
        policy = self.dtype_policy
        layers = convolution_stages(
            ((32,), (64,), (128,)), style, normalize=True, pooling=pooling, final_pool=False, dtype=policy
        )
        self.compose(layers, dense_neck((128,), style, policy, global_pool=True), dim=128, minimum_size=4)


@keras.saving.register_keras_serializable(package="tfrobust")
class PaperCNN(Encoder):
    """The "standard CNN" of the ASCL paper, in the three variants of its authors' TensorFlow code.

    cifar10: conv 64, 64, pool, conv 128, 128, pool, dense 256, 256. cifar100: three convolutions per stage and three
    dense layers of 256. mnist: 32, 32, pool, 64, 64, pool, dense 200, 200. 3x3 'same', ReLU, max pooling, He-normal, no
    dropout, no batch normalization. The embedding is the last layer before the logits.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> robust.models.PaperCNN("mnist")(tf.ones([2, 28, 28, 1])).shape
        TensorShape([2, 200])

    Args:
        variant: "cifar10", "cifar100" or "mnist".
        kernel_regularization: weight of the sum of squared kernel entries, >= 0.
        activation: name of a Keras activation.
        **kwargs: as in `Encoder`.

    Raises:
        ValueError: an unknown variant.

    Source: Bui et al. 2021 (ASCL), appendix, after Carlini and Wagner 2017; widths from the first author's
        Crossing-Collaborative-Ensemble code.
    """

    def __init__(
        self,
        variant: str = "cifar10",
        *,
        kernel_regularization: float = 1e-4,
        activation: str = "relu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.variant = require_choice(variant, "PaperCNN.variant", tuple(PAPER_VARIANTS))
        self.kernel_regularization = kernel_regularization
        self.activation = activation
        stages, dense = PAPER_VARIANTS[variant]
        style = self.style(activation=activation, kernel_regularization=kernel_regularization)
        policy = self.dtype_policy
        layers = convolution_stages(stages, style, normalize=False, pooling="max", final_pool=True, dtype=policy)
        self.compose(layers, dense_neck(dense, style, policy), dim=dense[-1], minimum_size=2 ** len(stages))
