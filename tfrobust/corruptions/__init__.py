"""The common corruptions of Hendrycks and Dietterich (2019) as tensor operations: 15, and 4 more for validation.

    corrupted = corrupt(images, "gaussian_noise", severity=3, keys=keys)

They run eagerly, in a tf.function, in tf.data and on any device. Random numbers are stateless, with one key per
example. A corruption is one function, decorated with its constants; `severities` scales them to any image size. What is
random has a function of its own, which samples, so that a corruption can be checked with the random numbers of another
implementation.

`sequence` makes sequences of frames with a slowly growing change, or with new noise in each frame.

Source:
    Hendrycks and Dietterich 2019 (arXiv 1903.12261) and their code. Differences: frost uses generated textures unless
    pictures are given; motion blur follows ImageMagick's up to rounding; JPEG uses TensorFlow's own codec.
"""

import importlib
import numbers
import pkgutil

import tensorflow as tf

from tfrobust.corruptions import draws, registry, resampling, temporal
from tfrobust.corruptions.registry import CORRUPTIONS, SEVERITIES, Corruption
from tfrobust.corruptions.sequences import EXTRA_SEQUENCES, SEQUENCES, sequence
from tfrobust.errors import InputError
from tfrobust.ops import batch_checks

__all__ = [
    "CLIP_NAMES",
    "EXTRA_NAMES",
    "EXTRA_SEQUENCES",
    "GROUPS",
    "NAMES",
    "SEQUENCES",
    "SEVERITIES",
    "apply",
    "check",
    "corrupt",
    "corrupt_clips",
    "draw",
    "sequence",
]

# Every module of this folder registers its corruptions.
for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

# Groups of corruptions, in the order of the benchmark.
GROUPS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
NAMES = tuple(name for names in GROUPS.values() for name in names)
# The benchmark's four for validation, and every corruption that is none of the benchmark's.
_VALIDATION = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
EXTRA_NAMES = (*_VALIDATION, *(name for name in CORRUPTIONS if name not in (*NAMES, *_VALIDATION)))
# The tfrobust clip corruptions: those of images, frame by frame, and those in time.
CLIP_NAMES = (*NAMES, *temporal.NAMES)


@tf.autograph.experimental.do_not_convert
def corrupt(
    images: tf.Tensor, name: str, severity: int, keys: tf.Tensor, *, quantised: bool = True, frost_pictures=None
) -> tf.Tensor:
    """Apply one corruption to images.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> images, keys = tf.fill([2, 8, 8, 3], 0.5), tf.constant([[7, 0], [7, 1]])
        >>> brighter = robust.corruptions.corrupt(images, "brightness", 5, keys)
        >>> brighter.shape, round(float(brighter[0, 0, 0, 0]), 3)
        (TensorShape([2, 8, 8, 3]), 0.8)
        >>> noisy = robust.corruptions.corrupt(images, "gaussian_noise", 5, keys)
        >>> bool(tf.reduce_all(noisy[0] == noisy[1]))
        False

    Args:
        images: float32 [b, h, w, c] in [0, 1], c = 1 (gray) or 3 (RGB); b may be unknown, the other sizes are static.
        name: one of NAMES or EXTRA_NAMES.
        severity: 1 to 5.
        keys: int32 [b, 2], one per example (`ops.randomness.example_keys`).
        quantised: round down to the 256 gray levels, as in the benchmark's files.
        frost_pictures: uint8 [n, H, W, 3] (`textures.read_frost`) in place of the generated frost; or None.

    Returns:
        float32 [b, h, w, c] in [0, 1], a function of each image, its key and the other arguments alone.

    Raises:
        ValueError: unknown name or severity, images of another shape, or pixels outside [0, 1] (in a graph: an error of
            TensorFlow).
    """
    images = tf.convert_to_tensor(images)
    batch_checks.check_pixels(images, "corrupt")
    batch_checks.check_sizes(images, "corrupt")
    drawn = draw(images, name, severity, keys, frost_pictures=frost_pictures)
    corrupted = tf.clip_by_value(apply(images, name, severity, drawn), 0.0, 1.0)
    return resampling.to_bytes(corrupted) if quantised else corrupted


