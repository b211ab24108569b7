"""What the corruptions draw, one key per example: hashes for the whole batch at once, no loop over examples."""

import functools
import math

import tensorflow as tf

from tfrobust.ops import hashing


def fold(keys: tf.Tensor, purpose: str, number: int) -> tf.Tensor:
    """Fresh keys int32 [b, 2] from keys [b, 2], a word and a number >= 0."""
    steps = tf.fill([tf.shape(keys)[0]], number)
    return tf.bitcast(hashing.random_bits(keys, steps, 2, purpose), tf.int32)


def bits(keys: tf.Tensor, shape, purpose: str) -> tf.Tensor:
    """Random words, uint32 [b, *shape]; `shape` is static."""
    steps = tf.zeros([tf.shape(keys)[0]], tf.int32)
    words = hashing.random_bits(keys, steps, math.prod(shape), purpose)
    return tf.reshape(words, [-1, *shape])


def uniform(keys: tf.Tensor, shape, purpose: str, low: float = 0.0, high: float = 1.0) -> tf.Tensor:
    """float32 [b, *shape], uniform on [low, high) in steps of 2^-24 of the span."""
    return low + (high - low) * _fraction(bits(keys, shape, purpose))


def normal(keys: tf.Tensor, shape, purpose: str) -> tf.Tensor:
    """float32 [b, *shape], standard normal (Box-Muller, so never beyond 5.77)."""
    count = math.prod(shape)
    half = -(-count // 2)
    words = _fraction(bits(keys, [2, half], purpose))
    # 1 - u lies in (0, 1]: its logarithm is finite.
    radius, angle = tf.sqrt(-2.0 * tf.math.log(1.0 - words[:, 0])), 2.0 * math.pi * words[:, 1]
    values = tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=1)
    return tf.reshape(values[:, :count], [-1, *shape])


def below(keys: tf.Tensor, shape, purpose: str, limit: int) -> tf.Tensor:
    """int32 [b, *shape], uniform on 0 .. limit - 1, limit <= 65536."""
    return hashing.below(bits(keys, shape, purpose), limit)


# A graph of its own: one call per image from Python would take longer than the draw.
@functools.partial(tf.function, autograph=False)
def poisson(keys: tf.Tensor, rates: tf.Tensor) -> tf.Tensor:
    """float32 counts of the shape [b, ...] of their rates >= 0, each example from its own key."""
    rest = rates.shape[1:]
    one = lambda pair: tf.random.stateless_poisson(rest, pair[0], pair[1], tf.float32)  # noqa: E731
    return tf.map_fn(one, (keys, rates), fn_output_signature=tf.TensorSpec(rest, tf.float32))


def _fraction(words: tf.Tensor) -> tf.Tensor:
    high = tf.bitcast(tf.bitwise.right_shift(words, tf.constant(8, tf.uint32)), tf.int32)
    return tf.cast(high, tf.float32) * 2.0**-24
