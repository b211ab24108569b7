"""Untrusted PNG and JPEG files: the size of a picture is read from its header before it is decoded."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

# Largest number of pixels; a few hundred kilobytes can claim to be a picture of any size.
LARGEST = 2**26
_HEADER = 32
_PNG_COLOR = 2  # the bit of a PNG's color type that is 0 for gray
_BIG_ENDIAN = np.array([1 << 24, 1 << 16, 1 << 8, 1], np.int64)


def decoded(encoded: tf.Tensor, channels: int) -> tf.Tensor:
    """Decode one PNG or JPEG image, uint8 [h, w, channels]; works in a graph.

    Args:
        encoded: string scalar, the file's bytes.
        channels: 1, 3 or 4 (PNG only); gray and color are converted to each other.

    Raises:
        tf.errors.InvalidArgumentError: neither PNG nor JPEG, damaged, or of more than `LARGEST` pixels.
    """
    with tf.control_dependencies([_refuse_huge(encoded)]):
        pixels = tf.io.decode_image(encoded, channels=channels, expand_animations=False)
    return tf.ensure_shape(pixels, [None, None, channels])


def shape(encoded: tf.Tensor) -> tf.Tensor:
    """Read the size of a PNG or JPEG image from its header, int64 [3]: height, width, 1 for gray or 3 for color.

    Raises:
        tf.errors.InvalidArgumentError: neither PNG nor JPEG.
    """
    head = tf.io.decode_raw(tf.strings.substr(encoded + b"\0" * _HEADER, 0, _HEADER), tf.uint8)
    is_png = tf.reduce_all(head[:8] == tf.constant(list(b"\x89PNG\r\n\x1a\n"), tf.uint8))
    is_jpeg = tf.reduce_all(head[:3] == tf.constant(list(b"\xff\xd8\xff"), tf.uint8))
    known = tf.debugging.Assert(is_png | is_jpeg, ["this is no PNG or JPEG image"])
    with tf.control_dependencies([known]):
        return tf.cond(
            is_png, lambda: _png_shape(head), lambda: tf.cast(tf.image.extract_jpeg_shape(encoded), tf.int64)
        )


def _png_shape(head: tf.Tensor) -> tf.Tensor:
    width, height = tf.unstack(tf.reduce_sum(tf.reshape(tf.cast(head[16:24], tf.int64), (2, 4)) * _BIG_ENDIAN, axis=1))
    is_color = tf.bitwise.bitwise_and(head[25], _PNG_COLOR) != 0
    return tf.stack([height, width, tf.where(is_color, tf.constant(3, tf.int64), 1)])


def _refuse_huge(encoded: tf.Tensor) -> tf.Operation:
    sides = shape(encoded)[:2]
    # Each side is bounded first: the product of two sides that large would overflow.
    fits = tf.reduce_all(sides <= LARGEST) & (tf.reduce_prod(tf.minimum(sides, LARGEST)) <= LARGEST)
    return tf.debugging.Assert(fits, ["this image has more pixels than", LARGEST])
