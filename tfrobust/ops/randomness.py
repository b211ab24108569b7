"""Stateless randomness: every draw is a function of a key, and a key of (seed, purpose, step or epoch, example).

A key is int32 [2]. A *stack of keys* int32 [b, 2] has one key per example; `draw` accepts both. With one key it draws
for the global batch and returns each replica's own rows. With a stack each example's draw depends on its own key alone,
not on its batch. Training uses the former (row of the global batch), pipelines and evaluations the latter (example
index). The replica is never part of a key.

On the CPU, a step compiled by XLA draws different numbers from the same keys than one that is not.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfrobust.ops import distribution


def make_key(seed, *path) -> tf.Tensor:
    """Make a key from a seed and a path of words and numbers.

    Args:
        seed: int or int32 / int64 scalar.
        *path: purpose words (str) and integers (Python or tensor scalars), folded in from left to right.

    Returns:
        int32 [2].
    """
    return fold(tf.stack([tf.cast(seed, tf.int32), tf.constant(0, tf.int32)]), *path)


def fold(key: tf.Tensor, *path) -> tf.Tensor:
    """Fold words and numbers into a key, or into each key of a stack.

    Args:
        key: int32 [2] or [b, 2], a tensor or an array.
        *path: str, int or integer scalar tensors.

    Returns:
        int32 of the same shape.
    """
    key = tf.convert_to_tensor(key)
    if not path:
        return key
    numbers = [_number(item) for item in path]
    if key.shape.rank == 1:
        for number in numbers:
            key = tf.random.experimental.stateless_fold_in(key, number)
        return key
    return tf.map_fn(lambda example_key: fold(example_key, *numbers), key)


def example_keys(key: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """Make one key per example.

    Args:
        key: int32 [2].
        index: integer [b], the examples' positions in their split.

    Returns:
        int32 [b, 2].
    """
    # As stateless_fold_in does, for all examples at once: [a draw from the key, the number].
    mixed = tf.random.stateless_uniform([], key, None, None, tf.int32)
    index = tf.cast(index, tf.int32)
    return tf.stack([tf.fill(tf.shape(index), mixed), index], axis=1)


def draw(sampler: Callable, key: tf.Tensor, shape: Sequence) -> tf.Tensor:
    """Draw `shape` = [b, ...] values for this replica's examples.

    Args:
        sampler: (shape, key) -> tensor, such as `uniform` or `normal` below.
        key: int32 [2]: the draw is made for the global batch and this replica's rows are cut out, so that N replicas
            see the same values as one. int32 [b, 2]: one draw per example from its own key.
        shape: [b, ...]; b may be a scalar tensor, the rest must be static.

    Returns:
        The sampler's dtype, [b, ...].
    """
    count, rest = shape[0], list(shape[1:])
    if key.shape.rank == 2:
        draw_row = lambda k: sampler(rest, k)  # noqa: E731 - traced twice otherwise
        dtype = sampler([1], tf.zeros([2], tf.int32)).dtype
        return tf.map_fn(draw_row, key, fn_output_signature=tf.TensorSpec(rest, dtype))
    replicas, replica = distribution.replica()
    if replicas == 1:
        return sampler([count, *rest], key)
    full = sampler([replicas * count, *rest], key)
    rows = tf.slice(full, [replica * count, *[0] * len(rest)], [count, *rest])
    return tf.ensure_shape(rows, [count if isinstance(count, int) else None, *rest])


def uniform(low: float = 0.0, high: float = 1.0) -> Callable:
    """Return a sampler of float32 uniform on [low, high)."""
    return lambda shape, key: tf.random.stateless_uniform(shape, key, low, high)


def normal(deviation: float = 1.0) -> Callable:
    """Return a sampler of float32 normal with mean 0."""
    return lambda shape, key: tf.random.stateless_normal(shape, key, stddev=deviation)


def _number(item):
    if isinstance(item, str):
        return zlib.crc32(item.encode()) & 0x7FFFFFFF
    return item if isinstance(item, int) else tf.cast(item, tf.int32)
