"""Residual networks of depth 18 for clips, compatible with torchvision's: R(2+1)D and R3D."""

import functools

import keras

from tfrobust.common.settings import require_choice, require_whole
from tfrobust.models.resnets.stages import doubled_widths, stages
from tfrobust.models.shared.blocks import ConvolutionUnit, ResidualBlock
from tfrobust.models.shared.encoder import Encoder

STEMS = {"kinetics": (7, 2), "small": (3, 1)}  # side of the first kernel in pixels, and its stride
_BLOCKS = (2, 2, 2, 2)
_STEM_MIDDLE = 45 / 64  # channels between the two convolutions of the stem of R(2+1)D, as a share of its width


class _ClipResNet18(Encoder):
    """Base of the two networks; `factorized` says whether convolutions in space and in time are separate."""

    input_rank = 5
    factorized: bool

    def __init__(
        self,
        stem: str = "kinetics",
        *,
        width: int = 64,
        dilated: bool = False,
        kernel_regularization: float = 0.0,
        activation: str = "relu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        name = type(self).__name__
        self.stem = require_choice(stem, f"{name}.stem", tuple(STEMS))
        self.width = require_whole(width, f"{name}.width")
        self.dilated = dilated
        self.kernel_regularization = kernel_regularization
        self.activation = activation
        policy = self.dtype_policy
        style = self.style(
            activation=activation, use_bias=False, kernel_regularization=kernel_regularization, symmetric=True
        )
        block = functools.partial(ResidualBlock, normalize_projection=True, style=style, dtype=policy)
        self.compose(
            stages(self._stem_layers(style), _BLOCKS, doubled_widths(width, len(_BLOCKS)), self._steps, block),
            [keras.layers.GlobalAveragePooling3D(dtype=policy)],
            dim=8 * width,
            minimum_size=8 if stem == "small" else 16,
        )

    def _stem_layers(self, style) -> list[ConvolutionUnit]:
        size, stride = STEMS[self.stem]
        unit = functools.partial(ConvolutionUnit, style=style, dtype=self.dtype_policy)
        if not self.factorized:
            return [unit(self.width, size=(3, size, size), stride=(1, stride, stride))]
        middle = max(1, int(_STEM_MIDDLE * self.width))
        space = unit(middle, size=(1, size, size), stride=(1, stride, stride))
        return [space, unit(self.width, size=(3, 1, 1), stride=(1, 1, 1))]

    def _steps(self, width: int, stride: int) -> tuple[tuple, ...]:
        """Return the convolutions of a block: one in space and time, or one in space and one in time, twice."""
        inputs = width // 2 if stride > 1 else width
        # In time the last stage does not stride if its first kernel is dilated.
        dilated = self.dilated and stride > 1 and width == 8 * self.width
        in_time, dilation = (1, 2) if dilated else (stride, 1)
        if not self.factorized:
            return (width, (3, 3, 3), (in_time, stride, stride), dilation), (width, (3, 3, 3), (1, 1, 1))
        middle = middle_width(inputs, width)
        return (
            (middle, (1, 3, 3), (1, stride, stride)),
            (width, (3, 1, 1), (in_time, 1, 1), dilation),
            (middle, (1, 3, 3), (1, 1, 1)),
            (width, (3, 1, 1), (1, 1, 1)),
        )


def middle_width(inputs: int, outputs: int) -> int:
    """Return the channels between a 3x3 convolution in space and one of 3 frames, for the parameters of a 3x3x3 one.

    Source: Tran et al. 2018, section 3.5, rounded down.
    """
    return 27 * inputs * outputs // (9 * inputs + 3 * outputs)


@keras.saving.register_keras_serializable(package="tfrobust")
class R2Plus1D18(_ClipResNet18):
    """R(2+1)D of depth 18 for clips: four stages, 512 features; convolutions in space and in time alternate.

    A stem, then stages of two blocks with width, 2 width, 4 width and 8 width channels. A block has two pairs of a
    1x3x3 and a 3x1x1 convolution, each with normalization, then global average pooling over frames and pixels;
    convolutions without bias, He-normal. Space and time are halved at the begin of stages 2 to 4, padded on both sides
    as in PyTorch. With 400 classes the network has 31,505,325 parameters.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> encoder = robust.models.R2Plus1D18(stem="small", width=8)
        >>> encoder(tf.ones([2, 4, 16, 16, 1])).shape
        TensorShape([2, 64])

    Args:
        stem: "kinetics" (7x7 pixels, stride 2) or "small" (3x3, stride 1), then 3 frames for both.
        width: channels of the first stage, >= 1; an eighth of the dimension of the embedding.
        dilated: keep the frames of stage 3 in stage 4; the first kernel in time of stage 4 is dilated by 2 instead.
        kernel_regularization: weight of the sum of squared kernel entries, >= 0.
        activation: name of a Keras activation.
        **kwargs: as in `Encoder`.

    Raises:
        ValueError: an unknown stem, or a width that is no positive integer.

    Source: Tran et al. 2018 (A closer look at spatiotemporal convolutions), section 3.5, in torchvision's form, where
        both pairs of a block have the same middle width. `dilated` as in TCLR's R3D.
    """

    factorized = True


@keras.saving.register_keras_serializable(package="tfrobust")
class R3D18(_ClipResNet18):
    """R3D of depth 18 for clips: four stages of blocks of two 3x3x3 convolutions, 512 features.

    Stem, widths, strides and padding are those of `R2Plus1D18`, without separate convolutions in time. With 400 classes
    the network has 33,371,472 parameters.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> encoder = robust.models.R3D18(stem="small", width=8, dilated=True)
        >>> encoder(tf.ones([2, 4, 16, 16, 1])).shape
        TensorShape([2, 64])

    Args:
        stem: "kinetics" (7x7 pixels, stride 2) or "small" (3x3, stride 1), each over 3 frames.
        width: channels of the first stage, >= 1; an eighth of the dimension of the embedding.
        dilated: keep the frames of stage 3 in stage 4; the first kernel of stage 4 is dilated by 2 in time instead.
        kernel_regularization: weight of the sum of squared kernel entries, >= 0.
        activation: name of a Keras activation.
        **kwargs: as in `Encoder`.

    Raises:
        ValueError: an unknown stem, or a width that is no positive integer.

    Source: Tran et al. 2018, section 3.2, in torchvision's form; `dilated` is the form of Dave et al. 2022 (TCLR).
    """

    factorized = False
