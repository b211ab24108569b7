"""Digital corruptions: brightness, contrast, saturation, elastic transform, pixelation, JPEG.

Each has a sampler and a function of images, samples and the severity's constants.

Source: Hendrycks and Dietterich 2019 (arXiv 1903.12261), their make_cifar_c.py and make_imagenet_c.py.
"""

import functools

import numpy as np
import tensorflow as tf

from tfrobust.corruptions import draws, resampling
from tfrobust.corruptions.registry import Scale, corruption


@corruption(small=(0.05, 0.1, 0.15, 0.2, 0.3), large=(0.1, 0.2, 0.3, 0.4, 0.5))
def brightness(images: tf.Tensor, draw: dict, shift: float) -> tf.Tensor:
    """Add `shift` to V in HSV, clipped to [0, 1]; for a gray image, to its values."""
    value = tf.reduce_max(images, axis=-1, keepdims=True)
    shifted = tf.clip_by_value(value + shift, 0.0, 1.0)
    # Hue and saturation are unchanged, so all channels have one factor; black has no hue and becomes gray.
    return tf.where(value > 0, images * tf.math.divide_no_nan(shifted, value), shifted)


@corruption(
    small=((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)), large=((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2))
)
def saturate(images: tf.Tensor, draw: dict, constants) -> tf.Tensor:
    """Change S in HSV to gain S + shift, clipped to [0, 1]; a gray image has no saturation and is unchanged."""
    if images.shape[-1] == 1:
        return images
    gain, shift = constants
    value = tf.reduce_max(images, axis=-1, keepdims=True)
    spread = value - tf.reduce_min(images, axis=-1, keepdims=True)
    saturation = tf.math.divide_no_nan(spread, value)
    changed = tf.clip_by_value(saturation * gain + shift, 0.0, 1.0)
    # Distance from the largest channel as a share of the spread; by convention the hue of a gray pixel is red.
    below = tf.where(spread > 0, tf.math.divide_no_nan(value - images, spread), tf.constant([0.0, 1.0, 1.0]))
    return value * (1.0 - changed * below)


@corruption(small=(0.75, 0.5, 0.4, 0.3, 0.15), large=(0.4, 0.3, 0.2, 0.1, 0.05))
def contrast(images: tf.Tensor, draw: dict, factor: float) -> tf.Tensor:
    """Scale the contrast about the mean m of each channel: (x - m) factor + m."""
    mean = tf.reduce_mean(images, axis=[1, 2], keepdims=True)
    return (images - mean) * factor + mean


@corruption(small=(0.95, 0.9, 0.85, 0.75, 0.65), large=(0.6, 0.5, 0.4, 0.3, 0.25))
def pixelate(images: tf.Tensor, draw: dict, ratio: float) -> tf.Tensor:
    """Resize with Pillow's BOX filter to int(ratio x size) and back, rounded to gray levels after each pass."""
    height, width = images.shape[1:3]
    low, narrow = max(1, int(height * ratio)), max(1, int(width * ratio))
    images = resampling.rounded(images)
    images = resampling.rounded(resampling.along_columns(images, resampling.box_matrix(width, narrow)))
    images = resampling.rounded(resampling.along_rows(images, resampling.box_matrix(height, low)))
    return resampling.separable(images, resampling.box_matrix(low, height), resampling.box_matrix(narrow, width))


@corruption(small=(80, 65, 58, 50, 40), large=(25, 18, 15, 10, 7))
def jpeg_compression(images: tf.Tensor, draw: dict, quality: int) -> tf.Tensor:
    """Encode as JPEG of this quality, with chroma at half resolution, and decode, by TensorFlow's own codec."""
    pixels = tf.cast(resampling.rounded(images) * 255.0 + 0.5, tf.uint8)
    return tf.cast(_through_jpeg(pixels, quality), tf.float32) / 255.0


# A separate graph: one call per image from Python would take longer than the codec.
@functools.partial(tf.function, autograph=False)
def _through_jpeg(pixels: tf.Tensor, quality: int) -> tf.Tensor:
    """Encode and decode images, uint8 [b, h, w, c], one by one."""
    channels = pixels.shape[-1]

    def recode(image):
        data = tf.io.encode_jpeg(image, format="grayscale" if channels == 1 else "rgb", quality=quality)
        # Pillow decodes by the accurate transform; TensorFlow's default is the fast one.
        decoded = tf.io.decode_jpeg(data, channels=channels, dct_method="INTEGER_ACCURATE")
        return tf.ensure_shape(decoded, pixels.shape[1:])

    return tf.map_fn(recode, pixels)


def draw_elastic(keys: tf.Tensor, images: tf.Tensor, constants) -> dict:
    """Sample `corners`, float32 [b, 3, 2], and `field`, float32 [b, h, w, 2], uniform on [-1, 1)."""
    corners = draws.uniform(keys, [3, 2], "corners", -1.0, 1.0)
    return {"corners": corners, "field": draws.uniform(keys, [*images.shape[1:3], 2], "field", -1.0, 1.0)}


def _scaled_elastic(values: tuple, size: Scale) -> tuple:
    # The ImageNet code takes fractions of 244 pixels, a mistake with which the published files were made.
    pixels = size.side * (1 if size.reference == 32 else 244 / 224)
    return tuple(value * pixels for value in values)


@corruption(
    draw=draw_elastic,
    small=((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    large=((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)),
    scaled=_scaled_elastic,
)
def elastic_transform(images: tf.Tensor, draw: dict, constants) -> tf.Tensor:
    """Apply a random affine map, then displace every pixel by a smooth random field.

    The affine map moves three corners of the central square (half side a third of the image) by up to `jitter` pixels;
    the border is mirrored (reflect101). The field is U(-1, 1) filtered by a Gaussian of `sigma` pixels (truncated at 3
    sigma, reflect), times `alpha` pixels. Both interpolate linearly.
    """
    alpha, sigma, jitter = constants
    height, width = images.shape[1:3]
    square = max(1, min(height, width) // 3)
    middle = np.array([width // 2, height // 2], np.float32)
    corners = middle + square * np.array([[1, 1], [1, -1], [-1, -1]], np.float32)
    moved = corners + jitter * draw["corners"]
    # The inverse map, from the moved corners to the corners, gives the source of each pixel of the result.
    homogeneous = tf.concat([moved, tf.ones_like(moved[..., :1])], axis=-1)
    back = tf.linalg.solve(homogeneous, tf.broadcast_to(corners, tf.shape(moved)))
    rows, columns = np.indices([height, width]).astype(np.float32)
    grid = tf.constant(np.stack([columns, rows, np.ones_like(rows)], axis=-1).reshape(1, -1, 3))
    source = tf.reshape(
        tf.matmul(tf.broadcast_to(grid, [tf.shape(back)[0], *grid.shape[1:]]), back), [-1, height, width, 2]
    )
    images = resampling.sample(images, source[..., 1], source[..., 0], "mirror")
    if alpha == 0:
        return images
    field = alpha * resampling.gaussian(draw["field"], sigma, truncate=3.0, border="reflect")
    return resampling.sample(images, rows + field[..., 1], columns + field[..., 0], "reflect")
