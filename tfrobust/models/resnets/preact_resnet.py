"""Pre-activation ResNet of depth 18 for small images."""

import functools

import keras

from tfrobust.common.settings import require_choice, require_whole
from tfrobust.models.resnets.stages import basic_path, doubled_widths, stages
from tfrobust.models.shared.blocks import SHORTCUTS, PreActivationBlock, plain_convolution
from tfrobust.models.shared.encoder import Encoder

_BLOCKS = (2, 2, 2, 2)


@keras.saving.register_keras_serializable(package="tfrobust")
class PreActResNet18(Encoder):
    """ResNet-18 with normalization and activation before each convolution: four stages, 512 features.

    A 3x3 stem, then stages of two blocks with width, 2 width, 4 width and 8 width channels, global average pooling;
    convolutions without bias, He-normal. Stride 2 pads one pixel on every side, as PyTorch does. With ten logits it has
    11,172,170 trainable parameters, 11,171,146 without the final normalization.

    Example:
        >>> from tfrobust import keras as robust
        >>> encoder = robust.models.PreActResNet18(shortcut="activated", final_normalization=False)
        >>> encoder.dim, encoder.stage_count
        (512, 4)

    Args:
        width: channels of the first stage, >= 1; an eighth of the dimension of the embedding. 128 is the "wide"
            variant.
        shortcut: "standard": identities begin at the block's input, projections after its first normalization and
            activation. "activated": identities begin there, too (the released NFM and NoisyMix). "raw": projections
            begin at the input, too (RobustBench's PreActBlock, such as Wong et al. 2020).
        final_normalization: normalization and activation after the last stage, as in the paper. The released NFM and
            NoisyMix, and others, have none.
        kernel_regularization: weight of the sum of squared kernel entries, >= 0.
        activation: name of a Keras activation.
        **kwargs: as in `Encoder`.

    Raises:
        ValueError: an unknown shortcut, or a width that is no positive integer.

    Source: He et al. 2016 (Identity mappings in deep residual networks), with the widths of ResNet-18; Erichson et al.
        2022, section 4.1 and its released code.
    """

    def __init__(
        self,
        *,
        width: int = 64,
        shortcut: str = "standard",
        final_normalization: bool = True,
        kernel_regularization: float = 0.0,
        activation: str = "relu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.width = require_whole(width, "PreActResNet18.width")
        self.shortcut = require_choice(shortcut, "PreActResNet18.shortcut", SHORTCUTS)
        self.final_normalization = final_normalization
        self.kernel_regularization = kernel_regularization
        self.activation = activation
        policy = self.dtype_policy
        style = self.style(
            activation=activation, use_bias=False, kernel_regularization=kernel_regularization, symmetric=True
        )
        stem = plain_convolution(width, style=style, dtype=policy)
        block = functools.partial(PreActivationBlock, shortcut=shortcut, style=style, dtype=policy)
        stage_layers = stages([stem], _BLOCKS, doubled_widths(width, len(_BLOCKS)), basic_path, block)
        neck = style.activated_normalization(policy) if final_normalization else []
        neck.append(keras.layers.GlobalAveragePooling2D(dtype=policy))
        self.compose(stage_layers, neck, dim=8 * width, minimum_size=8)
