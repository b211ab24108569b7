"""Fog and frost textures, generated because the benchmark's frost pictures may not be redistributed.

The frost is synthetic: ridges of noise stretched along a few directions, like ice needles, each direction in patches of
its own. Brightness, tint and streaks resemble photographed frost, but pixels differ. Results on generated frost are
therefore close to the published ones, not equal.
"""

import functools
import os
import pathlib

import numpy as np
import tensorflow as tf

from tfrobust.corruptions import registry
from tfrobust.errors import InputError
from tfrobust.security import picture_files

# The benchmark has five pictures.
PICTURES = 5
_SIDE = 512  # side of the generated pictures, for images of 65 to 256 pixels
_SHRINK = 0.2  # the benchmark's scaling of the pictures for 32-pixel images
_SUFFIXES = (".png", ".jpg", ".jpeg")


def plasma(field: tf.Tensor, decay: float) -> tf.Tensor:
    """Generate clouds by the diamond-square algorithm on a periodic grid, scaled to [0, 1] per example.

    The corner is 0. Each time the step is halved, the center of each square, then of each edge, is the mean of its four
    neighbors + wibble^2 u, wibble = 100 / decay^level.

    Args:
        field: float32 [b, s, s], u uniform on [-1, 1); s a power of two.
        decay: decrease of the wibble from level to level; larger values are smoother.

    Returns:
        float32 [b, s, s].
    """
    size = field.shape[1]
    grid, step, wibble = tf.zeros_like(field[:, :1, :1]), size, 100.0
    while step >= 2:
        half = step // 2
        noise = wibble * wibble * field
        right, below = tf.roll(grid, -1, axis=2), tf.roll(grid, -1, axis=1)
        square = (grid + right + below + tf.roll(right, -1, axis=1)) / 4 + noise[:, half::step, half::step]
        top = (grid + right + square + tf.roll(square, 1, axis=1)) / 4 + noise[:, ::step, half::step]
        left = (grid + below + square + tf.roll(square, 1, axis=2)) / 4 + noise[:, half::step, ::step]
        grid = _interleaved(_interleaved(grid, top, 2), _interleaved(left, square, 2), 1)
        step, wibble = half, wibble / decay
    grid -= tf.reduce_min(grid, axis=[1, 2], keepdims=True)
    return tf.math.divide_no_nan(grid, tf.reduce_max(grid, axis=[1, 2], keepdims=True))


def plasma_size(height: int, width: int) -> int:
    """Return the side of the plasma for an image: the next power of two."""
    return 1 << (max(height, width, 2) - 1).bit_length()


def _interleaved(first: tf.Tensor, second: tf.Tensor, axis: int) -> tf.Tensor:
    shape = first.shape.as_list()
    stacked = tf.stack([first, second], axis=axis + 1)
    shape[axis] *= 2
    return tf.reshape(stacked, [-1, *shape[1:]])


@functools.lru_cache(maxsize=4)
def frost(height: int, width: int) -> np.ndarray:
    """Generate five frost textures, at least twice as large as the image, uint8 [5, s, s, 3], always the same."""
    least = plasma_size(height, width)
    size = min(max(_SIDE, 2 * least), 4 * least)
    return np.stack([_pane(size, np.random.default_rng(number)) for number in range(PICTURES)])


def _pane(size: int, generator: np.random.Generator) -> np.ndarray:
    down, across = np.meshgrid(np.fft.fftfreq(size) * size, np.fft.rfftfreq(size) * size, indexing="ij")

    def noise(filtered):
        white = np.fft.rfft2(generator.standard_normal([size, size]))
        texture = np.fft.irfft2(white * filtered, s=[size, size])
        return (texture - texture.mean()) / texture.std()

    first = generator.uniform(0, np.pi)
    needles, patches = [], []
    for angle in first + np.arange(4) * np.pi / 4 + generator.uniform(-0.2, 0.2, 4):
        along, aside = down * np.sin(angle) + across * np.cos(angle), down * np.cos(angle) - across * np.sin(angle)
        # Needles about a tenth of the texture long and a sixtieth of that wide.
        needles.append(np.exp(-np.abs(noise(np.exp(-((along / 6) ** 2) - (aside / (size / 6)) ** 2))) / 0.5))
        patches.append(noise(np.exp(-((down**2 + across**2) / 3.0**2))))
    shares = np.exp(2.5 * np.stack(patches))
    ice = np.sum(np.stack(needles) * shares / shares.sum(axis=0), axis=0)
    slow = noise(1.0 / (1.0 + down**2 + across**2) ** 0.75)
    grain = noise(np.exp(-((down**2 + across**2) / (size / 5) ** 2)))
    mixed = ice / ice.std() + 0.8 * slow + 0.25 * grain
    # By rank, so that all textures are equally bright: from 0.15 to 1.
    rank = np.argsort(np.argsort(mixed, axis=None)).reshape(size, size) / (size * size - 1)
    brightness = 0.15 + 0.85 * rank**1.2
    return np.stack([255 * brightness**power for power in (1.25, 1.05, 0.9)], axis=-1).astype(np.uint8)


def frost_files(folder: str | os.PathLike) -> list[pathlib.Path]:
    """Return the first five pictures of a folder by name."""
    return sorted(path for path in pathlib.Path(folder).glob("*") if path.suffix.lower() in _SUFFIXES)[:PICTURES]


def read_frost(folder: str | os.PathLike, height: int, width: int) -> np.ndarray:
    """Read the first five pictures of a folder by name, scaled as in the benchmark and cropped to a common size.

    For images with the constants of 32 pixels they are scaled by 0.2 S / 32, otherwise by S / 224, S the shorter side
    of the image.

    Returns:
        uint8 [n, H, W, 3].

    Raises:
        ValueError: no pictures, or one smaller than the image after scaling.
    """
    paths = frost_files(folder)
    if not paths:
        raise InputError(f"{folder} holds no pictures of frost ({', '.join(_SUFFIXES)}).")
    side = min(height, width)
    reference = registry.reference_side(side)
    factor = side / reference * (_SHRINK if reference == 32 else 1.0)
    pictures = []
    for path in paths:
        try:
            picture = picture_files.decoded(tf.io.read_file(str(path)), channels=3)
        except tf.errors.OpError as error:
            raise InputError(f"{path} is not a readable PNG or JPEG image.") from error
        size = [max(1, round(length * factor)) for length in picture.shape[:2]]
        picture = tf.image.resize(picture, size, antialias=False)  # as OpenCV's default, which keeps fine texture
        if size[0] <= height or size[1] <= width:
            raise InputError(f"{path} has {size[0]} x {size[1]} pixels once scaled; images have {height} x {width}.")
        pictures.append(tf.cast(tf.round(picture), tf.uint8).numpy())
    low, narrow = (min(picture.shape[axis] for picture in pictures) for axis in (0, 1))
    return np.stack([picture[:low, :narrow] for picture in pictures])
