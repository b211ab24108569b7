"""Perturbation sequences: short clips in which an image changes a little from frame to frame.

    frames = sequence(images, "rotate", keys)  # [b, frames, h, w, c]

Ten types and four more for validation, after CIFAR-P and ImageNet-P. Frames of the noise types are independent samples
of noise on the image, which is frame 0. In all other types each frame follows from a slow change.

The constants depend on the image's shorter side S, as with the corruptions (`severities`): those of CIFAR-P below 84.7
pixels, those of ImageNet-P from there on. At S = 32 and S = 224 they are the published ones. They differ in strengths
and speeds, and in two numbers of frames: 21 (ImageNet-P 31) for motion blur, 16 (41) for translate; all others have 31.
At other S, widths of blurs, the size of flakes and drops, and the streaks of motion blur and snow scale as for the
corruptions. A translation moves S / 32 (S / 224) pixels per frame, rounded to integers. Angles, factors and strengths
are constant.

Source:
    Hendrycks and Dietterich 2019 (arXiv 1903.12261), their make_cifar_p.py and make_imagenet_p.py. Differences: pixels
    that move in from outside are black, as in CIFAR-P (ImageNet-P cropped its frames from larger pictures); no video
    codec is applied (ImageNet-P is stored as H.264); motion blur as in the corruptions. The script that evaluates
    CIFAR-P uses spatter where ImageNet-P's ten have snow. Tiny ImageNet-P (64 pixels) has constants of its own that
    follow no rule; they are not used.
"""

import math
import numbers
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfrobust.corruptions import blur, digital, draws, noise, registry, resampling, spatter, weather
from tfrobust.errors import InputError
from tfrobust.ops import batch_checks

# ImageNet-P's ten, in its order, and the four for validation.
SEQUENCES = (
    *("gaussian_noise", "shot_noise", "motion_blur", "zoom_blur", "snow"),
    *("brightness", "translate", "rotate", "tilt", "scale"),
)
EXTRA_SEQUENCES = ("speckle_noise", "gaussian_blur", "spatter", "shear")
LEVELS = (1, 2, 3)


class Noise(NamedTuple):
    """Constants of a noise sequence.

    Attributes:
        frames: number of frames.
        strengths: strength of each level.
    """

    frames: int
    strengths: tuple


class Change(NamedTuple):
    """Constants of a slow change.

    Attributes:
        frames: number of frames.
        first: parameter of frame 0; frame i has first + i step.
        step: change of the parameter per frame.
        more: further constants of the type.
    """

    frames: int
    first: float
    step: float
    more: tuple = ()


_SMALL: dict[str, Noise | Change] = {
    "gaussian_noise": Noise(31, (0.02, 0.04, 0.06)),
    "shot_noise": Noise(31, (700, 400, 200)),
    "motion_blur": Change(21, -180, 9, (6, 1.8)),  # degrees; radius and sigma in pixels
    "zoom_blur": Change(31, 1, 0.004),
    "snow": Change(31, -150, 4, (0.05, 0.3, 2, 0.5, 10, 2, 0.85)),  # degrees; constants of the corruption
    "brightness": Change(31, -0.225, 0.015),
    "translate": Change(16, -7, 1),  # pixels
    "rotate": Change(31, -15, 1),  # degrees
    "tilt": Change(31, -11.25, 0.75),  # degrees
    "scale": Change(31, 0.7, 0.02),
    "speckle_noise": Noise(31, (0.05, 0.07, 0.1)),
    "gaussian_blur": Change(31, 0.3, 0.015, (7.0,)),  # sigma in pixels; truncated at this many sigma
    # Location, deviation, sigma in pixels, threshold and weight of the drops; taps of the filter that moves them down.
    "spatter": Change(31, 0, 1, (0.6, 0.265, 1.75, 0.7, 0.6, (0.2, 0.8))),
    "shear": Change(31, -15, 1),  # degrees
}
_LARGE: dict[str, Noise | Change] = _SMALL | {
    "gaussian_noise": Noise(31, (0.03, 0.05, 0.08)),
    "shot_noise": Noise(31, (300, 120, 60)),
    "motion_blur": Change(31, -120, 4, (10, 3)),
    "snow": Change(31, -150, 4, (0.05, 0.3, 3, 0.5, 14, 4, 0.85)),
    "brightness": Change(31, -0.3, 0.02),
    "translate": Change(41, -20, 1),
    "tilt": Change(31, -15, 1),
    "scale": Change(31, 0.4, 0.025),
    "speckle_noise": Noise(31, (0.05, 0.1, 0.15)),
    "gaussian_blur": Change(31, 0.25, 0.035, (6.0,)),
    "spatter": Change(31, 0, 1, (0.65, 0.27, 3.7, 0.69, 0.6, (0.05, 0.1, 0.15, 0.7))),
}


