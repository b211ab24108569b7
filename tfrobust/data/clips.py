"""Clips of videos: which frames they take, and videos as examples that are read when fetched."""

import dataclasses
import functools
import hashlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfrobust.augment.resized_crop import RandomResizedCrop
from tfrobust.common.arrays import check_labels
from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_choice, require_least, require_tuple
from tfrobust.data.checks import check_pixels_of_example, check_utf8
from tfrobust.data.spec import PIXEL_SCALE, Examples, fitted
from tfrobust.errors import InputError
from tfrobust.ops import hashing
from tfrobust.security import video_files

SHORT = ("mirror", "repeat")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClipSampling(Configured):
    """The frames of a video that a clip takes: `frames` frames, every `stride`-th, from a start.

    A clip spans (frames - 1) stride + 1 frames of its video. Training clips start anywhere with equal probability.
    The starts of test clips are evenly spaced, the first at the start of the video and the last at its end; a single
    clip is in the middle.

    Args:
        frames: frames of a clip.
        stride: distance of two frames of a clip, in frames of the video.
        clips: clips of each video for validation and test.
        short: videos shorter than a clip continue with their frames in reverse order ("mirror", 0 1 2 1 0 1 ...) or
            from the start ("repeat", 0 1 2 0 1 2 ...).

    Raises:
        ValueError: a number below 1, or an unknown `short`.
    """

    frames: int = 16
    stride: int = 2
    clips: int = 1
    short: str = "mirror"

    def __post_init__(self):
        for name in ("frames", "stride", "clips"):
            require_least(getattr(self, name), f"ClipSampling.{name}", 1)
        require_choice(self.short, "ClipSampling.short", SHORT)

    def starts(self, lengths) -> np.ndarray:
        """Return the starts of the test clips, int64 [n, clips], of videos with `lengths` frames, integer [n]."""
        room = np.maximum(np.asarray(lengths, np.int64) - self._span, 0)[:, None]
        if self.clips == 1:
            return room // 2
        return room * np.arange(self.clips) // (self.clips - 1)

    def random_starts(self, lengths: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Draw one start for each video, int64 [b].

        Args:
            lengths: int64 [b], frames of the videos.
            keys: int32 [b, 2], one per video.
        """
        uniform = hashing.uniform(keys, [1], "start of a clip")[:, 0]
        choices = tf.maximum(lengths - self._span, 0) + 1
        starts = tf.cast(uniform * tf.cast(choices, tf.float32), tf.int64)
        return tf.minimum(starts, choices - 1)  # the product may be rounded up

    def positions(self, lengths: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
        """Return the frames of the video that each clip takes, int64 [b, frames].

        Args:
            lengths: int64 [b], frames of the videos, >= 1.
            starts: int64 [b].
        """
        frames, lengths = starts[:, None] + self.stride * tf.range(self.frames, dtype=tf.int64), lengths[:, None]
        if self.short == "repeat":
            return frames % lengths
        period = tf.maximum(2 * lengths - 2, 1)
        frames %= period
        return tf.minimum(frames, period - frames)

    @property
    def _span(self) -> int:
        return (self.frames - 1) * self.stride + 1


class VideoExamples(Examples):
    """Clips of video files, decoded when fetched: only paths, lengths and labels stay in memory.

    Each clip is an example. `groups` has the number of its video.

    Args:
        paths: n file names.
        lengths: integer [n], frames of each video, >= 1.
        labels: integer [n] class ids.
        size: (height, width) of the clips.
        sampling: the frames of a clip. For one example per video, its `clips` is 1.
        fit: see `decode_image`; the same for all frames of a clip.
        training_crop: random crop of the original frames, for `fetch_training`, the same for all frames of a clip; None
            for no crop.

    Raises:
        ValueError: a file name that is not UTF-8, a length below 1, or labels that do not fit.
    """

    def __init__(
        self,
        paths: Sequence[str],
        lengths,
        labels,
        size: tuple[int, int],
        sampling: ClipSampling,
        *,
        fit: int | str = "crop",
        training_crop: RandomResizedCrop | None = None,
    ):
        self.videos = tuple(str(path) for path in paths)
        for path in self.videos:
            check_utf8(path, "the file name")
        self.lengths = np.asarray(lengths, np.int64)
        if len(self.lengths) != len(self.videos) or (len(self.lengths) and self.lengths.min() < 1):
            raise InputError(f"There are {len(self.lengths)} lengths >= 1 needed for {len(self.videos)} videos.")
        self.sampling, self.fit, self.training_crop = sampling, fit, training_crop
        self.image_shape = (sampling.frames, *(int(side) for side in require_tuple(size, "size", 2)), 3)
        check_pixels_of_example(self.image_shape[:3], fit, "a clip")
        self.groups = np.repeat(np.arange(len(self.videos), dtype=np.int32), sampling.clips)
        self.labels = np.repeat(check_labels(labels, len(self.videos)), sampling.clips)
        self.starts = sampling.starts(self.lengths).ravel()

    @functools.cached_property
    def _columns(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        paths = [self.videos[group] for group in self.groups]
        with tf.init_scope(), tf.device("CPU"):
            return (
                tf.constant(paths, tf.string, [len(paths)]),
                tf.constant(self.lengths[self.groups]),
                tf.constant(self.starts),
            )

    def fetch(self, index: tf.Tensor) -> tf.Tensor:
        """Decode the clips at some positions, float32 [b, t, h, w, 3]."""
        paths, lengths, starts = (tf.gather(column, index) for column in self._columns)
        return self._mapped(self._fitted, (paths, self.sampling.positions(lengths, starts)))

    def fetch_training(self, index: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Decode clips with random starts, and with a random crop if there is one, float32 [b, t, h, w, 3]."""
        paths, lengths, _ = (tf.gather(column, index) for column in self._columns)
        starts = self.sampling.random_starts(lengths, keys)
        positions = self.sampling.positions(lengths, starts)
        if self.training_crop is None:
            return self._mapped(self._fitted, (paths, positions))
        return self._mapped(self._cropped, (paths, positions, keys))

    def _mapped(self, function, elements) -> tf.Tensor:
        return tf.map_fn(function, elements, fn_output_signature=tf.TensorSpec(self.image_shape, tf.float32))

    def _fitted(self, clip: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        return self._as_clip(fitted(self._as_picture(*clip), self.image_shape[1:3], self.fit))

    def _cropped(self, clip: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> tf.Tensor:
        *frames, key = clip
        picture = self._as_picture(*frames)
        draw = self.training_crop.draw(key[None], (1, *tf.unstack(tf.shape(picture))))
        return self._as_clip(self.training_crop.cut(picture, draw["box"][0], self.image_shape[1:3]))

    def _as_picture(self, path: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
        """Decode a clip as one picture with the channels of all frames, float32 [H, W, 3 t]: one crop fits them all."""
        frames = tf.numpy_function(_decoded, [path, positions], tf.uint8, stateful=False)
        frames = tf.ensure_shape(frames, [self.sampling.frames, None, None, 3])
        height, width = tf.unstack(tf.shape(frames)[1:3])
        picture = tf.reshape(tf.transpose(frames, [1, 2, 0, 3]), [height, width, 3 * self.sampling.frames])
        return tf.cast(picture, tf.float32) * PIXEL_SCALE

    def _as_clip(self, picture: tf.Tensor) -> tf.Tensor:
        frames, height, width, _ = self.image_shape
        return tf.transpose(tf.reshape(picture, [height, width, frames, 3]), [2, 0, 1, 3])

    def take(self, positions: Sequence[int]) -> "VideoExamples":
        """Return whole videos as a separate split: those of the examples at some positions, in that order.

        Raises:
            ValueError: positions that have some clips of a video and not all of them, in order.
        """
        positions = np.asarray(positions, np.int64)
        clips = self.sampling.clips
        videos = self.groups[positions[::clips]]
        if not np.array_equal((videos[:, None] * clips + np.arange(clips)).ravel(), positions):
            raise InputError(f"a split of videos has all {clips} clips of a video or none; split by `groups`.")
        return self.of(videos, self.sampling)

    def of(self, videos: Sequence[int], sampling: ClipSampling) -> "VideoExamples":
        """Return some videos, by their numbers, with another sampling."""
        videos = np.asarray(videos, np.int64)
        paths, labels = [self.videos[video] for video in videos], self.labels[:: self.sampling.clips][videos]
        reading = {"fit": self.fit, "training_crop": self.training_crop}
        return VideoExamples(paths, self.lengths[videos], labels, self.image_shape[1:3], sampling, **reading)

    def _hash_images(self, digest):
        digest.update(f"videos {list(self.image_shape)} of {self.fit} {self.sampling}\n".encode())
        for path, length in zip(self.videos, self.lengths, strict=True):
            with open(path, "rb") as file:
                digest.update(b"%d " % length + hashlib.file_digest(file, "sha256").digest())


@tf.autograph.experimental.do_not_convert
def _decoded(path, positions: np.ndarray) -> np.ndarray:
    return video_files.decoded(np.asarray(path).item().decode(), positions)
