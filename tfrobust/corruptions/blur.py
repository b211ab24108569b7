"""Blur: gaussian, defocus, glass, motion, zoom. Each a draw and a function of images, draw and constants.

Source of all: Hendrycks and Dietterich 2019 (arXiv 1903.12261), their make_cifar_c.py and make_imagenet_c.py.
"""

import math

import numpy as np
import tensorflow as tf

from tfrobust.corruptions import draws, resampling

# Taps of a streak that together weigh less than this are left out: a four-hundredth of a grey level.
_NEGLIGIBLE = 1e-5
# Halves, as they come at 30 and 60 degrees, stay halves whatever the rounding of a sine.
_HALF = 0.50001


def draw_nothing(keys: tf.Tensor, images: tf.Tensor, constants) -> dict:
    """Nothing: the corruption is deterministic."""
    return {}


def gaussian_blur(images: tf.Tensor, draw: dict, sigma: float) -> tf.Tensor:
    """A Gaussian filter of `sigma` pixels, cut at 4 sigma, edges repeated."""
    return resampling.gaussian(images, sigma)


def defocus_blur(images: tf.Tensor, draw: dict, constants) -> tf.Tensor:
    """A filter with a disk of `radius` pixels, whose rim is softened by a Gaussian of `alias` pixels."""
    return resampling.filter_2d(images, disk(*constants))