def is_noise(name: str) -> bool:
    """Return True if the frames of a type are independent, so that each is compared with the first."""
    return "noise" in name


@tf.autograph.experimental.do_not_convert
def sequence(images: tf.Tensor, name: str, keys: tf.Tensor, *, level: int = 1) -> tf.Tensor:
    """Create perturbation sequences of one type from images.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> images, keys = tf.fill([2, 32, 32, 3], 0.4), tf.constant([[7, 0], [7, 1]])
        >>> frames = robust.corruptions.sequence(images, "brightness", keys)
        >>> frames.shape, bool(tf.reduce_all(frames[:, 15] == images))
        (TensorShape([2, 31, 32, 32, 3]), True)

    Args:
        images: float32 [b, h, w, c] in [0, 1], c = 1 (gray) or 3 (RGB); b may be unknown, the other sizes are static.
            They are rounded to the nearest of 256 gray levels.
        name: one of SEQUENCES or EXTRA_SEQUENCES.
        keys: int32 [b, 2], one per example (`ops.randomness.example_keys`).
        level: 1; for noise also 2 and 3, which are stronger. The benchmark's numbers are those of level 1.

    Returns:
        float32 [b, frames, h, w, c], whole gray levels in [0, 1], a function of each image, its key and the other
        arguments.

    Raises:
        ValueError: unknown name or level, images of another shape, or pixels outside [0, 1] (in a graph: an error of
            TensorFlow).
    """
    images = tf.convert_to_tensor(images)
    batch_checks.check_pixels(images, "sequence")
    resampling.check_images(images)
    check(name, level)
    settings = constants(name, *images.shape[1:3])
    keys = draws.fold(keys, f"{name} sequence", level, images.shape[0])
    images = resampling.rounded(images)
    if isinstance(settings, Noise):
        sequences = _noisy(name, images, keys, settings.frames, settings.strengths[level - 1])
    else:
        sequences = _MAKERS[name](
            images, keys, settings.first + settings.step * np.arange(settings.frames), settings.more
        )
    return tf.ensure_shape(resampling.to_bytes(sequences), [None, settings.frames, *images.shape[1:]])


def check(name: str, level: int = 1) -> None:
    """Raise ValueError for an unknown sequence, or for a level that it does not have."""
    if name not in _SMALL:
        raise InputError(
            f"There is no perturbation sequence {name!r}; there are {', '.join((*SEQUENCES, *EXTRA_SEQUENCES))}."
        )
    levels = LEVELS if is_noise(name) else LEVELS[:1]
    if not isinstance(level, numbers.Integral) or level not in levels:
        raise InputError(f"{name} has no level {level}; it has {', '.join(map(str, levels))}.")


def constants(name: str, height: int, width: int) -> Noise | Change:
    """Return the constants of a type for an image size."""
    reference, scale, length, streak, _ = registry.scales(height, width)
    settings = (_SMALL if reference == 32 else _LARGE)[name]
    return settings if isinstance(settings, Noise) else _scaled(name, settings, scale, length, streak)


def _scaled(name: str, settings: Change, scale: float, length: float, streak: float) -> Change:
    """Return the constants of a change for the scales of an image size; see `registry.scales`."""
    if name == "translate":
        return settings._replace(first=settings.first * scale, step=settings.step * scale)
    if name == "gaussian_blur":
        return settings._replace(first=settings.first * length, step=settings.step * length)
    if name == "motion_blur":
        radius, sigma = settings.more
        return settings._replace(more=(max(1, round(radius * streak)), sigma * streak))
    if name == "snow":
        location, deviation, zoom, threshold, radius, sigma, blend = settings.more
        streaks = max(1, round(radius * streak)), sigma * streak
        return settings._replace(more=(location, deviation, max(1.0, zoom * length), threshold, *streaks, blend))
    if name == "spatter":
        return settings._replace(more=(*settings.more[:2], settings.more[2] * length, *settings.more[3:]))
    return settings


# ------------------------------------------------------------------------------- noise, and changes of the pixels


def _noisy(name: str, images: tf.Tensor, keys: tf.Tensor, frames: int, strength: float) -> tf.Tensor:
    """Return the image, then `frames` - 1 noisy copies, [b, frames, h, w, c]."""
    draw, apply = {
        "gaussian_noise": (noise.draw_normal, noise.gaussian_noise),
        "shot_noise": (noise.draw_counts, noise.shot_noise),
        "speckle_noise": (noise.draw_normal, noise.speckle_noise),
    }[name]
    still = tf.repeat(images[:, None], frames - 1, axis=1)
    return tf.concat([images[:, None], apply(still, draw(keys, still, strength), strength)], axis=1)


