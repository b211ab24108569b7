"""Blur: Gaussian, defocus, glass, motion, zoom. Each has a sampler and a function of images, samples and constants.

Source: Hendrycks and Dietterich 2019 (arXiv 1903.12261), their make_cifar_c.py and make_imagenet_c.py.
"""

import math

import numpy as np
import tensorflow as tf

from tfrobust.corruptions import draws, resampling
from tfrobust.corruptions.registry import Scale, corruption

# Taps of a streak with a total weight below this are omitted: a four-hundredth of a gray level.
_NEGLIGIBLE = 1e-5
# Slightly above 1/2, so that exact halves, as at 30 and 60 degrees, do not depend on the rounding of a sine.
_HALF = 0.50001


@corruption(small=(0.4, 0.6, 0.7, 0.8, 1), large=(1, 2, 3, 4, 6), scaled=lambda sigma, size: sigma * size.length)
def gaussian_blur(images: tf.Tensor, draw: dict, sigma: float) -> tf.Tensor:
    """Apply a Gaussian filter of `sigma` pixels, truncated at 4 sigma, with edges repeated."""
    return resampling.gaussian(images, sigma)


@corruption(
    small=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    large=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    scaled=lambda values, size: (values[0] * size.length, values[1]),
)
def defocus_blur(images: tf.Tensor, draw: dict, constants) -> tf.Tensor:
    """Filter with a disk of `radius` pixels, whose edge is smoothed by a Gaussian of `alias` pixels."""
    return resampling.filter_2d(images, disk(*constants))


