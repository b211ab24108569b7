"""Standard augmentations: flip, shift, pad and crop, and their composition."""

import dataclasses

import keras
import tensorflow as tf

from tfrobust.augment.augmentation import Augmentation
from tfrobust.common.kinds import OF_PIXELS
from tfrobust.common.settings import require_whole
from tfrobust.errors import InputError
from tfrobust.ops import randomness


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomFlip(Augmentation):
    """Horizontal flip with some probability.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> images, key = tf.reshape([0.0, 0.5], [1, 1, 2, 1]), tf.constant([0, 1])
        >>> tf.reshape(robust.augment.RandomFlip(probability=1.0)(images, key), [-1]).numpy().tolist()
        [0.5, 0.0]

    Args:
        probability: in [0, 1].

    Draw:
        flip: bool [b].
    """

    probability: float = 0.5

    def __post_init__(self):
        if not 0 <= self.probability <= 1:
            raise InputError(f"RandomFlip.probability is {self.probability}; it must lie in [0, 1].")

    def draw(self, key: tf.Tensor, images_shape) -> dict:
        """Sample which images are flipped."""
        return {"flip": randomness.draw(randomness.uniform(), key, [images_shape[0], 1])[:, 0] < self.probability}

    def apply(self, images: tf.Tensor, draw: dict) -> tf.Tensor:
        """Flip the selected images."""
        return tf.where(draw["flip"][:, None, None, None], images[:, :, ::-1], images)


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomShift(Augmentation):
    """Shift by a random fraction of the image size, vertically and horizontally independently.

    out[i, j] = image(i + s_0, j + s_1), s_0 ~ U(-fraction h, fraction h), s_1 ~ U(-fraction w, fraction w)
    pixels, with linear interpolation between pixels (order 1).

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> images = tf.reshape([0.0, 0.5, 1.0], [1, 1, 3, 1])
        >>> draw = {"shift": tf.constant([[0.0, 0.5]])}  # half a pixel sideways
        >>> tf.reshape(robust.augment.RandomShift().apply(images, draw), [-1]).numpy().tolist()
        [0.25, 0.75, 1.0]

    Args:
        fraction: in [0, 1): 0.1 of 32 pixels is up to 3.2 pixels.
        fill: values outside the image: "nearest" repeats its border, "constant" is 0.
        whole_pixels: sample s from the integers within the same limits, so that there is no interpolation.

    Draw:
        shift: float32 [b, 2], rows and columns, in pixels.

    Source:
        ASCL's "random shift 10 %": Keras's ImageDataGenerator with width_shift_range = height_shift_range = 0.1,
        fill_mode="nearest". With a float range below 1 it samples fractional pixels, and scipy interpolates with order
        1: the default here. Difference: "constant" fades into 0 at the border (scipy's grid-constant), Keras's is cut
        off.
    """

    fraction: float = 0.1
    fill: str = "nearest"
    whole_pixels: bool = False

    def __post_init__(self):
        if not 0 <= self.fraction < 1:
            raise InputError(f"RandomShift.fraction is {self.fraction}; it must lie in [0, 1).")
        if self.fill not in ("nearest", "constant"):
            raise InputError(f"RandomShift.fill is {self.fill!r}, not 'nearest' or 'constant'.")

    def draw(self, key: tf.Tensor, images_shape) -> dict:
        """Sample the shifts."""
        reach = tf.constant([self.fraction * images_shape[1], self.fraction * images_shape[2]], tf.float32)
        uniform = randomness.draw(randomness.uniform(), key, [images_shape[0], 2])
        if self.whole_pixels:
            reach = tf.floor(reach)
            return {"shift": tf.floor(uniform * (2 * reach + 1)) - reach}
        return {"shift": (2 * uniform - 1) * reach}

    def apply(self, images: tf.Tensor, draw: dict) -> tf.Tensor:
        """Shift the images."""
        for axis in (1, 2):
            images = self._shifted(images, draw["shift"][:, axis - 1], axis)
        return images

    def _shifted(self, images: tf.Tensor, shift: tf.Tensor, axis: int) -> tf.Tensor:
        size = images.shape[axis]
        pixel_shift = tf.floor(shift)
        part = (shift - pixel_shift)[:, None]
        before = tf.range(size)[None] + tf.cast(pixel_shift, tf.int32)[:, None]  # [b, size]
        result = 0.0
        for source, weight in ((before, 1 - part), (before + 1, part)):
            if self.fill == "constant":
                weight = tf.where((source >= 0) & (source < size), weight, 0.0)
            pixels = tf.gather(images, tf.clip_by_value(source, 0, size - 1), axis=axis, batch_dims=1)
            weight = tf.broadcast_to(weight, tf.shape(source))
            result += pixels * (weight[:, :, None, None] if axis == 1 else weight[:, None, :, None])
        return result


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class PadCrop(Augmentation):
    """Zero padding on all sides, and a crop of the original size at a uniformly random position.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> images, key = tf.ones([4, 8, 8, 1]), tf.constant([0, 1])
        >>> robust.augment.PadCrop(padding=2)(images, key).shape
        TensorShape([4, 8, 8, 1])

    Args:
        padding: pixels on each side, an integer >= 0.

    Draw:
        offset: int32 [b, 2] in 0..2 padding, upper left corner in the padded image (padding = no shift).

    Source:
        torchvision's RandomCrop(32, padding=4), as in the released ASCL.
    """

    padding: int = 4

    def __post_init__(self):
        object.__setattr__(self, "padding", require_whole(self.padding, "PadCrop.padding", 0))

    def draw(self, key: tf.Tensor, images_shape) -> dict:
        """Sample the corners of the windows."""
        uniform = randomness.draw(randomness.uniform(), key, [images_shape[0], 2])
        return {"offset": tf.cast(tf.floor(uniform * (2 * self.padding + 1)), tf.int32)}

    def apply(self, images: tf.Tensor, draw: dict) -> tf.Tensor:
        """Pad and crop the images."""
        margin = [self.padding, self.padding]
        sizes = images.shape[1:3]
        images = tf.pad(images, [[0, 0], margin, margin, [0, 0]])
        for axis in (1, 2):
            places = draw["offset"][:, axis - 1, None] + tf.range(sizes[axis - 1])[None]
            images = tf.gather(images, places, axis=axis, batch_dims=1)
        return images


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Compose(Augmentation):
    """Sequence of augmentations, each with a key of its own, for the kinds of examples that all parts support.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> both = robust.augment.Compose(augmentations=(robust.augment.RandomFlip(), robust.augment.RandomShift()))
        >>> both(tf.ones([4, 8, 8, 1]), tf.constant([0, 1])).shape
        TensorShape([4, 8, 8, 1])

    Args:
        augmentations: in order of application.

    Draw:
        "0", "1", ...: the random numbers of each, by position.
    """

    augmentations: tuple[Augmentation, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:  # type: ignore[override]
        """The kinds of examples that all parts support."""
        return tuple(kind for kind in OF_PIXELS if all(kind in part.kinds for part in self.augmentations))

    def draw(self, key: tf.Tensor, images_shape) -> dict:
        """Sample the random numbers of each augmentation, for images of the shape after those before it."""
        drawn = {}
        for position, augmentation in enumerate(self.augmentations):
            drawn[str(position)] = augmentation.draw(randomness.fold(key, position), images_shape)
            images_shape = augmentation.shape_after(images_shape)
        return drawn

    def shape_after(self, images_shape):
        """Return the shape after the last augmentation."""
        for augmentation in self.augmentations:
            images_shape = augmentation.shape_after(images_shape)
        return images_shape

    def apply(self, images: tf.Tensor, draw: dict) -> tf.Tensor:
        """Apply the augmentations in order."""
        for position, augmentation in enumerate(self.augmentations):
            images = augmentation.apply(images, draw[str(position)])
        return images
