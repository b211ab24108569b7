"""ResNet-50 in the two readings that the ASCL paper allows, its second version, and that of Campbell et al. 2020."""

import dataclasses
import functools

import keras

from tfrobust.common.settings import require_choice, require_whole
from tfrobust.errors import InputError
from tfrobust.models.resnets.resnet import basic_stages, blocks_per_stage
from tfrobust.models.resnets.stages import STEMS, doubled_widths, stages, stem_layers
from tfrobust.models.shared.blocks import ConvolutionStyle, ConvolutionUnit, PreActivationBlock, ResidualBlock
from tfrobust.models.shared.encoder import Encoder

READINGS = ("bottleneck", "cifar_6n+2", "bottleneck_v2", "pooled")
BLOCKS = (3, 4, 6, 3)


def bottleneck_stages(
    stem: str, style: ConvolutionStyle, dtype, *, width: int = 64, preactivated: bool = False
) -> list[list]:
    """Create the stem and four stages of 3, 4, 6, 3 bottleneck blocks (1x1, 3x3, 1x1 with four times the width).

    Each stage begins with a projection with batch normalization. From the second stage on, its 3x3 convolution has
    stride 2.

    Args:
        stem: "cifar" (3x3, stride 1) or "imagenet" (7x7, stride 2, then 3x3 max pooling with stride 2).
        style: settings shared by the units.
        dtype: the layers' dtype policy.
        width: channels of the stem and, before the factor four, of the first stage.
        preactivated: pre-activation blocks, whose projections and stem have no normalization of their own.

    Returns:
        Four lists of unbuilt layers; the stem is in the first.
    """

    def path(width, stride):
        return (width, 1, 1), (width, 3, stride), (4 * width, 1, 1)

    make = PreActivationBlock if preactivated else functools.partial(ResidualBlock, normalize_projection=True)
    block = functools.partial(make, style=style, dtype=dtype)
    first = stem_layers(stem, width, style, dtype, plain=preactivated)
    return stages(first, BLOCKS, doubled_widths(width, len(BLOCKS)), path, block)


def pooled_stages(style: ConvolutionStyle, dtype) -> list[list]:
    """Create the stem and four stages of 3, 4, 6, 3 bottlenecks of constant width, all shortcuts identities.

    Two stages are connected by a 1x1 unit to twice the width, then 2x2 average pooling.

    Returns:
        Four lists of unbuilt layers, 64, 128, 256 and 512 channels wide; the stem is in the first.
    """
    common = {"style": style, "dtype": dtype}
    layers, stage_layers = [ConvolutionUnit(64, **common)], []
    for position, blocks in enumerate(BLOCKS):
        width = 64 * 2**position
        if position:
            layers = [ConvolutionUnit(width, size=1, **common), keras.layers.AveragePooling2D(2, dtype=dtype)]
        path = ((width // 4, 1, 1), (width // 4, 3, 1), (width, 1, 1))
        stage_layers.append(layers + [ResidualBlock(path, **common) for _ in range(blocks)])
    return stage_layers


@keras.saving.register_keras_serializable(package="tfrobust")
class ResNet50(Encoder):
    """ResNet-50 in four readings; the first two are those of the ASCL paper, whose released code defines no ResNet50.

    "bottleneck": the ImageNet network of 3, 4, 6, 3 bottleneck blocks, 2048 features, convolutions without bias, stride
    on the 3x3 convolution. The paper's projection heads with 2048 inputs suggest this reading.
    "cifar_6n+2": the network of `ResNet` with n = 8, 64 features. The ResNet20 family of the authors reaches depth 50
    this way.
    "bottleneck_v2": the bottleneck network with normalization and activation before each convolution and after the last
    stage, none in the stem. Identities begin at a block's input, projections after its first activation.
    "pooled": the network of Campbell et al. 2020, bottlenecks of constant width whose inner convolutions have a quarter
    of it, average pooling between the stages, batch norm without scale; 512 features.

    Example:
        >>> from tfrobust import keras as robust
        >>> encoder = robust.models.ResNet50()
        >>> encoder.dim, encoder.stage_count
        (2048, 4)

    Args:
        reading: "bottleneck", "cifar_6n+2", "bottleneck_v2" or "pooled".
        stem: of the first and third reading: "cifar" (3x3, no pooling) or "imagenet" (7x7, stride 2, pooling).
        width: of the first and third reading: channels of the stem, a 32nd of the features; 128 is called "2x" wide.
        symmetric: pad stride 2 symmetrically, as PyTorch does, which weights trained in PyTorch need. False: as
            Keras does (0 before, 1 after 3x3 on even sizes).
        kernel_regularization: weight of the sum of squared kernel entries, >= 0.
        activation: name of a Keras activation.
        **kwargs: as in `Encoder`.

    Raises:
        ValueError: an unknown reading or stem, a width that is no positive integer, or another stem or width than the
            default with the readings for small images.

    Source: He et al. 2016, table 1 and section 4.2; for the second version He et al. 2016 (Identity mappings in deep
        residual networks); Bui et al. 2021 (ASCL), section 4 and appendix; Manta's released code of
        Campbell, Manta and Iannantuono 2020, after Finlay and Oberman's, https://arxiv.org/abs/1905.11468.
    """

    def __init__(
        self,
        reading: str = "bottleneck",
        *,
        stem: str = "cifar",
        width: int = 64,
        symmetric: bool = False,
        kernel_regularization: float = 1e-4,
        activation: str = "relu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.reading = require_choice(reading, "ResNet50.reading", READINGS)
        self.stem = require_choice(stem, "ResNet50.stem", STEMS)
        self.width = require_whole(width, "ResNet50.width")
        self.symmetric = symmetric
        self.kernel_regularization = kernel_regularization
        self.activation = activation
        bottleneck, preactivated = reading.startswith("bottleneck"), reading == "bottleneck_v2"
        if stem == "imagenet" and not bottleneck:
            raise InputError(f"ResNet50.stem='imagenet' belongs to reading='bottleneck', not to {reading!r}.")
        if width != 64 and not bottleneck:
            raise InputError(f"ResNet50.width belongs to reading='bottleneck', not to {reading!r}.")
        style = self.style(
            activation=activation,
            use_bias=reading == "cifar_6n+2",
            kernel_regularization=kernel_regularization,
            symmetric=symmetric,
        )
        policy = self.dtype_policy
        if bottleneck:
            stage_layers = bottleneck_stages(stem, style, policy, width=width, preactivated=preactivated)
            dim = 32 * width
            minimum_size = 32 if stem == "imagenet" else 8
        elif reading == "pooled":
            stage_layers, dim, minimum_size = pooled_stages(dataclasses.replace(style, scale=False), policy), 512, 8
        else:
            stage_layers, dim = basic_stages(blocks_per_stage(50), (16, 32, 64), style, policy), 64
            minimum_size = 4
        neck = style.activated_normalization(policy) if preactivated else []
        neck.append(keras.layers.GlobalAveragePooling2D(dtype=policy))
        self.compose(stage_layers, neck, dim=dim, minimum_size=minimum_size)
