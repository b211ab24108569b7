"""Blurs, zooms and resizes as products with small matrices, and interpolation between pixels.

Separable operations on rows and columns (a Gaussian filter, a zoom, a box resize) are A x B^T for each channel, with
matrices that are known when the graph is traced. The matrices include the handling of the border.
"""

import functools
import math

import numpy as np
import tensorflow as tf

from tfrobust.errors import InputError

# Largest number of pixels for which one matrix for the whole image is cheaper than many for its rows and columns.
_DENSE = 1024


def check_images(images: tf.Tensor) -> None:
    """Raise ValueError for images that are not float32 [b, h, w, c] of static size with one or three channels."""
    shape = images.shape
    if shape.rank != 4 or None in shape[1:].as_list() or shape[3] not in (1, 3) or images.dtype != tf.float32:
        raise InputError(
            f"Images are {images.dtype.name} of shape {shape}; they are float32 [b, h, w, c] in [0, 1] with c = 1 or 3."
        )


def fold(places, size: int, border: str):
    """Map places outside 0 .. size - 1 back inside, for NumPy and TensorFlow integers alike.

    Args:
        places: integers of any shape.
        size: n >= 1.
        border: "nearest" repeats the edge (aaa|abcd|ddd), "reflect" mirrors at it (cba|abcd|dcb), "mirror" mirrors
            around the outermost pixel (dcb|abcd|cba; OpenCV's reflect101).

    Returns:
        Integers of the same shape in 0 .. size - 1.
    """
    library = np if isinstance(places, np.ndarray) else tf
    if border == "nearest" or size == 1:
        return library.clip(places, 0, size - 1) if library is np else tf.clip_by_value(places, 0, size - 1)
    period = 2 * size if border == "reflect" else 2 * size - 2
    inside = places % period
    return library.minimum(inside, period - inside - (border == "reflect"))


@functools.lru_cache(maxsize=256)
def gaussian_matrix(size: int, sigma: float, truncate: float = 4.0, border: str = "nearest") -> np.ndarray:
    """Return the float32 matrix [n, n] of scipy.ndimage.gaussian_filter1d over n pixels; the identity if sigma = 0."""
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return np.eye(size, dtype=np.float32)
    taps = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (taps / sigma) ** 2)
    matrix = np.zeros([size, size])
    source = fold(np.arange(size)[:, None] + taps, size, border)
    np.add.at(matrix, (np.arange(size)[:, None], source), weights / weights.sum())
    return matrix.astype(np.float32)


@functools.lru_cache(maxsize=256)
def zoom_matrix(size: int, factor: float) -> np.ndarray:
    """Return the matrix, float32 [n, n], of the benchmark's clipped zoom over n pixels.

    The middle ceil(n / factor) pixels are stretched by linear interpolation, with corner pixels aligned, and trimmed to
    n.
    """
    middle = math.ceil(size / factor)
    stretched = round(middle * factor)
    first, trimmed = (size - middle) // 2, (stretched - size) // 2
    places = (np.arange(size) + trimmed) * (middle - 1) / max(1, stretched - 1)
    below = np.minimum(places.astype(int), max(0, middle - 2))
    share = places - below
    matrix = np.zeros([size, size])
    matrix[np.arange(size), first + below] += 1 - share
    matrix[np.arange(size), np.minimum(first + below + 1, size - 1)] += share
    return matrix.astype(np.float32)


@functools.lru_cache(maxsize=64)
def box_matrix(source: int, target: int) -> np.ndarray:
    """Return the matrix of Pillow's BOX resize, float32 [target, source]: means of whole pixels."""
    scale = source / target
    support = 0.5 * max(scale, 1.0)
    matrix = np.zeros([target, source])
    for row in range(target):
        centre = (row + 0.5) * scale
        first, last = max(0, int(centre - support + 0.5)), min(source, int(centre + support + 0.5))
        offsets = (np.arange(first, last) - centre + 0.5) / max(scale, 1.0)
        matrix[row, first:last] = (offsets > -0.5) & (offsets <= 0.5)
    return (matrix / matrix.sum(axis=1, keepdims=True)).astype(np.float32)


def separable(images: tf.Tensor, rows: np.ndarray, columns: np.ndarray) -> tf.Tensor:
    """Compute rows x columns^T for each channel.

    Args:
        images: float32 [b, h, w, c].
        rows: float32 [h', h].
        columns: float32 [w', w].

    Returns:
        float32 [b, h', w', c].
    """
    return along_columns(along_rows(images, rows), columns)


def along_rows(images: tf.Tensor, rows: np.ndarray) -> tf.Tensor:
    """Apply a matrix [h', h] along the vertical axis, float32 [b, h', w, c]."""
    height, width, channels = images.shape[1:]
    flat = tf.reshape(images, [-1, height, width * channels])
    return tf.reshape(tf.matmul(tf.constant(rows), flat), [-1, rows.shape[0], width, channels])


def along_columns(images: tf.Tensor, columns: np.ndarray) -> tf.Tensor:
    """Apply a matrix [w', w] along the horizontal axis, float32 [b, h, w', c]."""
    height, width, channels = images.shape[1:]
    # One product of large matrices is faster than one of [w, c] for each row.
    lines = tf.reshape(tf.transpose(images, [0, 1, 3, 2]), [-1, width])
    product = tf.reshape(tf.matmul(lines, tf.constant(columns), transpose_b=True), [-1, height, channels, len(columns)])
    return tf.transpose(product, [0, 1, 3, 2])


