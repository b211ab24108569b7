"""Corruptions of clips in time: lost, frozen and shuffled frames, and the compression of a video.

They are tfrobust's own. No published benchmark has them, and their severities are not comparable with any other. With
the corruptions of images frame by frame they are the "tfrobust clip corruptions" (`corruptions.corrupt_clips`).
"""

import fractions

import numpy as np
import tensorflow as tf

from tfrobust.corruptions import draws
from tfrobust.errors import InputError
from tfrobust.security import video_files

# Constants of severity 1 to 5: shares of the frames of a clip, windows in frames, and the scale of MPEG-4's quantizer,
# from 1 to 31.
SEVERITIES = {
    "frame_drop": (0.1, 0.2, 0.3, 0.4, 0.5),
    "frame_freeze": (0.2, 0.3, 0.4, 0.5, 0.6),
    "frame_shuffle": (2, 3, 4, 6, 8),
    "video_compression": (4, 8, 13, 20, 31),
}
NAMES = tuple(SEVERITIES)
SET = "tfrobust clip corruptions, no published benchmark"


def change(clips: tf.Tensor, name: str, severity: int, keys: tf.Tensor) -> tf.Tensor:
    """Apply one corruption in time.

    - frame_drop: a share of the frames after the first is lost; the frame before is shown instead.
    - frame_freeze: the clip stands still at a random frame for a share of its frames.
    - frame_shuffle: the frames of each window are in random order.
    - video_compression: the clip is encoded as MPEG-4 (part 2) and decoded, by PyAV (extra `video`).

    Args:
        clips: float32 [b, t, h, w, c] in [0, 1]; for compression c is 1 or 3.
        name: one of NAMES.
        severity: 1 to 5.
        keys: int32 [b, 2], one per clip.

    Returns:
        float32 [b, t, h, w, c], a function of each clip, its key and the other arguments alone.

    Raises:
        ValueError: see `compressed`.
    """
    constant = SEVERITIES[name][severity - 1]
    if name == "video_compression":
        return compressed(clips, int(constant))
    keys = draws.fold(keys, name, severity, clips.shape[0])
    uniform = draws.uniform(keys, [clips.shape[1]], "frames")
    if name == "frame_shuffle":
        frames = frames_after_shuffles(uniform, int(constant))
    else:
        frames = {"frame_drop": frames_after_drops, "frame_freeze": frames_after_freezes}[name](uniform, constant)
    return tf.gather(clips, frames, batch_dims=1)


def frames_after_drops(uniform: tf.Tensor, share: float) -> tf.Tensor:
    """Choose the shown frames when a share of the frames after the first, rounded and at least one, is lost.

    Args:
        uniform: float32 [b, t] on [0, 1); the frames with the smallest numbers are lost.
        share: in [0, 1].

    Returns:
        int32 [b, t], the frame shown at each time.
    """
    count = uniform.shape[1]
    lost = min(_share(share, count - 1), count - 1)
    order = tf.argsort(tf.argsort(uniform[:, 1:], axis=1, stable=True), axis=1)  # the rank of each frame
    shown = tf.pad(tf.where(order < lost, 0, tf.range(1, count)), [[0, 0], [1, 0]])
    return tf.stack([tf.reduce_max(shown[:, : time + 1], axis=1) for time in range(count)], axis=1)


def frames_after_freezes(uniform: tf.Tensor, share: float) -> tf.Tensor:
    """Choose the shown frames when a clip stands still for a share of its frames, rounded and at least one.

    Args:
        uniform: float32 [b, t] on [0, 1); the first number of a row chooses the frame that stays.
        share: in [0, 1].

    Returns:
        int32 [b, t], the frame shown at each time.
    """
    count = uniform.shape[1]
    still = min(_share(share, count), count - 1)
    first = tf.cast(uniform[:, :1] * (count - still), tf.int32)
    times = tf.range(count)[None]
    return tf.where((times > first) & (times <= first + still), first, times)


def frames_after_shuffles(uniform: tf.Tensor, window: int) -> tf.Tensor:
    """Choose the shown frames when each window of frames is in random order.

    Args:
        uniform: float32 [b, t] on [0, 1), by which frames are sorted within their window.
        window: frames of a window; the last one may be shorter.

    Returns:
        int32 [b, t], the frame shown at each time.
    """
    windows = tf.cast(tf.range(uniform.shape[1]) // window, tf.float64)
    return tf.argsort(windows[None] + tf.cast(uniform, tf.float64), axis=1, stable=True)


def compressed(clips: tf.Tensor, scale: int) -> tf.Tensor:
    """Encode clips as MPEG-4 with a fixed scale of the quantizer, and decode them.

    Args:
        clips: float32 [b, t, h, w, c] in [0, 1], c = 1 or 3.
        scale: 1 (best) to 31.

    Returns:
        float32 [b, t, h, w, c] in [0, 1]. Gray clips are coded in color, and averaged over the channels.

    Raises:
        ValueError: another number of channels, or PyAV is not installed.
    """
    channels = clips.shape[-1]
    if channels not in (1, 3):
        raise InputError(f"video_compression needs clips with 1 or 3 channels; these have {channels}.")
    video_files.library()

    def recode_batch(batch: np.ndarray) -> np.ndarray:
        frames = np.rint(255 * np.repeat(batch, 3 // channels, axis=-1)).astype(np.uint8)
        return np.stack([_recode(clip, scale) for clip in frames])

    decoded = tf.numpy_function(recode_batch, [clips], tf.uint8, stateful=False)
    decoded = tf.cast(decoded, tf.float32) * np.float32(1 / 255)
    if channels == 1:
        decoded = tf.reduce_mean(decoded, axis=-1, keepdims=True)
    return tf.ensure_shape(decoded, clips.shape)


def _recode(frames: np.ndarray, scale: int) -> np.ndarray:
    """Encode and decode one clip, uint8 [t, h, w, 3]; sides are padded to even numbers in between."""
    av = video_files.library()
    height, width = frames.shape[1:3]
    padded = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    encoder, decoder = av.CodecContext.create("mpeg4", "w"), av.CodecContext.create("mpeg4", "r")
    encoder.height, encoder.width = padded.shape[1:3]
    encoder.pix_fmt, encoder.time_base = "yuv420p", fractions.Fraction(1, 25)
    encoder.framerate, encoder.thread_count, decoder.thread_count = fractions.Fraction(25), 1, 1
    encoder.options = {"qmin": str(scale), "qmax": str(scale), "flags": "+bitexact"}
    packets = []
    for number, frame in enumerate(padded):
        picture = av.VideoFrame.from_ndarray(frame, format="rgb24")
        picture.pts = number
        packets += encoder.encode(picture)
    packets += encoder.encode(None)
    decoded = [frame for packet in [*packets, None] for frame in decoder.decode(packet)]
    return np.stack([frame.to_ndarray(format="rgb24")[:height, :width] for frame in decoded])


def _share(share: float, count: int) -> int:
    return max(1, round(share * count))
