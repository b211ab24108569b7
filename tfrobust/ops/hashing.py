"""Random bits as a hash of (key, step), for all examples at once.

`randomness.draw` maps over the keys of a batch one by one. That suits a start, but in an attack of thousands of cheap
steps it would cost more than the model. Here a draw is integer arithmetic on the whole batch. It is the same on every
device, compiled or not, and for any number of steps drawn together.
"""

import math
import zlib

import tensorflow as tf


def random_bits(keys: tf.Tensor, steps: tf.Tensor, count: int, purpose: str) -> tf.Tensor:
    """Return `count` words of 32 random bits for each example and step.

    word_j = m(m(step x count + j + key_0) ^ key_1 ^ crc32(purpose)), m the mixer below, modulo 2^32.

    Args:
        keys: int32 [b, 2], one per example, themselves random (from `randomness`).
        steps: int32 [..., b], the step of each example, >= 0.
        count: words per example and step, >= 1.
        purpose: name that makes draws of one key for different purposes independent.

    Returns:
        uint32 [..., b, count].
    """
    first, second = tf.unstack(tf.bitcast(keys, tf.uint32), axis=-1)
    words = steps[..., None] * count + tf.range(count)
    mixed = _mix(tf.bitcast(words, tf.uint32) + first[:, None])
    apart = tf.bitwise.bitwise_xor(second, tf.constant(zlib.crc32(purpose.encode()), tf.uint32))
    return _mix(tf.bitwise.bitwise_xor(mixed, apart[:, None]))


def below(bits: tf.Tensor, limit) -> tf.Tensor:
    """Return integers distributed evenly over 0 .. limit - 1, or 0 where the limit is 0: (top 16 bits x limit) / 2^16.

    Args:
        bits: uint32 [...].
        limit: int32, broadcastable to `bits`, 0 <= limit <= 65536.

    Returns:
        int32 [...].
    """
    high = tf.bitwise.right_shift(bits, tf.constant(16, tf.uint32))
    scaled = high * tf.bitcast(tf.convert_to_tensor(limit, tf.int32), tf.uint32)
    return tf.bitcast(tf.bitwise.right_shift(scaled, tf.constant(16, tf.uint32)), tf.int32)


def uniform(keys: tf.Tensor, shape, purpose: str, low: float = 0.0, high: float = 1.0) -> tf.Tensor:
    """Return float32 [b, *shape] from keys int32 [b, 2], uniform on [low, high) in steps of 2^-24 of the range."""
    return low + (high - low) * _fraction(words(keys, shape, purpose))


def normal(keys: tf.Tensor, shape, purpose: str) -> tf.Tensor:
    """Return float32 [b, *shape] from keys int32 [b, 2], standard normal (Box-Muller, so never beyond 5.77)."""
    count = math.prod(shape)
    half = -(-count // 2)
    pairs = _fraction(words(keys, [2, half], purpose))
    # 1 - u lies in (0, 1]: its logarithm is finite.
    radius, angle = tf.sqrt(-2.0 * tf.math.log(1.0 - pairs[:, 0])), 2.0 * math.pi * pairs[:, 1]
    values = tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=1)
    return tf.reshape(values[:, :count], [-1, *shape])


def words(keys: tf.Tensor, shape, purpose: str) -> tf.Tensor:
    """Return random words, uint32 [b, *shape] from keys int32 [b, 2]; `shape` is static."""
    steps = tf.zeros([tf.shape(keys)[0]], tf.int32)
    return tf.reshape(random_bits(keys, steps, math.prod(shape), purpose), [-1, *shape])


def coins(bits: tf.Tensor) -> tf.Tensor:
    """Return a fair coin flip per word, its top bit, bool [...]."""
    return tf.bitcast(bits, tf.int32) < 0


def _fraction(words: tf.Tensor) -> tf.Tensor:
    high = tf.bitcast(tf.bitwise.right_shift(words, tf.constant(8, tf.uint32)), tf.int32)
    return tf.cast(high, tf.float32) * 2.0**-24


def _mix(word: tf.Tensor) -> tf.Tensor:
    """Apply a bijection on 32 bits in which every input bit flips each output bit half of the time.

    Source:
        Wellons 2018, "Prospecting for hash functions", https://nullprogram.com/blog/2018/07/31/ (lowbias32).
    """
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        word = tf.bitwise.bitwise_xor(word, tf.bitwise.right_shift(word, tf.constant(shift, tf.uint32)))
        word *= tf.constant(factor, tf.uint32)
    return tf.bitwise.bitwise_xor(word, tf.bitwise.right_shift(word, tf.constant(16, tf.uint32)))
