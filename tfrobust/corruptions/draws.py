"""What the corruptions draw, one key per example: hashes for the whole batch at once, no loop over examples."""

import functools

import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import hashing
from tfrobust.ops.hashing import normal, uniform

__all__ = ["below", "fold", "normal", "poisson", "uniform"]


def fold(keys: tf.Tensor, purpose: str, number: int) -> tf.Tensor:
    """Fresh keys int32 [b, 2] from keys [b, 2], a word and a number >= 0; a ValueError for keys of another form."""
    keys = tf.convert_to_tensor(keys)
    if keys.dtype != tf.int32 or not keys.shape.is_compatible_with([None, 2]):
        raise InputError(f"Keys are {keys.dtype.name} of shape {keys.shape}; they are int32 [b, 2], one per image.")
    steps = tf.fill([tf.shape(keys)[0]], number)
    return tf.bitcast(hashing.random_bits(keys, steps, 2, purpose), tf.int32)


def below(keys: tf.Tensor, shape, purpose: str, limit: int) -> tf.Tensor:
    """int32 [b, *shape], uniform on 0 .. limit - 1, limit <= 65536."""
    return hashing.below(hashing.words(keys, shape, purpose), limit)


# A graph of its own: one call per image from Python would take longer than the draw.
@functools.partial(tf.function, autograph=False)
def poisson(keys: tf.Tensor, rates: tf.Tensor) -> tf.Tensor:
    """float32 counts of the shape [b, ...] of their rates >= 0, each example from its own key."""
    rest = rates.shape[1:]
    one = lambda pair: tf.random.stateless_poisson(rest, pair[0], pair[1], tf.float32)  # noqa: E731
    return tf.map_fn(one, (keys, rates), fn_output_signature=tf.TensorSpec(rest, tf.float32))
