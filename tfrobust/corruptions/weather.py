"""Weather: snow, frost, fog. Each has a sampler and a function of images, samples and the severity's constants.

Source: Hendrycks and Dietterich 2019 (arXiv 1903.12261), their make_cifar_c.py and make_imagenet_c.py.
"""

import tensorflow as tf

from tfrobust.corruptions import blur, draws, resampling, textures
from tfrobust.corruptions.registry import Scale, corruption


def draw_snow(keys: tf.Tensor, images: tf.Tensor, constants) -> dict:
    """Sample `flakes`, standard normal [b, h, w, 1], and `angle` [b] in degrees, uniform on [-135, -45)."""
    flakes = draws.normal(keys, [*images.shape[1:3], 1], "flakes")
    return {"flakes": flakes, "angle": draws.uniform(keys, [], "angle", -135.0, -45.0)}


def _scaled_snow(values: tuple, size: Scale) -> tuple:
    location, scale, zoom, threshold, radius, sigma, blend = values
    streak = max(1, round(radius * size.streak)), sigma * size.streak
    return location, scale, max(1.0, zoom * size.length), threshold, *streak, blend


@corruption(
    draw=draw_snow,
    small=(
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    large=(
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    scaled=_scaled_snow,
)
def snow(images: tf.Tensor, draw: dict, constants) -> tf.Tensor:
    """Add streaks of flakes to a paler image, and the same flakes rotated by 180 degrees.

    layer = N(loc, scale), its center magnified `zoom` times, 0 below `threshold`, blurred to streaks by (radius,
    sigma); blend x + (1 - blend) max(x, 1.5 gray(x) + 0.5) + layer + rotated layer.
    """
    location, scale, zoom, threshold, radius, sigma, blend = constants
    layer = resampling.zoom(location + scale * draw["flakes"], zoom)
    layer = resampling.to_bytes(tf.where(layer < threshold, 0.0, layer))
    layer = resampling.rounded(blur.streaks(layer, draw["angle"], radius, sigma))
    paler = tf.maximum(images, 1.5 * resampling.grey(images) + 0.5)
    return blend * images + (1 - blend) * paler + layer + layer[:, ::-1, ::-1]


def draw_frost(keys: tf.Tensor, images: tf.Tensor, constants, pictures=None) -> dict:
    """Sample `frost`, float32 [b, h, w, c] in [0, 1]: a random window of a random picture.

    Args:
        keys: int32 [b, 2].
        images: float32 [b, h, w, c].
        constants: not used.
        pictures: uint8 [n, H, W, 3], larger than the images; None uses the generated ones.
    """
    height, width, channels = images.shape[1:]
    pictures = textures.frost(height, width) if pictures is None else pictures
    count, low, narrow = pictures.shape[:3]
    which, top, left = (
        draws.below(keys, [1, 1], purpose, limit)
        for purpose, limit in (("picture", count), ("top", low - height), ("left", narrow - width))
    )
    rows = (which * low + top) + tf.range(height)[:, None]
    window = tf.gather(tf.constant(pictures.reshape(-1, 3)), rows * narrow + left + tf.range(width))
    window = tf.cast(window, tf.float32) / 255.0
    return {"frost": window if channels == 3 else resampling.grey(window)}


@corruption(
    draw=draw_frost,
    small=((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    large=((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
)
def frost(images: tf.Tensor, draw: dict, constants) -> tf.Tensor:
    """Blend with frost: weight x + frost_weight frost."""
    weight, frost_weight = constants
    return weight * images + frost_weight * draw["frost"]


def draw_fog(keys: tf.Tensor, images: tf.Tensor, constants) -> dict:
    """Sample `field`, float32 [b, s, s], uniform on [-1, 1), s the side of the plasma."""
    size = textures.plasma_size(*images.shape[1:3])
    return {"field": draws.uniform(keys, [size, size], "field", -1.0, 1.0)}


@corruption(
    draw=draw_fog,
    small=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    large=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
)
def fog(images: tf.Tensor, draw: dict, constants) -> tf.Tensor:
    """Blend with fog: (x + amount plasma) m / (m + amount), m the largest value of the image."""
    amount, decay = constants
    height, width = images.shape[1:3]
    largest = tf.reduce_max(images, axis=[1, 2, 3], keepdims=True)
    clouds = textures.plasma(draw["field"], decay)[:, :height, :width, None]
    return (images + amount * clouds) * largest / (largest + amount)
