"""GroupSort: an activation with the Lipschitz constant 1 that keeps the norm of gradients."""

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_whole
from tfrobust.errors import InputError


@keras.saving.register_keras_serializable(package="tfrobust")
class GroupSort(Configured, keras.layers.Layer):
    """Sort the channels within groups of neighbors, in ascending order.

    Its Jacobian is a permutation, so that it has the Lipschitz constant 1 in every norm and no gradient vanishes. With
    layers of small spectral norm, such as `keras.layers.SpectralNormalization`, it makes networks whose margin proves
    robustness in L2 (`CertifiedAccuracy.method = 'lipschitz'`).

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> robust.layers.GroupSort(2)(np.array([[3.0, 1.0, 0.0, 2.0]])).numpy().tolist()
        [[1.0, 3.0, 0.0, 2.0]]

    Args:
        size: channels of a group, >= 2, which divides their number; None: all channels.

    Returns:
        Of `call`: the shape of the input, which has at least two axes, the channels last.

    Raises:
        ValueError: a size below 2; when built, channels that groups of this size do not fill.

    Source: Anil et al. 2019, https://arxiv.org/abs/1811.05381, section 4.
    """

    def __init__(self, size: int | None = 2, *, name: str | None = None, **kwargs):
        super().__init__(name=name, **kwargs)
        self.size = None if size is None else require_whole(size, "GroupSort.size", 2)

    def build(self, input_shape):
        """Check that groups fill the channels."""
        channels = input_shape[-1]
        if channels is None or self.size is not None and channels % self.size:
            raise InputError(f"GroupSort.size is {self.size}, which does not divide the {channels} channels.")
        super().build(input_shape)

    def compute_output_shape(self, input_shape):
        """Return the shape of the input."""
        return input_shape

    def call(self, inputs):
        """Return the sorted values, as `sorted_groups` does."""
        return sorted_groups(inputs, self.size)


def sorted_groups(values: tf.Tensor, size: int | None) -> tf.Tensor:
    """Return values [..., c], sorted within groups of neighbors of the last axis.

    Args:
        values: of any shape with a known last axis.
        size: of a group; None: c.
    """
    shape, channels = tf.shape(values), values.shape[-1]
    size = channels if size is None else size
    groups = tf.reshape(values, tf.concat([shape[:-1], [channels // size, size]], 0))
    if size == 2:  # faster than a general sort
        groups = tf.stack([tf.reduce_min(groups, -1), tf.reduce_max(groups, -1)], -1)
    else:
        groups = tf.sort(groups)
    return tf.ensure_shape(tf.reshape(groups, shape), values.shape)
