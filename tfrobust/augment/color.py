"""Color changes of float images by one number per image, as in the codes of contrastive methods.

All functions take and return images float32 [b, h, w, c], c = 1 or 3, in [0, 1]; `amount` is float32 [b]. Codes that
use TensorFlow and codes that use torchvision define contrast and saturation differently.
"""

import tensorflow as tf

LUMA = (0.2989, 0.5870, 0.1140)
MEAN = (1 / 3, 1 / 3, 1 / 3)


def brightness(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Multiply images by `amount`."""
    return _clipped(images * _each(amount))


def added_brightness(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Add amount - 1, so that an amount of 1 changes nothing."""
    return _clipped(images + (_each(amount) - 1.0))


def contrast(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Scale contrast about the mean m of each channel, m + amount (x - m), as `tf.image.adjust_contrast`."""
    mean = tf.reduce_mean(images, axis=[1, 2], keepdims=True)
    return _clipped(mean + _each(amount) * (images - mean))


def contrast_of_grey(images: tf.Tensor, amount: tf.Tensor, weights=LUMA) -> tf.Tensor:
    """Scale contrast about the mean m of the gray image, m + amount (x - m), as torchvision."""
    mean = tf.reduce_mean(grey(images, weights)[..., :1], axis=[1, 2], keepdims=True)
    return _clipped(mean + _each(amount) * (images - mean))


def saturation(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Multiply S in HSV by `amount`, at most to 1, as `tf.image.adjust_saturation`; gray images are unchanged."""
    if images.shape[-1] == 1:
        return images
    value = tf.reduce_max(images, axis=-1, keepdims=True)
    spread = value - tf.reduce_min(images, axis=-1, keepdims=True)
    # S = spread / value: distances from the largest channel are multiplied until the smallest channel is 0.
    factor = tf.minimum(_each(amount), value / tf.maximum(spread, 1e-12))
    return _clipped(value - factor * (value - images))


def saturation_of_grey(images: tf.Tensor, amount: tf.Tensor, weights=LUMA) -> tf.Tensor:
    """Scale saturation about the gray image g, g + amount (x - g), as torchvision; gray images are unchanged."""
    if images.shape[-1] == 1:
        return images
    origin = grey(images, weights)
    return _clipped(origin + _each(amount) * (images - origin))


def hue(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """Add `amount` turns to H in HSV, -1 <= amount <= 1; gray images are unchanged."""
    if images.shape[-1] == 1:
        return images
    angle, saturated, value = tf.split(tf.image.rgb_to_hsv(images), 3, axis=-1)
    turned = tf.math.floormod(angle + _each(amount), 1.0)
    return _clipped(tf.image.hsv_to_rgb(tf.concat([turned, saturated, value], axis=-1)))


def grey(images: tf.Tensor, weights=LUMA) -> tf.Tensor:
    """Replace each channel by the weighted sum of red, green and blue; gray images are unchanged."""
    if images.shape[-1] == 1:
        return images
    return tf.broadcast_to(tf.reduce_sum(images * tf.constant(weights), axis=-1, keepdims=True), tf.shape(images))


def solarize(images: tf.Tensor) -> tf.Tensor:
    """Invert values from 0.5 on: x becomes 1 - x."""
    return tf.where(images < 0.5, images, 1.0 - images)


def _clipped(images: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(images, 0.0, 1.0)


def _each(amount: tf.Tensor) -> tf.Tensor:
    return tf.reshape(amount, [-1, 1, 1, 1])
