"""Frames of clips: one tensor per frame, masks over frames, and selections by them."""

import tensorflow as tf

from tfrobust.errors import InputError


def frame_count(clips: tf.Tensor) -> int:
    """Return the number of frames of each example.

    Args:
        clips: [b, t, h, w, c]; all dimensions but b are static.

    Raises:
        ValueError: other examples, such as images.
    """
    if clips.shape.rank != 5:
        raise InputError(f"A budget for frames needs clips [b, t, h, w, c]; these examples have shape {clips.shape}.")
    return clips.shape[1]


def split(clips: tf.Tensor) -> tf.Tensor:
    """Return all frames, example by example: [b, t, h, w, c] -> [b t, h, w, c]."""
    frame_count(clips)
    return tf.reshape(clips, [-1, *clips.shape[-3:]])


def per_frame(values: tf.Tensor, clips: tf.Tensor) -> tf.Tensor:
    """Repeat a value of each example for each of its frames, in the order of `split`: [b, ...] -> [b t, ...]."""
    return tf.repeat(values, frame_count(clips), axis=0)


def by_frame(values: tf.Tensor, clips: tf.Tensor) -> tf.Tensor:
    """Return the values [b t] of all frames as [b, t]."""
    return tf.reshape(values, [-1, frame_count(clips)])


def changed(clips: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """Return the frames in which two batches differ anywhere, bool [b, t]."""
    return by_frame(tf.reduce_any(split(clips) != split(second), axis=[1, 2, 3]), clips)


def keep(mask: tf.Tensor, clips: tf.Tensor, elsewhere: tf.Tensor) -> tf.Tensor:
    """Return the frames of `clips` where the mask bool [b, t] is True, and those of `elsewhere` elsewhere."""
    return tf.where(mask[..., None, None, None], clips, elsewhere)
