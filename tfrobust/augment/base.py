"""Augmentations: a draw of random numbers, then a deterministic change of the images by that draw."""

import tensorflow as tf

from tfrobust.ops import distribution, hashing, randomness
from tfrobust.ops.configured import Configured
from tfrobust.ops.shapes import shape_of


class Augmentation(Configured):
    """Base of all augmentations. A draw can be given by hand, which is how they are tested.

    Subclasses are frozen dataclasses with `draw` and `apply`; the shape and the range [0, 1] are kept.

    Example:
        >>> import dataclasses, keras, tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> @keras.saving.register_keras_serializable(package="mine")
        ... @dataclasses.dataclass(frozen=True, kw_only=True)
        ... class Dim(robust.augment.Augmentation):
        ...     lowest: float = 0.5
        ...
        ...     def draw(self, key, images_shape):
        ...         return {"factor": tf.random.stateless_uniform([images_shape[0], 1, 1, 1], key, self.lowest)}
        ...
        ...     def apply(self, images, draw):
        ...         return images * draw["factor"]
        >>> Dim()(tf.ones([2, 8, 8, 1]), tf.constant([0, 1])).shape
        TensorShape([2, 8, 8, 1])
    """

    def draw(self, key: tf.Tensor, images_shape) -> dict:
        """The random numbers for one batch.

        Args:
            key: int32 [2], one key for the global batch, or int32 [b, 2], one per example.
            images_shape: (b, h, w, c); b may be a scalar tensor, the others are integers.

        Returns:
            Tensors [b, ...] by name.
        """
        raise NotImplementedError

    def apply(self, images: tf.Tensor, draw: dict) -> tf.Tensor:
        """The images changed by a draw.

        Args:
            images: float32 [b, h, w, c] in [0, 1].
            draw: as `draw` returns it.

        Returns:
            float32 [b, h, w, c] in [0, 1].
        """
        raise NotImplementedError

    def __call__(self, images: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        """Draws, then applies; a function of the images and the key alone."""
        images = tf.convert_to_tensor(images)
        return self.apply(images, self.draw(key, shape_of(images)))


def draw_uniform(key: tf.Tensor, count, shape, purpose: str) -> tf.Tensor:
    """float32 [b, *shape] on [0, 1), from one key for the global batch or one per example."""
    if key.shape.rank == 1:
        key = randomness.example_keys(key, distribution.global_rows(count))
    return hashing.uniform(key, shape, purpose)
