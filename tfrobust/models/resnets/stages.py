"""Stems and stages of the ResNets."""

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.models.shared.blocks import ConvolutionStyle, ConvolutionUnit

STEMS = ("cifar", "imagenet")


@keras.saving.register_keras_serializable(package="tfrobust")
class SymmetricMaxPooling(Configured, keras.layers.Layer):
    """Max pooling with size // 2 empty places on every side of the map, as PyTorch pads.

    Keras's 'same' pads none before and one after for 3x3 with stride 2 on even sizes, so that its windows are shifted.

    Args:
        size: side of the square window in pixels, >= 1.
        stride: in pixels, >= 1.
    """

    def __init__(self, size: int = 3, *, stride: int = 2, name: str | None = None, **kwargs):
        super().__init__(name=name, **kwargs)
        self.size = size
        self.stride = stride
        self.margin = size // 2

    def compute_output_shape(self, input_shape):
        """Return the shape after pooling."""
        count, *sides, channels = input_shape
        return (count, *(side and (side + 2 * self.margin - self.size) // self.stride + 1 for side in sides), channels)

    def call(self, hidden):
        """Apply the pooling."""
        around = [[0, 0], *[[self.margin, self.margin]] * 2, [0, 0]]
        hidden = tf.pad(hidden, around, constant_values=hidden.dtype.min)
        return tf.nn.max_pool2d(hidden, self.size, self.stride, "VALID")


def stem_layers(stem: str, width: int, style: ConvolutionStyle, dtype, *, plain: bool = False) -> list:
    """Create a convolution, for ImageNet with pooling after it.

    Args:
        stem: "cifar" (3x3, stride 1) or "imagenet" (7x7, stride 2, then 3x3 max pooling with stride 2).
        width: output channels.
        style: settings shared by the encoder's units; `symmetric` also decides the padding of the pooling.
        dtype: the layers' dtype policy.
        plain: omit normalization and activation, with which the first block begins.

    Returns:
        One or two unbuilt layers.
    """
    size, stride = (3, 1) if stem == "cifar" else (7, 2)
    layers = [
        ConvolutionUnit(
            width, size=size, stride=stride, normalize=not plain, activate=not plain, style=style, dtype=dtype
        )
    ]
    if stem == "imagenet" and style.symmetric:
        layers.append(SymmetricMaxPooling(3, stride=2, dtype=dtype))
    elif stem == "imagenet":
        layers.append(keras.layers.MaxPooling2D(3, strides=2, padding="same", dtype=dtype))
    return layers


def stages(
    stem: list, blocks: Sequence[int], widths: Sequence[int], path: Callable, block: Callable[..., keras.layers.Layer]
) -> list[list]:
    """Create the stages of a ResNet; every stage but the first begins with stride 2.

    A block has a projection where its path changes the width or the resolution, else an identity.

    Args:
        stem: unbuilt layers before the first block, at least one `ConvolutionUnit` among them.
        blocks: number of blocks by stage.
        widths: argument of `path` by stage.
        path: called as path(width, stride); returns (width, size, stride) of each convolution of a block's path.
        block: called as block(path, project=).

    Returns:
        One list of unbuilt layers per stage; the stem is in the first.
    """
    stage_layers, layers = [], list(stem)
    channels = [layer.width for layer in stem if isinstance(layer, ConvolutionUnit)][-1]
    for position, (count, width) in enumerate(zip(blocks, widths, strict=True)):
        for index in range(count):
            stride = 2 if position > 0 and index == 0 else 1
            convolutions = path(width, stride)
            out = convolutions[-1][0]
            layers.append(block(convolutions, project=stride > 1 or out != channels))
            channels = out
        stage_layers.append(layers)
        layers = []
    return stage_layers


def doubled_widths(width: int, count: int) -> list[int]:
    """Return widths of `count` stages, each twice the one before."""
    return [width * 2**position for position in range(count)]


def basic_path(width: int, stride: int) -> tuple[tuple[int, int, int], ...]:
    """Return two 3x3 convolutions, the first with the stride."""
    return (width, 3, stride), (width, 3, 1)
