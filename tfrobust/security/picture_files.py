"""Untrusted PNG and JPEG files: the size of a picture is read from its header before it is decoded."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

# Largest number of pixels; a few hundred kilobytes can claim to be a picture of any size.
LARGEST = 2**26
_HEADER = 32
_PNG_COLOR, _PNG_ALPHA = 2, 4  # bits of a PNG's color type: 0 for gray, and 0 without an alpha channel
_BIG_ENDIAN = np.array([1 << 24, 1 << 16, 1 << 8, 1], np.int64)
# Segments before a JPEG's pixels among which EXIF data are searched; cameras write them in the first or second.
_MOST_SEGMENTS = 64
_EXIF, _SCAN, _ORIENTATION, _SHORT = 0xE1, 0xDA, 0x0112, 3
_EXIF_NAME = np.array(list(b"Exif\0\0"), np.int64)


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
    """Read the size of a PNG or JPEG image from its header, int64 [3]: height, width, channels.

    There is 1 channel for gray or 3 for color, and one more for the transparency of a PNG. That of a palette is not
    seen.

    Raises:
        tf.errors.InvalidArgumentError: neither PNG nor JPEG.
    """
    head = tf.io.decode_raw(tf.strings.substr(encoded + b"\0" * _HEADER, 0, _HEADER), tf.uint8)
    is_png = tf.reduce_all(head[:8] == tf.constant(list(b"\x89PNG\r\n\x1a\n"), tf.uint8))
    is_jpeg = tf.reduce_all(head[:3] == tf.constant(list(b"\xff\xd8\xff"), tf.uint8))
    check = tf.debugging.Assert(is_png | is_jpeg, ["this is no PNG or JPEG image"])
    with tf.control_dependencies([check]):
        return tf.cond(is_png, lambda: _png_shape(head), lambda: _jpeg_shape(encoded))


def _jpeg_shape(encoded: tf.Tensor) -> tf.Tensor:
    height, width, channels = tf.unstack(tf.cast(tf.image.extract_jpeg_shape(encoded), tf.int64))
    return tf.stack([height, width, tf.minimum(channels, 3)])  # CMYK has four channels, and is decoded to color


def _png_shape(head: tf.Tensor) -> tf.Tensor:
    width, height = tf.unstack(tf.reduce_sum(tf.reshape(tf.cast(head[16:24], tf.int64), (2, 4)) * _BIG_ENDIAN, axis=1))
    is_color, is_alpha = (tf.bitwise.bitwise_and(head[25], bit) != 0 for bit in (_PNG_COLOR, _PNG_ALPHA))
    channels = tf.where(is_color, tf.constant(3, tf.int64), 1) + tf.cast(is_alpha, tf.int64)
    return tf.stack([height, width, channels])


def _refuse_huge(encoded: tf.Tensor) -> tf.Operation:
    sides = shape(encoded)[:2]
    # Each side is bounded first: the product of two sides that large would overflow.
    fits = tf.reduce_all(sides <= LARGEST) & (tf.reduce_prod(tf.minimum(sides, LARGEST)) <= LARGEST)
    return tf.debugging.Assert(fits, ["this image has more pixels than", LARGEST])


def orientation(encoded: tf.Tensor) -> tf.Tensor:
    """Read how a JPEG image must be turned to be upright, int64 scalar: the EXIF tag 274, 1 to 8.

    It is 1, upright, for PNG images, and for JPEG images without the tag or with an invalid one. Works in a graph.

    Args:
        encoded: string scalar, the file's bytes.

    Source:
        CIPA DC-008 (EXIF 2.32), section 4.6.4; TIFF 6.0, section 2.
    """
    block = _exif(tf.io.decode_raw(encoded + b"\0" * _HEADER, tf.uint8))
    little = tf.equal(block[0], ord("I"))
    pair = tf.where(little, tf.constant([1, 256], tf.int64), [256, 1])
    four = tf.where(little, tf.constant(_BIG_ENDIAN[::-1].copy()), _BIG_ENDIAN)
    size = tf.size(block, tf.int64)
    start = tf.minimum(tf.reduce_sum(block[4:8] * four), size - 2)
    count = tf.reduce_sum(block[start : start + 2] * pair)
    start += 2
    count = tf.minimum(count, (size - start) // 12)
    entries = tf.reshape(block[start : start + 12 * count], [-1, 6, 2])
    tags, kinds, values = (tf.reduce_sum(entries[:, column] * pair, axis=1) for column in (0, 1, 4))
    is_one = tf.equal(tf.reduce_sum(tf.reshape(entries[:, 2:4], [-1, 4]) * four, axis=1), 1)
    is_value = tf.equal(tags, _ORIENTATION) & tf.equal(kinds, _SHORT) & is_one & (values >= 1) & (values <= 8)
    return tf.concat([tf.boolean_mask(values, is_value), [1]], axis=0)[0]


def turned(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Turn an image [h, w, c] as stored to the upright image [h, w, c] or [w, h, c]; `orientation` is a scalar."""

    def upright():
        transposed = tf.cond(orientation >= 5, lambda: tf.transpose(image, [1, 0, 2]), lambda: image)
        is_flipped = [tf.reduce_any(tf.equal(orientation, codes)) for codes in ([3, 4, 7, 8], [2, 3, 6, 7])]
        flipped = tf.cond(is_flipped[0], lambda: tf.reverse(transposed, [0]), lambda: transposed)
        return tf.cond(is_flipped[1], lambda: tf.reverse(flipped, [1]), lambda: flipped)

    result = tf.cond(tf.equal(orientation, 1), lambda: image, upright)
    return tf.ensure_shape(result, [None, None, image.shape[-1]])


def _exif(data: tf.Tensor) -> tf.Tensor:
    """Return the TIFF block of a JPEG's EXIF data, int64 [n], n >= 8; zeros if there is none.

    Args:
        data: uint8 [m], a file's bytes, followed by `_HEADER` zeros.
    """
    size = tf.size(data, tf.int64) - _HEADER

    def at(start, count):
        return tf.cast(data[start : start + count], tf.int64)

    def length(start):
        return tf.tensordot(at(start + 2, 2), tf.constant([256, 1], tf.int64), 1)

    def is_exif(start):
        return tf.equal(at(start, 2)[1], _EXIF) & tf.reduce_all(tf.equal(at(start + 4, 6), _EXIF_NAME))

    def is_before(start):
        head = at(start, 2)
        is_segment = tf.equal(head[0], 0xFF) & (head[1] != _SCAN) & (length(start) >= 2)
        return is_segment & ~is_exif(start) & (start + 2 + length(start) <= size)

    def search():
        (start,) = tf.while_loop(
            is_before,
            lambda start: (start + 2 + length(start),),
            (tf.constant(2, tf.int64),),
            maximum_iterations=_MOST_SEGMENTS,
        )
        inside = tf.minimum(start + 2 + length(start), size) - start - 10
        is_found = tf.equal(at(start, 1)[0], 0xFF) & is_exif(start) & (inside >= 8)
        return tf.cond(is_found, lambda: at(start + 10, inside), lambda: tf.zeros([8], tf.int64))

    is_jpeg = tf.reduce_all(tf.equal(data[:3], tf.constant([0xFF, 0xD8, 0xFF], tf.uint8)))
    return tf.cond(is_jpeg, search, lambda: tf.zeros([8], tf.int64))
