"""Base class of augmentations: sample random numbers, then apply a deterministic change of the images."""

from typing import ClassVar

import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.kinds import IMAGES, kind_of, takes
from tfrobust.errors import InputError
from tfrobust.ops import batch_checks, distribution, hashing, randomness
from tfrobust.ops.shapes import shape_of


class Augmentation(Configured):
    """Base of all augmentations: `draw` samples the random numbers, `apply` uses them.

    Tests can pass their own numbers to `apply`. Subclasses are frozen dataclasses with `draw` and `apply`, which keep
    the range [0, 1], and the shape unless `shape_after` is overridden. `kinds` names the kinds of examples that one
    supports.

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

    kinds: ClassVar[tuple[str, ...]] = (IMAGES.name,)

    def draw(self, key: tf.Tensor, images_shape) -> dict:
        """Sample the random numbers for one batch.

        Args:
            key: int32 [2], one key for the global batch, or int32 [b, 2], one per example.
            images_shape: (b, h, w, c); b may be a scalar tensor, the others are integers.

        Returns:
            Tensors [b, ...] by name.
        """
        raise NotImplementedError

    def apply(self, images: tf.Tensor, draw: dict) -> tf.Tensor:
        """Change images by given random numbers.

        Args:
            images: float32 [b, h, w, c] in [0, 1].
            draw: the output of `draw`.

        Returns:
            float32 [b, h, w, c] in [0, 1].
        """
        raise NotImplementedError

    def shape_after(self, images_shape) -> tuple:
        """Return the shape of the changed images, for what is applied next; that of the images unless overridden."""
        return tuple(images_shape)

    def __call__(self, images: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        """Sample and apply; the result is a function of the images and the key alone.

        Floats of other precision than float32 are converted, and integers of other types in the key.

        Raises:
            ValueError: examples of another kind, keys of another number, or integers, a single image or sizes that only
                the values have where the change needs others.
        """
        images, key = tf.convert_to_tensor(images), tf.cast(key, tf.int32)
        images = tf.cast(images, tf.float32) if images.dtype.is_floating else images
        try:
            kind = kind_of(images.shape[1:])  # AutoGraph, in `Dataset.map`, cannot convert assignment expressions
            if not takes(self, kind):
                supported = " and ".join(self.kinds) or "neither images nor clips"
                raise InputError(f"{type(self).__name__} changes {supported}, not {kind.examples} {images.shape}.")
            if key.shape.rank == 2 and not key.shape.is_compatible_with([images.shape[0], 2]):
                raise InputError(
                    f"{type(self).__name__} takes one key [2], or one for each image; got the shape {key.shape} for "
                    f"images {images.shape}."
                )
            changed = self.apply(images, self.draw(key, shape_of(images)))
            if images.shape.rank == 3 and tf.convert_to_tensor(changed).shape.rank not in (3, None):
                batch_checks.check_batch(images, type(self).__name__)  # broadcast to an image for each row
            return changed
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            # Most changes compute with the pixels and the sizes, which may be None; a flip does not.
            if not isinstance(error, InputError):
                batch_checks.check_floats(images, type(self).__name__)
                batch_checks.check_batch(images, type(self).__name__)
                batch_checks.check_sizes(images, type(self).__name__)
            raise


def draw_uniform(key: tf.Tensor, count, shape, purpose: str) -> tf.Tensor:
    """Sample uniform numbers on [0, 1) for each example.

    Args:
        key: int32 [2], one key for the global batch, or int32 [b, 2], one per example.
        count: b, an integer or a scalar tensor.
        shape: shape of the numbers of one example.
        purpose: numbers of different purposes are independent.

    Returns:
        float32 [b, *shape].
    """
    if key.shape.rank == 1:
        key = randomness.example_keys(key, distribution.global_rows(count))
    return hashing.uniform(key, shape, purpose)
