"""CIFAR ResNets of depth 6n+2 (post-activation, "v1")."""

import functools
import numbers

import keras

from tfrobust.common.settings import require_wholes
from tfrobust.errors import InputError
from tfrobust.models.resnets.stages import basic_path, stages
from tfrobust.models.shared.blocks import ConvolutionStyle, ConvolutionUnit, ResidualBlock
from tfrobust.models.shared.encoder import Encoder


def blocks_per_stage(depth: int) -> int:
    """Return n of depth = 6n + 2.

    Args:
        depth: number of layers: one stem, 6n convolutions in three stages, one logits layer.

    Returns:
        n >= 1.

    Raises:
        ValueError: another depth; the message names the nearest valid ones.
    """
    is_integer = isinstance(depth, numbers.Integral) and not isinstance(depth, bool)
    if is_integer and depth >= 8 and (depth - 2) % 6 == 0:
        return (depth - 2) // 6
    if not is_integer:
        raise InputError(f"ResNet.depth must be an integer 6n+2 such as 20 or 56, got {depth!r}.")
    below = 6 * ((depth - 2) // 6) + 2
    nearest = f"{below} and {below + 6}" if below >= 8 else "8"
    raise InputError(f"ResNet.depth must be 6n+2, got {depth}; nearest valid: {nearest}.")


def basic_stages(blocks: int, widths: tuple[int, ...], style: ConvolutionStyle, dtype) -> list[list]:
    """Create a 3x3 stem and, for each width, a stage of blocks of two 3x3 convolutions.

    Every stage but the first begins with stride 2 and a 1x1 projection without batch normalization.

    Args:
        blocks: blocks in each stage, >= 1.
        widths: output channels by stage; the stem has the first.
        style: settings shared by the units.
        dtype: the layers' dtype policy.

    Returns:
        One list of unbuilt layers per stage; the stem is in the first.
    """
    stem = ConvolutionUnit(widths[0], style=style, dtype=dtype)
    block = functools.partial(ResidualBlock, style=style, dtype=dtype)
    return stages([stem], [blocks] * len(widths), widths, basic_path, block)


@keras.saving.register_keras_serializable(package="tfrobust")
class ResNet(Encoder):
    """ResNet of depth 6n+2: n blocks in each of three stages, global average pooling, 64 features.

    Convolutions are 3x3 'same' with bias, He-normal. Stride 2 is padded as in Keras (0 before, 1 after on even sizes),
    not as in PyTorch (1, 1).

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> encoder = robust.models.ResNet(depth=8)
        >>> encoder(tf.ones([2, 32, 32, 3])).shape
        TensorShape([2, 64])

    Args:
        depth: 8, 14, 20, ..., 56, ...
        widths: output channels by stage; the last is the dimension of the embedding.
        kernel_regularization: weight of the sum of squared kernel entries, >= 0.
        activation: name of a Keras activation.
        **kwargs: as in `Encoder`.

    Raises:
        ValueError: a depth that is not 6n+2.

    Source: He et al. 2016, section 4.2, in the form of the ASCL authors' TensorFlow code: projections without batch
        normalization, where the paper has zero-padded identities.
    """

    def __init__(
        self,
        depth: int = 20,
        *,
        widths: tuple[int, ...] = (16, 32, 64),
        kernel_regularization: float = 1e-4,
        activation: str = "relu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        blocks = blocks_per_stage(depth)
        self.depth = depth
        self.widths = require_wholes(widths, "ResNet.widths")
        if not self.widths:
            raise InputError("ResNet.widths must hold one width per stage, got none.")
        self.kernel_regularization = kernel_regularization
        self.activation = activation
        style = self.style(activation=activation, kernel_regularization=kernel_regularization)
        self.compose(
            basic_stages(blocks, self.widths, style, self.dtype_policy),
            [keras.layers.GlobalAveragePooling2D(dtype=self.dtype_policy)],
            dim=self.widths[-1],
            minimum_size=2 ** (len(self.widths) - 1),
        )
