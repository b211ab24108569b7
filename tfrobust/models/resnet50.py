"""ResNet-50 in the two readings that the ASCL paper allows, and its second version."""

import functools

import keras

from tfrobust.models.blocks import (
    ConvolutionStyle,
    ConvolutionUnit,
    PreActivationBlock,
    ResidualBlock,
    require_choice,
)
from tfrobust.models.encoder import Encoder
from tfrobust.models.resnet import basic_stages, blocks_per_stage

READINGS = ("bottleneck", "cifar_6n+2", "bottleneck_v2")
STEMS = ("cifar", "imagenet")


def bottleneck_stages(stem: str, style: ConvolutionStyle, dtype, *, preactivated: bool = False) -> list[list]:
    """The stem and four stages of 3, 4, 6, 3 bottleneck blocks (1x1, 3x3, 1x1 with four times the width).

    Each stage begins with a projection with batch normalisation; from the second on its 3x3 convolution has
    stride 2.

    Args:
        stem: "cifar" (3x3, stride 1) or "imagenet" (7x7, stride 2, then 3x3 max pooling with stride 2).
        style: what the units share.
        dtype: the layers' dtype policy.
        preactivated: pre-activation blocks, whose projections and stem have no normalisation of their own.

    Returns:
        Four lists of unbuilt layers; the stem is in the first.
    """
    size, stride = (3, 1) if stem == "cifar" else (7, 2)
    normalized = {"normalize": not preactivated, "activate": not preactivated}
    layers = [ConvolutionUnit(64, size=size, stride=stride, **normalized, style=style, dtype=dtype)]
    if stem == "imagenet":
        layers.append(keras.layers.MaxPooling2D(3, strides=2, padding="same", dtype=dtype))
    make = PreActivationBlock if preactivated else functools.partial(ResidualBlock, normalize_projection=True)
    stages = []
    for position, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            stride = 2 if position > 0 and block == 0 else 1
            path = ((width, 1, 1), (width, 3, stride), (4 * width, 1, 1))
            layers.append(make(path, project=block == 0, style=style, dtype=dtype))
        stages.append(layers)
        layers = []
    return stages


@keras.saving.register_keras_serializable(package="tfrobust")
class ResNet50(Encoder):
    """ResNet-50; the "ResNet50" of the ASCL paper, which no released code defines, may be either of the first two.

    "bottleneck": the ImageNet network of 3, 4, 6, 3 bottleneck blocks, 2048 features, convolutions without
    bias, stride on the 3x3 convolution; the paper's projection heads of 2048 inputs point here.
    "cifar_6n+2": the network of `ResNet` with n = 8, 64 features; its authors' ResNet20 family reaches 50 so.
    "bottleneck_v2": the bottleneck network with normalisation and activation before each convolution and behind the
    last stage, none in the stem; identities begin at a block's input, projections behind its first activation.

    Example:
        >>> from tfrobust import keras as robust
        >>> encoder = robust.models.ResNet50()
        >>> encoder.dim, encoder.stage_count
        (2048, 4)

    Args:
        reading: "bottleneck", "cifar_6n+2" or "bottleneck_v2".
        stem: of the bottleneck readings: "cifar" (3x3, no pooling) or "imagenet" (7x7, stride 2, pooling).
        kernel_regularization: weight of the sum of squared kernel entries, >= 0.
        activation: name of a Keras activation.
        **kwargs: as in `Encoder`.

    Raises:
        ValueError: an unknown reading or stem, or the ImageNet stem with the CIFAR reading.

    Source: He et al. 2016, table 1 and section 4.2; for the second version He et al. 2016 (Identity mappings in deep
        residual networks); Bui et al. 2021 (ASCL), section 4 and appendix.
    """

    def __init__(
        self,
        reading: str = "bottleneck",
        *,
        stem: str = "cifar",
        kernel_regularization: float = 1e-4,
        activation: str = "relu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.reading = require_choice(reading, "ResNet50.reading", READINGS)
        self.stem = require_choice(stem, "ResNet50.stem", STEMS)
        self.kernel_regularization = kernel_regularization
        self.activation = activation
        bottleneck, preactivated = reading != "cifar_6n+2", reading == "bottleneck_v2"
        if stem == "imagenet" and not bottleneck:
            raise ValueError("ResNet50.stem='imagenet' belongs to reading='bottleneck', not to 'cifar_6n+2'.")
        style = self.style(activation=activation, use_bias=not bottleneck, kernel_regularization=kernel_regularization)
        policy = self.dtype_policy
        if bottleneck:
            stages, dim = bottleneck_stages(stem, style, policy, preactivated=preactivated), 2048
            minimum_size = 32 if stem == "imagenet" else 8
        else:
            stages, dim = basic_stages(blocks_per_stage(50), (16, 32, 64), style, policy), 64
            minimum_size = 4
        neck = style.activated_normalization(policy) if preactivated else []
        neck.append(keras.layers.GlobalAveragePooling2D(dtype=policy))
        self.compose(stages, neck, dim=dim, minimum_size=minimum_size)
