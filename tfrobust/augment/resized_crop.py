"""The augmentation of ImageNet training: a resized random crop."""

import dataclasses
import math

import keras
import tensorflow as tf

from tfrobust.augment import resampling
from tfrobust.augment.augmentation import Augmentation
from tfrobust.common.settings import require_tuple
from tfrobust.errors import InputError
from tfrobust.ops import randomness

ATTEMPTS = 10


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomResizedCrop(Augmentation):
    """Crop of random area, aspect ratio and position, resized (bilinear, antialiased).

    Area ~ U(scale) of the image's, width / height = exp(U(log ratio)), sides rounded, corner uniform. Up to 10 attempts
    are made to fit into the image; otherwise the crop is the largest centered one within the limits of the ratio.
    Applied to a batch, the size is kept. `ImageFolder.training_crop` crops images of any size as they are read, which
    loses no detail.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> images = tf.reshape(tf.range(16.0) / 16, [1, 4, 4, 1])
        >>> draw = {"box": tf.constant([[0, 2, 4, 2]])}  # the right half: top, left, height, width
        >>> part = robust.augment.RandomResizedCrop().apply(images, draw)
        >>> part.shape, float(tf.reduce_min(part)) >= 2 / 16
        (TensorShape([1, 4, 4, 1]), True)

    Args:
        scale: smallest and largest share of the area, 0 < smallest <= largest <= 1.
        ratio: smallest and largest width / height, positive.

    Draw:
        box: int32 [b, 4], top, left, height, width in pixels.

    Raises:
        ValueError: limits out of range or order.

    Source:
        Szegedy et al. 2015, section 6, in the form and with the defaults of torchvision's RandomResizedCrop.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self):
        for name in ("scale", "ratio"):
            require_tuple(getattr(self, name), f"RandomResizedCrop.{name}", 2)
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise InputError(f"RandomResizedCrop.scale is {self.scale}; it is two shares, 0 < least <= largest <= 1.")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise InputError(f"RandomResizedCrop.ratio is {self.ratio}; it is two numbers, 0 < least <= largest.")

    def draw(self, key: tf.Tensor, images_shape) -> dict:
        """Sample the boxes."""
        uniform = randomness.draw(randomness.uniform(), key, [images_shape[0], ATTEMPTS, 4])
        return {"box": self.boxes(uniform, images_shape[1], images_shape[2])}

    def boxes(self, uniform: tf.Tensor, height, width) -> tf.Tensor:
        """Compute boxes from uniform numbers on [0, 1).

        Args:
            uniform: float32 [b, attempts, 4], for area, ratio, top and left.
            height: of the images in pixels, an integer or a scalar tensor.
            width: of the images in pixels, an integer or a scalar tensor.

        Returns:
            int32 [b, 4]: top, left, height, width.
        """
        height, width = tf.cast(height, tf.float32), tf.cast(width, tf.float32)
        share, shape, vertical, horizontal = tf.unstack(uniform, axis=-1)
        area = height * width * (self.scale[0] + share * (self.scale[1] - self.scale[0]))
        low, high = (math.log(limit) for limit in self.ratio)
        ratio = tf.exp(low + shape * (high - low))
        tall, wide = tf.round(tf.sqrt(area / ratio)), tf.round(tf.sqrt(area * ratio))
        fits = (0 < tall) & (tall <= height) & (0 < wide) & (wide <= width)
        corner = tf.floor(vertical * (height - tall + 1)), tf.floor(horizontal * (width - wide + 1))
        tried = tf.stack([*corner, tall, wide], axis=-1)
        first = tf.gather(tried, tf.argmax(tf.cast(fits, tf.int32), axis=-1), batch_dims=1)
        any_fits = tf.reduce_any(fits, axis=-1, keepdims=True)
        return tf.cast(tf.where(any_fits, first, self._centered(height, width)), tf.int32)

    def _centered(self, height: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
        tall = tf.minimum(height, tf.round(width / self.ratio[0]))
        wide = tf.minimum(width, tf.round(height * self.ratio[1]))
        return tf.stack([(height - tall) // 2, (width - wide) // 2, tall, wide])

    def apply(self, images: tf.Tensor, draw: dict) -> tf.Tensor:
        """Resize the boxes to the size of the images."""
        return resampling.resized_parts(images, draw["box"])

    def cut(self, image: tf.Tensor, box: tf.Tensor, size) -> tf.Tensor:
        """Crop one image [h, w, c] to a box, and resize it to `size` = (height, width)."""
        top, left, tall, wide = tf.unstack(box)
        return resized(image[top : top + tall, left : left + wide], size)


def resized(image: tf.Tensor, size, interpolation: str = "bilinear") -> tf.Tensor:
    """Resize a float image [h, w, c] in [0, 1] (antialiased), clipped to [0, 1]."""
    image = tf.image.resize(image, size, interpolation, antialias=True)
    return tf.clip_by_value(image, 0.0, 1.0)  # bicubic weights are negative in part, and sums round