def disk(radius: float, alias: float) -> np.ndarray:
    """The kernel of defocus blur, float64 [odd, odd], without the zeros around it.

    1 where x^2 + y^2 <= radius^2 on the whole pixels of a square of +-8 (or +-radius beyond 8), divided by its sum;
    then a 3 x 3 (beyond 8: 5 x 5) Gaussian filter, mirrored at the square's border.
    """
    reach, width = (8, 3) if radius <= 8 else (math.ceil(radius), 5)
    line = np.arange(-reach, reach + 1)
    kernel = (line[:, None] ** 2 + line**2 <= radius**2).astype(float)
    taps = np.exp(-0.5 * ((np.arange(width) - width // 2) / alias) ** 2)
    matrix = np.zeros([len(line), len(line)])
    places = resampling.fold(np.arange(len(line))[:, None] + np.arange(width) - width // 2, len(line), "mirror")
    np.add.at(matrix, (np.arange(len(line))[:, None], places), taps / taps.sum())
    kernel = matrix @ (kernel / kernel.sum()) @ matrix.T
    beyond = np.flatnonzero(kernel.max(axis=0) > 1e-9)[0]
    return kernel[beyond : len(line) - beyond, beyond : len(line) - beyond]


def draw_offsets(keys: tf.Tensor, images: tf.Tensor, constants) -> dict:
    """`offsets` int32 [b, iterations, h, w, 2], rows and columns, each of -delta .. delta - 1."""
    _, delta, iterations = constants
    shape = [iterations, *images.shape[1:3], 2]
    return {"offsets": draws.below(keys, shape, "glass", 2 * delta) - delta}


def glass_blur(images: tf.Tensor, draw: dict, constants) -> tf.Tensor:
    """Gaussian filter, pixels copied from nearby, Gaussian filter.

    Rows and columns h - delta .. delta + 1 are gone through downwards, and each pixel takes the present value of the
    one at its offset. The original means to swap the two; as its arrays are views, it copies, and so does this.
    """
    sigma, delta, iterations = constants
    height, width, channels = images.shape[1:]
    flat = tf.reshape(resampling.to_bytes(resampling.gaussian(images, sigma)), [-1, height * width, channels])
    for iteration in range(iterations):
        flat = tf.gather(flat, _copied_from(draw["offsets"][:, iteration], delta), batch_dims=1)
    return resampling.gaussian(tf.reshape(flat, [-1, height, width, channels]), sigma)


def _copied_from(offsets: tf.Tensor, delta: int) -> tf.Tensor:
    """Where each pixel's value comes from after one pass, int32 [b, h w], from offsets [b, h, w, 2].

    A pixel met earlier in the pass (a larger place) has already been overwritten when it is copied: its own source
    counts. Such chains are followed by pointer doubling.
    """
    height, width = offsets.shape[1:3]
    rows, columns = np.indices([height, width]).astype(np.int32)
    visited = (rows > delta) & (rows <= height - delta) & (columns > delta) & (columns <= width - delta)
    here = rows * width + columns
    there = (rows + offsets[..., 0]) * width + columns + offsets[..., 1]
    source = tf.reshape(tf.where(visited, there, here), [-1, height * width])
    if delta == 1:  # offsets are -1 and 0: nothing that was overwritten is ever copied
        return source
    chained = tf.gather(tf.constant(visited.ravel()), source) & (source > here.ravel())
    onward = tf.where(chained, source, here.ravel())
    for _ in range(max(1, (height * width - 1).bit_length())):
        onward = tf.gather(onward, onward, batch_dims=1)
    return tf.gather(source, onward, batch_dims=1)


def draw_angle(keys: tf.Tensor, images: tf.Tensor, constants) -> dict:
    """`angle` float32 [b], in degrees, uniform on [-45, 45)."""
    return {"angle": draws.uniform(keys, [], "angle", -45.0, 45.0)}


def motion_blur(images: tf.Tensor, draw: dict, constants) -> tf.Tensor:
    """A streak of `radius`, `sigma` pixels to one side at a random angle; bytes before and after."""
    return resampling.rounded(streaks(resampling.rounded(images), draw["angle"], *constants))


def streaks(images: tf.Tensor, angle: tf.Tensor, radius: int, sigma: float) -> tf.Tensor:
    """ImageMagick's motion blur, one angle per image.

    sum_i k_i x(row + ceil(i sin(angle) - 1/2), column + ceil(i cos(angle) - 1/2)), k_i proportional to
    exp(-i^2 / (2 sigma^2)), i = 0 .. 2 radius, edges repeated; the sum ends where a shift is as long as the image,
    which darkens it.

    Args:
        images: float32 [b, h, w, c].
        angle: float32 [b], degrees.
        radius: pixels, >= 1.
        sigma: pixels, > 0.

    Source:
        ImageMagick's MotionBlurImage, as ported by the package imagecorruptions; up to its rounding.
    """
    height, width = images.shape[1:3]
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    taps = int(np.sum(np.cumsum(weights[::-1])[::-1] >= _NEGLIGIBLE))
    radians, places = angle * (math.pi / 180), np.arange(taps, dtype=np.float32)[:, None]
    down = tf.cast(tf.math.ceil(places * tf.sin(radians) - _HALF), tf.int32)
    right = tf.cast(tf.math.ceil(places * tf.cos(radians) - _HALF), tf.int32)
    inside = tf.cast((tf.abs(down) < height) & (tf.abs(right) < width), tf.float32)
    shares = weights[:taps, None].astype(np.float32) * tf.math.cumprod(inside, axis=0)
    rows = tf.clip_by_value(np.arange(height) + down[..., None], 0, height - 1)
    columns = tf.clip_by_value(np.arange(width) + right[..., None], 0, width - 1)
    total = 0.0
    for tap in range(taps):
        shifted = tf.gather(images, rows[tap], axis=1, batch_dims=1)
        # Whole columns are copied faster than pixels: the sum is kept with rows and columns exchanged.
        shifted = tf.gather(tf.transpose(shifted, [0, 2, 1, 3]), columns[tap], axis=1, batch_dims=1)
        total += shares[tap][:, None, None, None] * shifted
    return tf.transpose(total, [0, 2, 1, 3])


def zoom_blur(images: tf.Tensor, draw: dict, constants) -> tf.Tensor:
    """The mean of the image and its centre magnified by each factor start, start + step, ... < stop.

    As the original counts with numpy.arange, the stop itself sometimes belongs to the factors.
    """
    factors = tuple(map(float, np.arange(*constants)))
    return (images + len(factors) * resampling.mean_zoom(images, factors)) / (len(factors) + 1)