def gaussian(images: tf.Tensor, sigma: float, truncate: float = 4.0, border: str = "nearest") -> tf.Tensor:
    """Apply scipy.ndimage.gaussian_filter to each channel of float32 [b, h, w, c]."""
    height, width = images.shape[1:3]
    rows = gaussian_matrix(height, float(sigma), truncate, border)
    return separable(images, rows, gaussian_matrix(width, float(sigma), truncate, border))


def zoom(images: tf.Tensor, factor: float) -> tf.Tensor:
    """Magnify the center of float32 [b, h, w, c] by `factor` >= 1 at constant size."""
    height, width = images.shape[1:3]
    return separable(images, zoom_matrix(height, float(factor)), zoom_matrix(width, float(factor)))


def mean_zoom(images: tf.Tensor, factors: tuple[float, ...]) -> tf.Tensor:
    """Average `zoom` over several factors."""
    height, width, channels = images.shape[1:]
    if height * width > _DENSE:
        return tf.add_n([zoom(images, factor) for factor in factors]) / len(factors)
    flat = tf.reshape(tf.transpose(images, [0, 3, 1, 2]), [-1, height * width])
    product = tf.matmul(flat, tf.constant(_zoom_pixels(height, width, factors)), transpose_b=True)
    return tf.transpose(tf.reshape(product, [-1, channels, height, width]), [0, 2, 3, 1])


@functools.lru_cache(maxsize=16)
def _zoom_pixels(height: int, width: int, factors: tuple[float, ...]) -> np.ndarray:
    """Return the mean over all factors as one matrix, float32 [h w, h w]."""
    total = np.zeros([height * width, height * width], np.float32)
    for factor in factors:
        total += np.kron(zoom_matrix(height, factor), zoom_matrix(width, factor))
    return total / np.float32(len(factors))


def filter_2d(images: tf.Tensor, kernel: np.ndarray, border: str = "mirror") -> tf.Tensor:
    """Correlate each channel with a kernel [odd, odd], as cv2.filter2D."""
    height, width, channels = images.shape[1:]
    images = pad(images, kernel.shape[0] // 2, kernel.shape[1] // 2, border)
    weights = tf.constant(np.repeat(kernel[:, :, None, None], channels, axis=2), tf.float32)
    filtered = tf.nn.depthwise_conv2d(images, weights, [1, 1, 1, 1], "VALID")
    return tf.ensure_shape(filtered, [None, height, width, channels])


def pad(images: tf.Tensor, rows: int, columns: int, border: str) -> tf.Tensor:
    """Pad [b, h, w, c] by `rows` and `columns` pixels on each side, for images of any size."""
    height, width = images.shape[1:3]
    images = tf.gather(images, fold(np.arange(-rows, height + rows), height, border), axis=1)
    return tf.gather(images, fold(np.arange(-columns, width + columns), width, border), axis=2)


def sample(images: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor, border: str) -> tf.Tensor:
    """Interpolate images linearly at fractional places.

    Args:
        images: float32 [b, h, w, c].
        rows: float32 [b, h', w'], in pixels; 0 is the center of the first.
        columns: float32 [b, h', w'], in pixels; 0 is the center of the first.
        border: as in `fold`.

    Returns:
        float32 [b, h', w', c].
    """
    height, width, channels = images.shape[1:]
    flat = tf.reshape(images, [-1, height * width, channels])
    first_row, first_column = tf.floor(rows), tf.floor(columns)
    down, across = (rows - first_row)[..., None], (columns - first_column)[..., None]
    total = 0.0
    for step_down, weight_down in ((0, 1 - down), (1, down)):
        row = fold(tf.cast(first_row, tf.int32) + step_down, height, border)
        for step_right, weight_right in ((0, 1 - across), (1, across)):
            column = fold(tf.cast(first_column, tf.int32) + step_right, width, border)
            total += weight_down * weight_right * tf.gather(flat, row * width + column, batch_dims=1)
    return total


def to_bytes(images: tf.Tensor) -> tf.Tensor:
    """Round down to gray levels: floor(255 x) / 255, clipped to [0, 1], as a cast to uint8 does."""
    # A ten-thousandth of a level keeps k / 255 at level k if its float32 value is just below.
    return tf.floor(tf.clip_by_value(images, 0.0, 1.0) * 255.0 + 1e-4) / 255.0


def rounded(images: tf.Tensor) -> tf.Tensor:
    """Round to the nearest gray level, clipped to [0, 1]."""
    return tf.floor(tf.clip_by_value(images, 0.0, 1.0) * 255.0 + 0.5) / 255.0


def grey(images: tf.Tensor) -> tf.Tensor:
    """Return the brightness, [b, h, w, 1], of gray or RGB images, as cv2.COLOR_RGB2GRAY."""
    if images.shape[-1] == 1:
        return images
    return tf.reduce_sum(images * tf.constant([0.299, 0.587, 0.114]), axis=-1, keepdims=True)
