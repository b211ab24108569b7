"""Changes of colour on float images, each by one number per image: what the codes of contrastive methods do.

All take and give images float32 [b, h, w, c], c = 1 or 3, in [0, 1] and keep the shape; `amount` is float32 [b]. The
codes that stand on TensorFlow and those on torchvision mean different things by contrast and saturation.
"""

import tensorflow as tf

LUMA = (0.2989, 0.5870, 0.1140)
MEAN = (1 / 3, 1 / 3, 1 / 3)


def brightness(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """x amount."""
    return _clipped(images * _each(amount))


def added_brightness(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """x + (amount - 1), so that 1 changes nothing."""
    return _clipped(images + (_each(amount) - 1.0))


def contrast(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """m + amount (x - m), m the mean of each channel, as `tf.image.adjust_contrast`."""
    mean = tf.reduce_mean(images, axis=[1, 2], keepdims=True)
    return _clipped(mean + _each(amount) * (images - mean))


def contrast_of_grey(images: tf.Tensor, amount: tf.Tensor, weights=LUMA) -> tf.Tensor:
    """m + amount (x - m), m the mean of the grey image, as torchvision."""
    mean = tf.reduce_mean(grey(images, weights)[..., :1], axis=[1, 2], keepdims=True)
    return _clipped(mean + _each(amount) * (images - mean))


def saturation(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """S amount in HSV, at most 1, as `tf.image.adjust_saturation`; grey images stay as they are."""
    if images.shape[-1] == 1:
        return images
    value = tf.reduce_max(images, axis=-1, keepdims=True)
    spread = value - tf.reduce_min(images, axis=-1, keepdims=True)
    # S = spread / value: what lies below the largest channel grows with it, until the smallest channel is 0.
    factor = tf.minimum(_each(amount), value / tf.maximum(spread, 1e-12))
    return _clipped(value - factor * (value - images))


def saturation_of_grey(images: tf.Tensor, amount: tf.Tensor, weights=LUMA) -> tf.Tensor:
    """g + amount (x - g), g the grey image, as torchvision; grey images stay as they are."""
    if images.shape[-1] == 1:
        return images
    origin = grey(images, weights)
    return _clipped(origin + _each(amount) * (images - origin))


def hue(images: tf.Tensor, amount: tf.Tensor) -> tf.Tensor:
    """H + amount in HSV, in turns of the circle, -1 <= amount <= 1; grey images stay as they are."""
    if images.shape[-1] == 1:
        return images
    angle, saturated, value = tf.split(tf.image.rgb_to_hsv(images), 3, axis=-1)
    turned = tf.math.floormod(angle + _each(amount), 1.0)
    return _clipped(tf.image.hsv_to_rgb(tf.concat([turned, saturated, value], axis=-1)))


def grey(images: tf.Tensor, weights=LUMA) -> tf.Tensor:
    """The weighted sum of red, green and blue in each channel; grey images stay as they are."""
    if images.shape[-1] == 1:
        return images
    return tf.broadcast_to(tf.reduce_sum(images * tf.constant(weights), axis=-1, keepdims=True), tf.shape(images))


def solarize(images: tf.Tensor) -> tf.Tensor:
    """1 - x from 0.5 on."""
    return tf.where(images < 0.5, images, 1.0 - images)


def _clipped(images: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(images, 0.0, 1.0)


def _each(amount: tf.Tensor) -> tf.Tensor:
    return tf.reshape(amount, [-1, 1, 1, 1])
