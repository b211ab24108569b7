"""Clips in augmentations: one change for all frames, and the choice of frames in time."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import keras
import tensorflow as tf

from tfrobust.augment.augmentation import Augmentation
from tfrobust.common.kinds import CLIPS, kind_of, takes
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError

GAPS = ("decreasing", "uniform")


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class EveryFrame(Augmentation):
    """Augmentation of images applied to clips: the same random numbers for all frames of a clip.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> flip = robust.augment.EveryFrame(augmentation=robust.augment.RandomFlip())
        >>> flip(tf.ones([2, 4, 8, 8, 1]), tf.constant([0, 1])).shape
        TensorShape([2, 4, 8, 8, 1])

    Args:
        augmentation: of images; `Compose` for several.

    Draw:
        The random numbers of `augmentation`, one set per clip.

    Raises:
        ValueError: an augmentation that supports clips by itself.
    """

    augmentation: Augmentation

    kinds: ClassVar[tuple[str, ...]] = (CLIPS.name,)

    def __post_init__(self):
        if takes(self.augmentation, CLIPS):
            raise InputError(f"{type(self.augmentation).__name__} changes clips by itself; use it without EveryFrame.")

    def draw(self, key: tf.Tensor, images_shape) -> dict:
        """Sample the random numbers of images as large as a frame."""
        return self.augmentation.draw(key, (images_shape[0], *images_shape[2:]))

    def shape_after(self, images_shape):
        """Return the shape of clips of the changed frames."""
        count, frames, *frame = images_shape
        return (count, frames, *self.augmentation.shape_after((count, *frame))[1:])

    def apply(self, images: tf.Tensor, draw: dict) -> tf.Tensor:
        """Apply the augmentation to the frames [b t, h, w, c], with repeated random numbers."""
        frames = images.shape[1]
        repeated = tf.nest.map_structure(lambda numbers: tf.repeat(numbers, frames, axis=0), draw)
        changed = self.augmentation.apply(tf.reshape(images, [-1, *images.shape[2:]]), repeated)
        return tf.reshape(changed, [-1, frames, *changed.shape[1:]])


def in_space(change: Callable, images: tf.Tensor) -> tf.Tensor:
    """Apply a change that treats each channel alone to images [b, h, w, c], or to clips with frames as channels.

    Args:
        change: images [b, h, w, n] -> images [b, h', w', n], such as a crop.
        images: float [b, h, w, c] or clips, float [b, t, h, w, c].
    """
    if kind_of(images.shape[1:]) is not CLIPS:
        return change(images)
    _, frames, height, width, channels = images.shape
    stacked = tf.reshape(tf.transpose(images, [0, 2, 3, 1, 4]), [-1, height, width, frames * channels])
    changed = change(stacked)
    split = tf.reshape(changed, [-1, *changed.shape[1:3], frames, channels])
    return tf.transpose(split, [0, 3, 1, 2, 4])


def in_color(change: Callable, images: tf.Tensor) -> tf.Tensor:
    """Apply a change of colors to images, or to clips as tall pictures: means are those of the whole clip.

    Args:
        change: images [b, h, w, c] -> images of that shape.
        images: float [b, h, w, c] or clips, float [b, t, h, w, c].
    """
    if kind_of(images.shape[1:]) is not CLIPS:
        return change(images)
    _, frames, height, width, channels = images.shape
    tall = change(tf.reshape(images, [-1, frames * height, width, channels]))
    return tf.reshape(tall, [-1, frames, height, width, channels])


def frames_at(clips: tf.Tensor, starts: tf.Tensor, frames: int, stride: int = 1) -> tf.Tensor:
    """Select frames start, start + stride, ...; after the last frame the clip begins again.

    Args:
        clips: float [b, t, h, w, c].
        starts: int32 [b], position of the first frame, >= 0.
        frames: number of frames to select, >= 1.
        stride: distance between them in frames, >= 1.

    Returns:
        Float [b, frames, h, w, c].
    """
    places = starts[:, None] + stride * tf.range(frames)
    return tf.gather(clips, tf.math.floormod(places, clips.shape[1]), axis=1, batch_dims=1)


def sparse_and_dense(clips: tf.Tensor, shares: tf.Tensor, frames: int, parts: int) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Select one clip of every `parts`-th frame, and the clips of consecutive frames that tile its span.

    Args:
        clips: float [b, t, h, w, c], t >= frames * parts.
        shares: float32 [b] in [0, 1), the start of the span as a share of the possible ones.
        frames: frames of each selected clip, >= 1.
        parts: number of clips of consecutive frames, >= 1.

    Returns:
        Float [b, frames, h, w, c] of the whole span, and as much of each of its parts.
    """
    starts = _below(shares, clips.shape[1] - frames * parts + 1)
    sparse = frames_at(clips, starts, frames, parts)
    return sparse, [frames_at(clips, starts + frames * part, frames) for part in range(parts)]


def two_starts(uniform: tf.Tensor, length: int, frames: int, stride: int, gap: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute the starts of two clips within a longer one from uniform numbers on [0, 1).

    A clip has M = length - (frames - 1) stride possible starts. The distance d of the two starts has the distribution
    P(d <= k) = F(k + 1), F(x) = 2 x / M - x^2 / M^2: small distances are more frequent. The earlier start is uniform
    over 0..M - d - 1, and the order of the two is random. If M < 1, both starts are uniform over all frames.

    Args:
        uniform: float32 [b, 3], for d, the earlier start and the order.
        length: frames of the longer clip.
        frames: frames of each clip.
        stride: distance between them in frames.
        gap: "decreasing" as above, or "uniform": d is uniform over 0..M - 1.

    Returns:
        Two int32 [b].

    Raises:
        ValueError: an unknown `gap`.

    Source: Qian et al. 2021 (CVRL), https://arxiv.org/abs/2008.03800, section 3.2, discrete as in its code.
    """
    require_choice(gap, "gap", GAPS)
    distance, first, order = tf.unstack(uniform, axis=-1)
    starts = length - (frames - 1) * stride
    if starts < 1:
        return _below(distance, length), _below(first, length)
    if gap == "decreasing":
        distance = 1.0 - tf.sqrt(1.0 - distance)  # the inverse of F, divided by M
    apart = _below(distance, starts)
    early = _below(first, starts - apart)
    swapped = order < 0.5
    return tf.where(swapped, early + apart, early), tf.where(swapped, early, early + apart)


def _below(share: tf.Tensor, limit) -> tf.Tensor:
    """Return floor(share * limit), below the limit although products round."""
    return tf.minimum(tf.cast(share * tf.cast(limit, tf.float32), tf.int32), limit - 1)
