"""Wide ResNets of depth 6n+4."""

import dataclasses
import functools

import keras

from tfrobust.common.settings import require_choice, require_whole
from tfrobust.errors import InputError
from tfrobust.models.resnets.stages import doubled_widths, stages
from tfrobust.models.shared.blocks import ConvolutionStyle, PreActivationBlock, plain_convolution
from tfrobust.models.shared.encoder import Encoder

VARIANTS = ("paper", "noisymix")
_STEM = 16


def wide_blocks(depth: int) -> int:
    """Return n of depth = 6n + 4, the number of blocks in each of the three stages.

    Raises:
        ValueError: another depth.
    """
    if require_whole(depth, "WideResNet.depth") < 10 or (depth - 4) % 6:
        raise InputError(f"WideResNet.depth must be 6n+4 such as 10, 16, 28 or 40, got {depth}.")
    return (depth - 4) // 6


def wide_stages(blocks: int, width: int, dropout: float, variant: str, style: ConvolutionStyle, dtype) -> list[list]:
    """Create a 3x3 stem of 16 channels and three stages of 16, 32 and 64 times `width` channels.

    Args:
        blocks: blocks in each stage, >= 1.
        width: as in `WideResNet`.
        dropout: as in `WideResNet`.
        variant: as in `WideResNet`.
        style: settings shared by the units.
        dtype: the layers' dtype policy.

    Returns:
        Three lists of unbuilt layers; the stem is in the first.
    """
    paper = variant == "paper"

    def path(width, stride):
        first, second = (stride, 1) if paper else (1, stride)
        return (width, 3, first), (width, 3, second)

    block = functools.partial(
        PreActivationBlock,
        shortcut="standard" if paper else "raw",
        dropout=dropout,
        dropout_first=not paper,
        style=style,
        dtype=dtype,
    )
    stem = plain_convolution(_STEM, style=style, dtype=dtype)
    return stages([stem], [blocks] * 3, doubled_widths(_STEM * width, 3), path, block)


@keras.saving.register_keras_serializable(package="tfrobust")
class WideResNet(Encoder):
    """Wide ResNet of depth 6n+4: n pre-activation blocks in each of three stages, 64 width features.

    Final normalization and activation, global average pooling, He-normal kernels. With ten logits WRN-28-10 has
    36,479,194 trainable parameters, WRN-28-2 1,467,610.

    Example:
        >>> from tfrobust import keras as robust
        >>> encoder = robust.models.WideResNet(depth=16, width=2)
        >>> encoder.dim, encoder.stage_count
        (128, 3)

    Args:
        depth: 10, 16, 22, 28, 34, 40, ...
        width: the widening factor, >= 1.
        dropout: share of the entries dropped between the two convolutions of a block, in [0, 1).
        variant: "paper": convolutions without bias, stride on the first convolution of a block, projections after the
            first normalization and activation, dropout after the second. "noisymix": the released code of Erichson et
            al. 2022, with biases, stride on the second convolution, shortcuts from the block's input, dropout before
            the second normalization, and a final normalization with momentum 0.1 (0.9 in PyTorch).
        symmetric: pad stride 2 by one pixel on every side, as PyTorch does. False: none before and one after on even
            sizes, as Keras and DeepMind's networks in either framework do.
        kernel_regularization: weight of the sum of squared kernel entries, >= 0.
        activation: name of a Keras activation.
        **kwargs: as in `Encoder`.

    Raises:
        ValueError: a depth that is not 6n+4, an unknown variant, or a dropout outside [0, 1).

    Source: Zagoruyko and Komodakis 2016 and its released code; the released code of
        Erichson et al. 2022, whose 28x2 is a network of width 4 and dropout 0.1 in that code.
    """

    def __init__(
        self,
        depth: int = 28,
        width: int = 10,
        *,
        dropout: float = 0.0,
        variant: str = "paper",
        symmetric: bool = True,
        kernel_regularization: float = 0.0,
        activation: str = "relu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        blocks = wide_blocks(depth)
        self.depth = depth
        self.width = require_whole(width, "WideResNet.width")
        self.dropout = dropout
        self.variant = require_choice(variant, "WideResNet.variant", VARIANTS)
        self.symmetric = symmetric
        self.kernel_regularization = kernel_regularization
        self.activation = activation
        policy, paper = self.dtype_policy, variant == "paper"
        style = self.style(
            activation=activation, use_bias=not paper, kernel_regularization=kernel_regularization, symmetric=symmetric
        )
        final = style if paper else dataclasses.replace(style, momentum=0.1)
        self.compose(
            wide_stages(blocks, width, dropout, variant, style, policy),
            [*final.activated_normalization(policy), keras.layers.GlobalAveragePooling2D(dtype=policy)],
            dim=64 * width,
            minimum_size=4,
        )