def _brightness(images: tf.Tensor, keys: tf.Tensor, shifts: np.ndarray, more: tuple) -> tf.Tensor:
    return digital.brightness(images[:, None], {}, tf.constant(shifts[:, None, None, None], tf.float32))


def _gaussian_blur(images: tf.Tensor, keys: tf.Tensor, sigmas: np.ndarray, more: tuple) -> tf.Tensor:
    return tf.stack([resampling.gaussian(images, sigma, *more) for sigma in sigmas], axis=1)


def _motion_blur(images: tf.Tensor, keys: tf.Tensor, angles: np.ndarray, more: tuple) -> tf.Tensor:
    still = tf.repeat(images, len(angles), axis=0)
    return _by_frames(blur.motion_blur(still, {"angle": _for_each(images, angles)}, more), len(angles))


def _snow(images: tf.Tensor, keys: tf.Tensor, angles: np.ndarray, more: tuple) -> tf.Tensor:
    """Apply one layer of flakes whose streaks rotate."""
    flakes = weather.draw_snow(keys, images, more)["flakes"]
    still, flakes = (tf.repeat(layer, len(angles), axis=0) for layer in (images, flakes))
    return _by_frames(weather.snow(still, {"flakes": flakes, "angle": _for_each(images, angles)}, more), len(angles))


def _spatter(images: tf.Tensor, keys: tf.Tensor, at: np.ndarray, more: tuple) -> tf.Tensor:
    """Apply drops of water that run down: in every frame the layer is convolved along its columns with `taps`."""
    location, deviation, sigma, threshold, weight, taps = more
    layer = resampling.gaussian(location + deviation * spatter.draw_spatter(keys, images, more)["drops"], sigma)
    layer = tf.where(layer < threshold, 0.0, layer)
    height, width = images.shape[1:3]
    # As numpy.convolve in mode "same", which uses the earlier of the two middle taps of an even number.
    run = sum(tap * np.eye(height, k=(len(taps) - 1) // 2 - index) for index, tap in enumerate(taps))
    runs = np.stack([np.linalg.matrix_power(run, number) for number in range(len(at))])
    layers = tf.einsum("fij,bjk->bfik", tf.constant(runs, tf.float32), layer[..., 0])
    layers = tf.reshape(layers, [-1, height, width, 1])
    return _by_frames(spatter.water(tf.repeat(images, len(at), axis=0), layers, weight), len(at))


def _by_frames(images: tf.Tensor, frames: int) -> tf.Tensor:
    return tf.reshape(images, [-1, frames, *images.shape[1:]])


def _for_each(images: tf.Tensor, values: np.ndarray) -> tf.Tensor:
    """Repeat the frames' values for every image, float32 [b frames]."""
    return tf.tile(tf.constant(values, tf.float32), [tf.shape(images)[0]])


# --------------------------------------------------------------------------------------- changes of the places


def _affine(images: tf.Tensor, *, factor=1.0, angle=0.0, shear=0.0, shift=0.0) -> tf.Tensor:
    """Apply Pillow's bilinear affine transform with torchvision's matrices of that time, rounded down.

    A pixel's center p is mapped to C + L (p - C) + (shift, 0), L = factor [[cos a, -sin(a + s)], [sin a, cos(a + s)]]
    with the angle a and the shear s, in the order horizontal, vertical. C is half a pixel away from the center of the
    image.

    Args:
        images: float32 [b, h, w, c].
        factor: [frames] or a number.
        angle: degrees, [frames] or a number.
        shear: degrees, [frames] or a number.
        shift: pixels, [frames] or a number.

    Returns:
        float32 [b, frames, h, w, c].
    """
    factor, angle, shear, shift = np.broadcast_arrays(*(np.atleast_1d(v) for v in (factor, angle, shear, shift)))
    angle, shear = np.deg2rad(angle), np.deg2rad(shear)
    forward = [[np.cos(angle), -np.sin(angle + shear)], [np.sin(angle), np.cos(angle + shear)]]
    back = np.linalg.inv(np.moveaxis(np.array(forward) * factor, 2, 0))[..., None, None]
    height, width = images.shape[1:3]
    # Pixel centers are at half-integers, an integer distance from C.
    down, across = tf.range(height, dtype=tf.float64)[:, None] - height / 2, tf.range(width, dtype=tf.float64)
    across = across - width / 2 - shift[:, None, None]
    columns = back[:, 0, 0] * across + back[:, 0, 1] * down + width / 2
    rows = back[:, 1, 0] * across + back[:, 1, 1] * down + height / 2
    return resampling.to_bytes(_sample_frames(images, rows, columns, cut=True))


def _zoom_blur(images: tf.Tensor, keys: tf.Tensor, factors: np.ndarray, more: tuple) -> tf.Tensor:
    """Average the image and its magnifications up to the i-th in frame i."""
    zoomed = tf.concat([images[:, None], _affine(images, factor=factors[1:])], axis=1)
    counts = tf.range(1, len(factors) + 1, dtype=tf.float32)[:, None, None, None]
    return tf.cumsum(zoomed, axis=1) / counts


def _tilt(images: tf.Tensor, keys: tf.Tensor, angles: np.ndarray, more: tuple) -> tf.Tensor:
    """Apply OpenCV's bilinear perspective warp of a plane rotated about both axes, at a distance of its diagonal.

    The matrices P1, RX, RY, T, P2 are those of the original. Its plane is at depth 1, so that frame 15 is not exactly
    the image.
    """
    height, width = images.shape[1:3]
    focal = math.hypot(width, height)
    onto = np.array([[1, 0, -width / 2], [0, 1, -height / 2], [0, 0, 1], [0, 0, 1]])
    away = np.array([[focal, 0, width / 2, 0], [0, focal, height / 2, 0], [0, 0, 1, 0]])
    away = away @ np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, focal], [0, 0, 0, 1]])
    back = []
    for angle in np.deg2rad(angles):
        cosine, sine = math.cos(angle), math.sin(angle)
        about_x = np.array([[1, 0, 0, 0], [0, cosine, -sine, 0], [0, sine, cosine, 0], [0, 0, 0, 1]])
        about_y = np.array([[cosine, 0, -sine, 0], [0, 1, 0, 0], [sine, 0, cosine, 0], [0, 0, 0, 1]])
        back.append(np.linalg.inv(away @ about_x @ about_y @ onto))
    back = np.array(back)[..., None, None]
    down, across = tf.range(height, dtype=tf.float64)[:, None], tf.range(width, dtype=tf.float64)
    columns, rows, depth = (back[:, axis, 0] * across + back[:, axis, 1] * down + back[:, axis, 2] for axis in range(3))
    return resampling.rounded(_sample_frames(images, rows / depth, columns / depth, cut=False))


