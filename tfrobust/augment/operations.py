"""The image operations of AugMix on integer gray levels, one parameter per image, identical to Pillow's.

All functions take and return pixels uint8 [b, h, w, c], c = 1 (Pillow's mode L) or 3 (RGB). `to_pixels` and `to_images`
convert from and to float images.

Source:
    Hendrycks et al. 2020 (arXiv 1912.02781) and their code, which calls Pillow: ImageOps, ImageEnhance, rotate and
    transform with bilinear interpolation.
"""

import math

import numpy as np
import tensorflow as tf

# Pillow's weights of red, green and blue in a gray level, in units of 2^-16.
_GREY = (19595, 38470, 7471)


def to_pixels(images: tf.Tensor) -> tf.Tensor:
    """Round float images in [0, 1] to the nearest gray levels, uint8."""
    return tf.cast(images * 255.0 + 0.5, tf.uint8)


def to_images(pixels: tf.Tensor) -> tf.Tensor:
    """Convert gray levels to float32 in [0, 1]."""
    return tf.cast(pixels, tf.float32) * (1.0 / 255.0)


# ----------------------------------------------------------------------------------------------- gray levels


def autocontrast(pixels: tf.Tensor) -> tf.Tensor:
    """Stretch each channel so that its darkest level becomes 0 and its brightest 255."""
    low, high = (_over_pixels(reduce, pixels) for reduce in (tf.reduce_min, tf.reduce_max))
    # The same double-precision sum as Pillow's: it may be just below an integer, and is then truncated.
    scale = 255.0 / tf.maximum(high - low, 1.0)
    levels = tf.range(256, dtype=tf.float64)
    stretched = tf.clip_by_value(levels * scale - low * scale, 0.0, 255.0)
    return _look_up(pixels, tf.where(high > low, stretched, levels))


