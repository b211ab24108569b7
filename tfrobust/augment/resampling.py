"""Resampling by one matrix per image for rows and one for columns: resized crops and Gaussian filters."""

import tensorflow as tf


def _cubic(distance: tf.Tensor) -> tf.Tensor:
    """Compute the cubic kernel of Keys with a = -1/2."""
    near = (1.5 * distance - 2.5) * distance * distance + 1.0
    far = ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0
    return tf.where(distance < 1, near, tf.where(distance < 2, far, 0.0))


INTERPOLATIONS = {"bilinear": lambda distance: tf.maximum(1.0 - distance, 0.0), "bicubic": _cubic}


def resized_parts(
    images: tf.Tensor, boxes: tf.Tensor, interpolation: str = "bilinear", size: int | None = None
) -> tf.Tensor:
    """Resize a crop of each image to one size, for a whole batch at once.

    The result equals the antialiased `tf.image.resize` of each crop.

    Args:
        images: float32 [b, h, w, c] in [0, 1].
        boxes: int32 [b, 4], top, left, height, width in pixels, within the image.
        interpolation: one of `INTERPOLATIONS`.
        size: height and width of the result in pixels; None takes those of the images.

    Returns:
        float32 [b, h, w, c] in [0, 1], or [b, size, size, c].
    """
    first_row, first_column, tall, wide = tf.unstack(tf.cast(boxes, tf.float64), axis=-1)
    kernel = INTERPOLATIONS[interpolation]
    rows = _reading(first_row, tall, images.shape[1], size or images.shape[1], kernel)
    columns = _reading(first_column, wide, images.shape[2], size or images.shape[2], kernel)
    return tf.clip_by_value(_along_sides(images, rows, columns), 0.0, 1.0)


def blur(images: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
    """Apply a Gaussian filter with one standard deviation per image, zeros outside, as in the codes of SimCLR and BYOL.

    The side of the filter is a tenth of the image's height, made odd, and at least 3 pixels.

    Args:
        images: float32 [b, h, w, c] in [0, 1].
        sigma: float32 [b] in pixels, >= 0; 0 leaves an image unchanged.

    Returns:
        float32 [b, h, w, c] in [0, 1].
    """
    radius = max(1, images.shape[1] // 20)
    rows, columns = (_filter(sigma, size, radius) for size in images.shape[1:3])
    return tf.clip_by_value(_along_sides(images, rows, columns), 0.0, 1.0)


def _along_sides(images: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Compute rows x columns^T for each channel, with matrices [b, r, h] and [b, s, w], one per image."""
    height, width, channels = images.shape[1:]
    tall, wide = rows.shape[1], columns.shape[1]
    product = tf.matmul(rows, tf.reshape(images, [-1, height, width * channels]))
    product = tf.transpose(tf.reshape(product, [-1, tall, width, channels]), [0, 2, 1, 3])
    product = tf.matmul(columns, tf.reshape(product, [-1, width, tall * channels]))
    return tf.transpose(tf.reshape(product, [-1, wide, tall, channels]), [0, 2, 1, 3])


def _reading(first: tf.Tensor, extent: tf.Tensor, pixels: int, size: int, kernel) -> tf.Tensor:
    """Return the weights, float32 [b, size, pixels], with which `size` pixels sample the `extent` from `first` on."""
    source, target = tf.range(pixels, dtype=tf.float64), tf.range(size, dtype=tf.float64)
    first, extent = first[:, None, None], extent[:, None, None]
    # Rounded from double precision, so that a crop of the whole image returns its pixels exactly, in a graph as well.
    center = first + (target[:, None] + 0.5) * extent * (1.0 / size) - 0.5
    # A part that shrinks is antialiased by a kernel that is wider by the same factor.
    distance = tf.cast(tf.abs(center - source) / tf.maximum(extent * (1.0 / size), 1.0), tf.float32)
    inside = (source >= first) & (source < first + extent)
    weights = tf.where(inside, kernel(distance), 0.0)
    return weights / tf.reduce_sum(weights, axis=-1, keepdims=True)


def _filter(sigma: tf.Tensor, size: int, radius: int) -> tf.Tensor:
    """Return the matrices of the Gaussian filter, float32 [b, size, size]."""
    coordinate = tf.range(size, dtype=tf.float32)
    distance = tf.abs(coordinate[:, None] - coordinate)
    halved = 0.5 / tf.maximum(tf.square(sigma), 1e-9)[:, None, None]
    weights = tf.where(distance <= radius, tf.exp(-tf.square(distance) * halved), 0.0)
    taps = tf.exp(-tf.square(tf.range(-radius, radius + 1, dtype=tf.float32)) * halved[..., 0])
    return weights / tf.reduce_sum(taps, axis=-1)[:, None, None]
