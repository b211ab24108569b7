"""LeNet for 28x28 and 32x32 images (LeCun et al., 1998)."""

import keras

from tfrobust.common.settings import require_wholes
from tfrobust.errors import InputError
from tfrobust.models.cnn import dense_neck
from tfrobust.models.shared.blocks import ConvolutionUnit
from tfrobust.models.shared.encoder import Encoder


@keras.saving.register_keras_serializable(package="tfrobust")
class LeNet(Encoder):
    """LeNet-5 with ReLU and max pooling in place of tanh and trained subsampling.

    conv 5x5 'same' (6) - pool - conv 5x5 'valid' (16) - pool - dense 120 - dense 84. At 28x28x1 the maps are those of
    LeNet-5 on its 32x32 frame, and with ten logits the network has 61,706 parameters.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> robust.models.LeNet()(tf.ones([2, 28, 28, 1])).shape
        TensorShape([2, 84])

    Args:
        filters: output channels of the two convolutions.
        dense: units of the fully connected layers, at least one; the last is the embedding.
        kernel_regularization: weight of the sum of squared kernel entries, >= 0.
        activation: name of a Keras activation.
        **kwargs: as in `Encoder`.

    Raises:
        ValueError: not exactly two filter counts, or no dense layer.

    Source: LeCun et al. 1998, section II.B.
    """

    def __init__(
        self,
        *,
        filters: tuple[int, ...] = (6, 16),
        dense: tuple[int, ...] = (120, 84),
        kernel_regularization: float = 0.0,
        activation: str = "relu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filters = require_wholes(filters, "LeNet.filters")
        self.dense = require_wholes(dense, "LeNet.dense")
        if len(self.filters) != 2 or not self.dense:
            raise InputError(
                f"LeNet takes two filter counts and at least one dense layer, got {filters!r} and {dense!r}."
            )
        self.kernel_regularization = kernel_regularization
        self.activation = activation
        style = self.style(activation=activation, kernel_regularization=kernel_regularization)
        policy = self.dtype_policy
        stages = [
            [
                ConvolutionUnit(width, size=5, padding=padding, normalize=False, style=style, dtype=policy),
                keras.layers.MaxPooling2D(2, dtype=policy),
            ]
            for width, padding in zip(self.filters, ("same", "valid"), strict=True)
        ]
        # (12 / 2 - 4) / 2 = 1: the second pooling of a smaller image would have no output.
        self.compose(stages, dense_neck(self.dense, style, policy), dim=self.dense[-1], minimum_size=12)