def equalize(pixels: tf.Tensor) -> tf.Tensor:
    """Equalize the histogram of each channel."""
    height, width, channels = pixels.shape[1:]
    size = height * width
    counts = tf.raw_ops.DenseBincount(input=_entries(pixels), size=256 * channels, weights=tf.zeros([0], tf.int32))
    counts = tf.reshape(counts, [-1, channels, 256])
    lightest = tf.reduce_max(tf.where(counts > 0, tf.range(256), 0), axis=-1, keepdims=True)
    # Also 0 for a channel with a single level, which Pillow leaves unchanged.
    step = (size - tf.gather(counts, lightest, batch_dims=2)) // 255
    darker = tf.cumsum(counts, axis=-1, exclusive=True)
    table = tf.where(step > 0, (step // 2 + darker) // tf.maximum(step, 1), tf.range(256))
    return _look_up(pixels, tf.minimum(table, 255))


def posterize(pixels: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
    """Keep the highest `bits` of each level, int32 [b] in 0 .. 8."""
    mask = 256 - tf.bitwise.left_shift(1, 8 - bits)
    return tf.bitwise.bitwise_and(pixels, _per_image(tf.cast(mask, tf.uint8)))


def solarize(pixels: tf.Tensor, threshold: tf.Tensor) -> tf.Tensor:
    """Invert the levels from `threshold` on, int32 [b] in 0 .. 256."""
    inverted = tf.cast(pixels > _per_image(tf.cast(tf.maximum(threshold - 1, 0), tf.uint8)), tf.uint8)
    # A threshold of 0 inverts all levels, including 0.
    everything = _per_image(tf.cast(threshold < 1, tf.uint8))
    return tf.bitwise.bitwise_xor(pixels, 255 * tf.bitwise.bitwise_or(inverted, everything))


def _look_up(pixels: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
    """Look up table [b, c, 256], truncated to integers, at each pixel."""
    size = 256 * pixels.shape[-1]
    first = size * tf.range(tf.shape(pixels)[0])[:, None]
    values = tf.gather(tf.reshape(tf.cast(table, tf.uint8), [-1]), first + _entries(pixels))
    return tf.reshape(values, [-1, *pixels.shape[1:]])


def _entries(pixels: tf.Tensor) -> tf.Tensor:
    """Return channel x 256 + level, int32 [b, h w c]: indices into the concatenated tables of an image's channels."""
    height, width, channels = pixels.shape[1:]
    first = np.tile(256 * np.arange(channels, dtype=np.int32), height * width)
    return tf.cast(tf.reshape(pixels, [-1, height * width * channels]), tf.int32) + first


def _over_pixels(reduce, pixels: tf.Tensor) -> tf.Tensor:
    """Reduce each channel by minimum or maximum, float64 [b, c, 1]."""
    height, width, channels = pixels.shape[1:]
    # Reduce over rows first: a reduction that keeps only 3 channels is slow.
    extremes = reduce(tf.reshape(pixels, [-1, height, width * channels]), axis=1)
    return tf.cast(reduce(tf.reshape(extremes, [-1, width, channels]), axis=1), tf.float64)[..., None]


# ------------------------------------------------------------------------------------------------ enhancement


def color(pixels: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Scale the saturation by `factor`, float32 [b] >= 0: 0 is gray, 1 the image; gray images are unchanged."""
    return pixels if pixels.shape[-1] == 1 else _blend(_grey(pixels), pixels, factor)


def contrast(pixels: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Scale the contrast about the rounded mean gray level by `factor`, float32 [b] >= 0."""
    size = pixels.shape[1] * pixels.shape[2]
    total = tf.reduce_sum(tf.cast(_grey(pixels), tf.int32), axis=[1, 2, 3], keepdims=True)
    return _blend((2 * total + size) // (2 * size), pixels, factor)


def brightness(pixels: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Multiply every level by `factor`, float32 [b] >= 0."""
    return _blend(0, pixels, factor)


def sharpness(pixels: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Blend from a smoothed image (0) to the image (1) and beyond, float32 [b] >= 0; border pixels are unchanged."""
    if min(pixels.shape[1:3]) < 3:
        return pixels
    levels = tf.cast(pixels, tf.int32)
    rows = levels[:, :-2] + levels[:, 1:-1] + levels[:, 2:]
    total = rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:] + 4 * levels[:, 1:-1, 1:-1]
    inner = _blend((2 * total + 13) // 26, pixels[:, 1:-1, 1:-1], factor)
    middle = tf.concat([pixels[:, 1:-1, :1], inner, pixels[:, 1:-1, -1:]], axis=2)
    return tf.concat([pixels[:, :1], middle, pixels[:, -1:]], axis=1)


def _blend(origin, pixels: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Compute origin + factor (pixels - origin), clipped and truncated."""
    origin = tf.cast(origin, tf.float32)
    blended = origin + _per_image(factor) * (tf.cast(pixels, tf.float32) - origin)
    return tf.cast(tf.clip_by_value(blended, 0.0, 255.0), tf.uint8)


def _grey(pixels: tf.Tensor) -> tf.Tensor:
    """Return the rounded brightness of each pixel, [b, h, w, 1]."""
    if pixels.shape[-1] == 1:
        return pixels
    weighted = tf.reduce_sum(tf.cast(pixels, tf.int32) * tf.constant(_GREY), axis=-1, keepdims=True)
    return tf.bitwise.right_shift(weighted + 0x8000, 16)


# -------------------------------------------------------------------------------------------------- geometry


def rotate(pixels: tf.Tensor, degrees: tf.Tensor) -> tf.Tensor:
    """Rotate about the center, counterclockwise by `degrees`, [b]; the outside is 0."""
    height, width, channels = pixels.shape[1:]
    angle = tf.cast(degrees, tf.float64)[:, None, None] * (math.pi / 180.0)
    cosine, sine = tf.cos(angle), tf.sin(angle)
    x, y = _middles(width) - width / 2.0, (_middles(height) - height / 2.0)[:, None]
    left, right, right_share, inside = _neighbours((cosine * x + (width - 1) / 2.0) - sine * y, 0, width)
    top, bottom, bottom_share, inside_rows = _neighbours(sine * x + (cosine * y + (height - 1) / 2.0), 0, height)
    read = _reader(pixels, inside & inside_rows)
    right_share, bottom_share = (tf.repeat(share, channels, axis=2) for share in (right_share, bottom_share))
    upper, lower = (
        _between(first, second, right_share) for first, second in (read(row, left, right) for row in (top, bottom))
    )
    return _image(_between(upper, lower, bottom_share), pixels)


def shear_x(pixels: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
    """Sample row y (from the top edge, in pixels) `slope` y further right, float32 [b]; the outside is 0."""
    height, width = pixels.shape[1:3]
    shift = tf.cast(slope, tf.float64)[:, None, None] * _middles(height)[:, None]
    first, second, share, inside = _neighbours(shift, tf.range(width), width)
    read = _reader(pixels, inside)
    earlier, later = read(tf.range(height)[:, None], first, second)
    return _image(_between(earlier, later, share), pixels)


def shear_y(pixels: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
    """Sample column x (from the left edge, in pixels) `slope` x further down, float32 [b]; the outside is 0."""
    height, width, channels = pixels.shape[1:]
    shift = tf.cast(slope, tf.float64)[:, None, None] * _middles(width)
    top, bottom, share, inside = _neighbours(shift, tf.range(height)[:, None], height)
    read, columns = _reader(pixels, inside), tf.range(width)
    upper, lower = (read(rows, columns)[0] for rows in (top, bottom))
    return _image(_between(upper, lower, tf.repeat(share, channels, axis=2)), pixels)


def translate_x(pixels: tf.Tensor, distance: tf.Tensor) -> tf.Tensor:
    """Sample `distance` pixels further right, int32 [b]; the outside is 0."""
    return _translated(pixels, distance, axis=2)


def translate_y(pixels: tf.Tensor, distance: tf.Tensor) -> tf.Tensor:
    """Sample `distance` pixels further down, int32 [b]; the outside is 0."""
    return _translated(pixels, distance, axis=1)


def _translated(pixels: tf.Tensor, distance: tf.Tensor, axis: int) -> tf.Tensor:
    size = pixels.shape[axis]
    margins = [[int(dimension == axis)] * 2 for dimension in range(4)]
    places = tf.clip_by_value(1 + tf.range(size) + distance[:, None], 0, size + 1)
    return tf.gather(tf.pad(pixels, margins), places, axis=axis, batch_dims=1)


def _middles(size: int) -> tf.Tensor:
    """Return the coordinates of pixel centers, float64 [size]: 0.5, 1.5, ..."""
    return tf.range(size, dtype=tf.float64) + 0.5


def _neighbours(shift: tf.Tensor, pixel, size: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the two neighbors along one axis of the place `pixel` + shift; integers are pixel centers.

    Returns:
        The pixels on either side, int32, clipped to the image; the share of the second, float32, in the shape of the
        shift; and whether the place is within the image, which extends half a pixel beyond the outermost centers.
    """
    before = tf.floor(shift)
    first = tf.cast(before, tf.int32) + pixel
    nearest = tf.cast(tf.floor(shift + 0.5), tf.int32) + pixel
    ends = (tf.clip_by_value(end, 0, size - 1) for end in (first, first + 1))
    return *ends, tf.cast(shift - before, tf.float32), (nearest >= 0) & (nearest < size)


def _reader(pixels: tf.Tensor, inside: tf.Tensor):
    """Return a function (rows, *columns) -> the pixels at these rows and each of the columns, uint8 [b, h, w c].

    Rows, columns (int32) and `inside` (bool) have shapes that broadcast to [b, h, w]; columns are within the image.
    Pixels that are not inside are 0.
    """
    height, width, channels = pixels.shape[1:]
    # Places outside refer to a line of zeros at the front, which is cheaper than masking each channel.
    flat = tf.concat([tf.zeros([width, channels], tf.uint8), tf.reshape(pixels, [-1, channels])], axis=0)
    first = width + height * width * tf.range(tf.shape(pixels)[0])[:, None, None]

    def read(rows, *columns):
        line = tf.where(inside, first + rows * width, 0)
        return [tf.reshape(tf.gather(flat, line + column), [-1, height, width * channels]) for column in columns]

    return read


def _between(first: tf.Tensor, second: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
    """Interpolate: first + share (second - first), float32 [b, h, w c]; the share may have a single row or column."""
    first, second = tf.cast(first, tf.float32), tf.cast(second, tf.float32)
    return first + share * (second - first)


def _image(lines: tf.Tensor, pixels: tf.Tensor) -> tf.Tensor:
    """Truncate [b, h, w c] to integers, in the shape of `pixels`."""
    return tf.reshape(tf.cast(lines, tf.uint8), [-1, *pixels.shape[1:]])


def _per_image(parameter: tf.Tensor) -> tf.Tensor:
    return tf.reshape(parameter, [-1, 1, 1, 1])