def disk(radius: float, alias: float) -> np.ndarray:
    """Return the kernel of defocus blur, float64 [odd, odd], without surrounding zeros.

    1 where x^2 + y^2 <= radius^2 on the integer pixels of a square of +-8 (+-radius above 8), divided by its sum; then
    a 3 x 3 (above 8: 5 x 5) Gaussian filter, mirrored at the border of the square.
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
    """Sample `offsets`, int32 [b, iterations, h, w, 2], rows and columns, each in -delta .. delta - 1."""
    _, delta, iterations = constants
    shape = [iterations, *images.shape[1:3], 2]
    return {"offsets": draws.below(keys, shape, "glass", 2 * delta) - delta}


def _scaled_glass(values: tuple, size: Scale) -> tuple:
    sigma, delta, iterations = values
    return sigma * size.length, max(1, round(delta * size.length)), iterations


@corruption(
    draw=draw_offsets,
    small=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    large=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    scaled=_scaled_glass,
)
def glass_blur(images: tf.Tensor, draw: dict, constants) -> tf.Tensor:
    """Apply a Gaussian filter, copy pixels from nearby places, and apply a Gaussian filter.

    Rows and columns are visited from h - delta down to delta + 1, and each pixel takes the current value of the pixel
    at its offset. The original code intends to swap the two pixels. Because its arrays are views, it copies, and so
    does this function.
    """
    sigma, delta, iterations = constants
    height, width, channels = images.shape[1:]
    flat = tf.reshape(resampling.to_bytes(resampling.gaussian(images, sigma)), [-1, height * width, channels])
    for iteration in range(iterations):
        flat = tf.gather(flat, _copied_from(draw["offsets"][:, iteration], delta), batch_dims=1)
    return resampling.gaussian(tf.reshape(flat, [-1, height, width, channels]), sigma)


def _copied_from(offsets: tf.Tensor, delta: int) -> tf.Tensor:
    """Return the source of each pixel's value after one pass, int32 [b, h w], from offsets [b, h, w, 2].

    A pixel visited earlier in the pass (a larger index) has already been overwritten when it is copied, so its own
    source is used. Pointer doubling resolves such chains.
    """
    height, width = offsets.shape[1:3]
    rows, columns = np.indices([height, width]).astype(np.int32)
    visited = (rows > delta) & (rows <= height - delta) & (columns > delta) & (columns <= width - delta)
    here = rows * width + columns
    there = (rows + offsets[..., 0]) * width + columns + offsets[..., 1]
    source = tf.reshape(tf.where(visited, there, here), [-1, height * width])
    if delta == 1:  # offsets are -1 and 0: no overwritten pixel is ever copied
        return source
    chained = tf.gather(tf.constant(visited.ravel()), source) & (source > here.ravel())
    onward = tf.where(chained, source, here.ravel())
    for _ in range(max(1, (height * width - 1).bit_length())):
        onward = tf.gather(onward, onward, batch_dims=1)
    return tf.gather(source, onward, batch_dims=1)


def draw_angle(keys: tf.Tensor, images: tf.Tensor, constants) -> dict:
    """Sample `angle`, float32 [b], in degrees, uniform on [-45, 45)."""
    return {"angle": draws.uniform(keys, [], "angle", -45.0, 45.0)}


def _scaled_streak(values: tuple, size: Scale) -> tuple:
    radius, sigma = values
    return max(1, round(radius * size.streak)), sigma * size.streak


@corruption(
    draw=draw_angle,
    small=((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    large=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    scaled=_scaled_streak,
)
def motion_blur(images: tf.Tensor, draw: dict, constants) -> tf.Tensor:
    """Blur along a one-sided streak of `radius` and `sigma` pixels at a random angle; rounded before and after."""
    return resampling.rounded(streaks(resampling.rounded(images), draw["angle"], *constants))


def streaks(images: tf.Tensor, angle: tf.Tensor, radius: int, sigma: float) -> tf.Tensor:
    """Apply ImageMagick's motion blur with one angle per image.

    sum_i k_i x(row + ceil(i sin(angle) - 1/2), column + ceil(i cos(angle) - 1/2)), k_i proportional to exp(-i^2 / (2
    sigma^2)), i = 0 .. 2 radius, edges repeated. The sum ends where a shift is as long as the image, which darkens it.

    Args:
        images: float32 [b, h, w, c].
        angle: float32 [b], degrees.
        radius: pixels, >= 1.
        sigma: pixels, > 0.

    Returns:
        float32 [b, h, w, c].

    Source:
        ImageMagick's MotionBlurImage, as ported by the package imagecorruptions; equal up to rounding.
    """
    height, width = images.shape[1:3]
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    taps = int(np.sum(np.cumsum(weights[::-1])[::-1] >= _NEGLIGIBLE))
    radians, places = angle * (math.pi / 180), np.arange(taps, dtype=np.float32)[:, None]
    down = tf.cast(tf.math.ceil(places * tf.sin(radians) - _HALF), tf.int32)
    across = tf.cast(tf.math.ceil(places * tf.cos(radians) - _HALF), tf.int32)
    inside = tf.cast((tf.abs(down) < height) & (tf.abs(across) < width), tf.float32)
    shares = weights[:taps, None].astype(np.float32) * tf.math.cumprod(inside, axis=0)
    rows = tf.clip_by_value(np.arange(height) + down[..., None], 0, height - 1)
    columns = tf.clip_by_value(np.arange(width) + across[..., None], 0, width - 1)
    total = 0.0
    for tap in range(taps):
        shifted = tf.gather(images, rows[tap], axis=1, batch_dims=1)
        # Whole columns are copied faster than pixels: the sum is stored with rows and columns exchanged.
        shifted = tf.gather(tf.transpose(shifted, [0, 2, 1, 3]), columns[tap], axis=1, batch_dims=1)
        total += shares[tap][:, None, None, None] * shifted
    return tf.transpose(total, [0, 2, 1, 3])


@corruption(
    small=((1, 1.06, 0.01), (1, 1.11, 0.01), (1, 1.16, 0.01), (1, 1.21, 0.01), (1, 1.26, 0.01)),
    large=((1, 1.11, 0.01), (1, 1.16, 0.01), (1, 1.21, 0.02), (1, 1.26, 0.02), (1, 1.31, 0.03)),
)
def zoom_blur(images: tf.Tensor, draw: dict, constants) -> tf.Tensor:
    """Average the image and its center magnified by each factor start, start + step, ... < stop.

    As in the original, numpy.arange computes the factors, so that rounding sometimes includes the stop.
    """
    factors = tuple(map(float, np.arange(*constants)))
    return (images + len(factors) * resampling.mean_zoom(images, factors)) / (len(factors) + 1)
