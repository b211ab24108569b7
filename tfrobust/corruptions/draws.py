"""Random numbers of corruptions, one key per example: hashes for the whole batch at once, without loops."""

import functools

import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import hashing
from tfrobust.ops.hashing import normal, uniform

__all__ = ["below", "fold", "normal", "poisson", "uniform"]


def fold(keys: tf.Tensor, purpose: str, number: int, count: int | None = None) -> tf.Tensor:
    """Derive new keys from keys, a word and a number.

    Args:
        keys: int32 [b, 2].
        purpose: the word; keys of different purposes are independent.
        number: >= 0.
        count: b, if it is known.

    Returns:
        int32 [b, 2].

    Raises:
        ValueError: keys of another dtype, shape or number.
    """
    keys = tf.convert_to_tensor(keys)
    if keys.dtype != tf.int32 or not keys.shape.is_compatible_with([count, 2]):
        shape = f"[{'b' if count is None else count}, 2]"
        raise InputError(f"Keys are {keys.dtype.name} of shape {keys.shape}; they are int32 {shape}, one per image.")
    steps = tf.fill([tf.shape(keys)[0]], int(number))  # one of NumPy would have 64 bits
    return tf.bitcast(hashing.random_bits(keys, steps, 2, purpose), tf.int32)


def below(keys: tf.Tensor, shape, purpose: str, limit: int) -> tf.Tensor:
    """Sample int32 [b, *shape], uniform on 0 .. limit - 1, limit <= 65536."""
    return hashing.below(hashing.words(keys, shape, purpose), limit)


# A separate graph: one call per image from Python would take longer than the sampling.
@functools.partial(tf.function, autograph=False)
def poisson(keys: tf.Tensor, rates: tf.Tensor) -> tf.Tensor:
    """Sample float32 counts with the given rates [b, ...], >= 0, each example from its own key."""
    rest = rates.shape[1:]
    sample = lambda pair: tf.random.stateless_poisson(rest, pair[0], pair[1], tf.float32)  # noqa: E731
    return tf.map_fn(sample, (keys, rates), fn_output_signature=tf.TensorSpec(rest, tf.float32))
