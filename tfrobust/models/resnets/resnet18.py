"""Post-activation ResNet of depth 18, compatible with PyTorch's networks."""

import functools

import keras

from tfrobust.common.settings import require_choice, require_whole
from tfrobust.models.resnets.stages import STEMS, basic_path, doubled_widths, stages, stem_layers
from tfrobust.models.shared.blocks import ResidualBlock
from tfrobust.models.shared.encoder import Encoder

_BLOCKS = (2, 2, 2, 2)


@keras.saving.register_keras_serializable(package="tfrobust")
class ResNet18(Encoder):
    """ResNet-18 with normalization and activation after each convolution: four stages, 512 features.

    A stem, then stages of two blocks of two 3x3 convolutions with width, 2 width, 4 width and 8 width channels, global
    average pooling; convolutions without bias, He-normal; projections with normalization. Stride 2 pads one pixel on
    every side, as PyTorch does. The network for small images has 11,173,962 trainable parameters with ten logits. The
    network for ImageNet has 11,689,512 with a thousand.

    Example:
        >>> from tfrobust import keras as robust
        >>> encoder = robust.models.ResNet18(stem="imagenet")
        >>> encoder.dim, encoder.stage_count
        (512, 4)

    Args:
        stem: "cifar" (3x3, stride 1) or "imagenet" (7x7, stride 2, then 3x3 max pooling with stride 2).
        width: channels of the first stage, >= 1; an eighth of the dimension of the embedding.
        kernel_regularization: weight of the sum of squared kernel entries, >= 0.
        activation: name of a Keras activation.
        **kwargs: as in `Encoder`.

    Raises:
        ValueError: an unknown stem, or a width that is no positive integer.

    Source: He et al. 2016 (Deep residual learning), table 1; the stem for small images as in the networks of TRADES and
        RobustBench.
    """

    def __init__(
        self,
        stem: str = "cifar",
        *,
        width: int = 64,
        kernel_regularization: float = 0.0,
        activation: str = "relu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.stem = require_choice(stem, "ResNet18.stem", STEMS)
        self.width = require_whole(width, "ResNet18.width")
        self.kernel_regularization = kernel_regularization
        self.activation = activation
        policy = self.dtype_policy
        style = self.style(
            activation=activation, use_bias=False, kernel_regularization=kernel_regularization, symmetric=True
        )
        first = stem_layers(stem, width, style, policy)
        block = functools.partial(ResidualBlock, normalize_projection=True, style=style, dtype=policy)
        self.compose(
            stages(first, _BLOCKS, doubled_widths(width, len(_BLOCKS)), basic_path, block),
            [keras.layers.GlobalAveragePooling2D(dtype=policy)],
            dim=8 * width,
            minimum_size=8 if stem == "cifar" else 32,
        )