def _sample_frames(images: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor, *, cut: bool) -> tf.Tensor:
    """Interpolate every image linearly at the same places, black outside.

    Args:
        images: float32 [b, h, w, c].
        rows: float64 [frames, h', w'], in pixels; 0 is the center of the first.
        columns: float64 [frames, h', w'], in pixels; 0 is the center of the first.
        cut: True: a place outside the area of the pixels is black, one at its rim uses the nearest pixels (Pillow).
            False: every pixel outside the image is black (OpenCV).

    Returns:
        float32 [b, frames, h', w', c].
    """
    height, width, channels = images.shape[1:]
    flat = tf.reshape(images, [-1, height * width, channels])
    first_row, first_column = tf.floor(rows), tf.floor(columns)
    down, across = rows - first_row, columns - first_column
    total = 0.0
    for step_down, weight_down in ((0, 1 - down), (1, down)):
        for step_right, weight_right in ((0, 1 - across), (1, across)):
            row, column = first_row + step_down, first_column + step_right
            if cut:
                inside = (rows >= -0.5) & (rows < height - 0.5) & (columns >= -0.5) & (columns < width - 0.5)
            else:
                inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            weight = tf.cast(tf.where(inside, weight_down * weight_right, 0.0), tf.float32)[..., None]
            index = tf.clip_by_value(row, 0, height - 1) * width + tf.clip_by_value(column, 0, width - 1)
            total += weight * tf.gather(flat, tf.cast(index, tf.int32), axis=1)
    return total


# (images, keys, one value per frame, further constants) -> [b, frames, h, w, c].
_MAKERS = {
    "motion_blur": _motion_blur,
    "zoom_blur": _zoom_blur,
    "snow": _snow,
    "brightness": _brightness,
    "translate": lambda images, keys, shifts, more: _affine(images, shift=np.floor(shifts + 0.5)),
    "rotate": lambda images, keys, angles, more: _affine(images, angle=angles),
    "tilt": _tilt,
    "scale": lambda images, keys, factors, more: _affine(images, factor=factors),
    "gaussian_blur": _gaussian_blur,
    "spatter": _spatter,
    "shear": lambda images, keys, angles, more: _affine(images, shear=angles),
}