@tf.autograph.experimental.do_not_convert
def corrupt_clips(clips: tf.Tensor, name: str, severity: int, keys: tf.Tensor) -> tf.Tensor:
    """Apply one of the tfrobust clip corruptions, which are no published benchmark.

    The corruptions of images change each frame with the same random numbers: noise, snow or a blur stands still.
    `corruptions.temporal` has those in time.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> clips = tf.reshape(tf.range(8.0) / 8, [1, 8, 1, 1, 1]) + tf.zeros([1, 8, 4, 4, 1])
        >>> late = robust.corruptions.corrupt_clips(clips, "frame_freeze", 3, tf.constant([[0, 1]]))
        >>> sorted(int(8 * shown) for shown in late[0, :, 0, 0, 0]) != list(range(8))
        True

    Args:
        clips: float32 [b, t, h, w, c] in [0, 1], c = 1 (gray) or 3 (RGB); b may be unknown, the other sizes are static.
        name: one of CLIP_NAMES; "video_compression" needs the extra `video`.
        severity: 1 to 5.
        keys: int32 [b, 2], one per clip.

    Returns:
        float32 [b, t, h, w, c] in [0, 1], a function of each clip, its key and the other arguments alone.

    Raises:
        ValueError: unknown name or severity, clips of another shape, or pixels outside [0, 1] (in a graph: an error of
            TensorFlow).
    """
    clips = tf.convert_to_tensor(clips)
    if name not in CLIP_NAMES:
        raise InputError(f"There is no corruption {name!r} of clips; there are {', '.join(CLIP_NAMES)}.")
    _check_severity(severity)
    if clips.shape.rank != 5:
        raise InputError(f"corrupt_clips needs clips [b, t, h, w, c]; these have shape {list(clips.shape)}.")
    if name in temporal.NAMES:
        batch_checks.check_pixels(clips, "corrupt_clips")
        return temporal.change(clips, name, severity, keys)
    frames = tf.reshape(clips, [-1, *clips.shape[2:]])
    corrupted = corrupt(frames, name, severity, tf.repeat(keys, clips.shape[1], axis=0))
    return tf.ensure_shape(tf.reshape(corrupted, tf.shape(clips)), clips.shape)


@tf.autograph.experimental.do_not_convert
def draw(images: tf.Tensor, name: str, severity: int, keys: tf.Tensor, *, frost_pictures=None) -> dict:
    """Sample the random numbers of a corruption.

    The arguments are those of `corrupt`.

    Returns:
        Tensors [b, ...] by name.
    """
    chosen, constants = _find(images, name, severity)
    if chosen.draw is None:
        return {}
    more = {"pictures": frost_pictures} if name == "frost" else {}
    return chosen.draw(draws.fold(keys, name, severity, images.shape[0]), images, constants, **more)


@tf.autograph.experimental.do_not_convert
def apply(images: tf.Tensor, name: str, severity: int, drawn: dict) -> tf.Tensor:
    """Apply a corruption with given random numbers, without clipping or quantization.

    The arguments are those of `corrupt`, and the output of `draw`.

    Returns:
        float32 [b, h, w, c].
    """
    chosen, constants = _find(images, name, severity)
    return tf.ensure_shape(chosen.apply(images, drawn, constants), images.shape)


def check(name: str, severity: int) -> None:
    """Raise ValueError for an unknown corruption or severity."""
    if name not in CORRUPTIONS:
        raise InputError(f"There is no corruption {name!r}; there are {', '.join((*NAMES, *EXTRA_NAMES))}.")
    _check_severity(severity)


def _check_severity(severity) -> None:
    if not isinstance(severity, numbers.Integral) or severity not in SEVERITIES:
        raise InputError(f"The severity is {severity}; it is a whole number from 1 to 5.")


def _find(images: tf.Tensor, name: str, severity: int) -> tuple[Corruption, object]:
    check(name, severity)
    resampling.check_images(images)
    return CORRUPTIONS[name], registry.constants(name, severity, *images.shape[1:3])
