"""Batches as `tf.data`: a training batch is a pure function of (examples, batch size, seed, step)."""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from tfrobust.common.settings import require_least
from tfrobust.data.mixture import MixedExamples
from tfrobust.data.spec import Examples
from tfrobust.errors import InputError
from tfrobust.ops import randomness
from tfrobust.structs import Batch


def steps_per_epoch(examples: Examples, batch_size: int) -> int:
    """Return the number of full batches in one epoch; the remainder is dropped (different examples in each epoch).

    Raises:
        ValueError: batch_size below 1 or above the number of examples, or without a row for generated ones.
    """
    require_least(batch_size, "batch_size", 1)
    mixed = isinstance(examples, MixedExamples)
    count = len(examples.original) if mixed else len(examples)
    if batch_size > count:
        raise InputError(f"batch of {batch_size} is larger than the {count} training examples.")
    if mixed:
        examples.rows_of(batch_size)
    return count // batch_size


def training_batches(
    examples: Examples,
    *,
    batch_size: int,
    seed: int,
    augmentation: Callable | None = None,
    views: Callable | None = None,
    start_step: int = 0,
    steps: int | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
    share: tuple[int, int] = (0, 1),
) -> tf.data.Dataset:
    """Create a stream of shuffled, augmented batches from any step on.

    A resumed stream equals the uninterrupted one. Each epoch is a permutation of the examples keyed by (seed, epoch).
    The augmentation of an example is keyed by (seed, epoch, position), so that it does not depend on the example's
    batch. Generated examples may recur in an epoch and in a batch. In a mixture with them, the augmentation of all
    examples is keyed by (seed, step, row of the global batch).

    Args:
        examples: the training split.
        batch_size: rows of the global batch.
        seed: the run's seed.
        augmentation: (images [b, h, w, c], keys int32 [b, 2]) -> images; None for none.
        views: (augmented images, keys int32 [b, 2]) -> {name: [b, ...]}, such as a method's `host_views`; the views are
            added to the extra values.
        start_step: global step of the first batch, >= 0.
        steps: number of batches; None for an endless stream.
        extra: further values by name, arrays [n, ...] by position in the split.
        share: (i, n): make only the i-th of n equal blocks of rows of each global batch, i from 0 on.

    Returns:
        `tf.data.Dataset` of `Batch` with batch_size / n rows and static shapes.

    Raises:
        ValueError: a batch larger than the data or not divisible by n, a negative number, or extra values of another
            length.
    """
    epoch_steps = steps_per_epoch(examples, batch_size)
    if start_step < 0 or (steps is not None and steps < 0):
        raise InputError(f"start_step {start_step} and steps {steps} must be at least 0.")
    block, count = share
    if batch_size % count or not 0 <= block < count:
        raise InputError(f"share {share} of a batch of {batch_size}: it must be one of n equal blocks, from 0 on.")
    rows = batch_size // count
    columns = _columns(examples, extra)

    def batch(step):
        epoch, offset = step // epoch_steps, step % epoch_steps
        block_rows = tf.range(block * rows, (block + 1) * rows, dtype=tf.int64)
        if isinstance(examples, MixedExamples):
            index = _mixed(examples, block_rows, batch_size, seed, step)
            period, number = step, block_rows
        else:
            positions = offset * batch_size + block_rows
            index = shuffled(positions, len(examples), randomness.make_key(seed, "shuffle", epoch))
            period, number = epoch, index

        def keys(purpose):
            return randomness.example_keys(randomness.make_key(seed, purpose, period), number)

        images = examples.fetch_training(index, keys("crop"))
        if augmentation is not None:
            images = augmentation(images, keys("augmentation"))
        images = tf.ensure_shape(images, [rows, *examples.image_shape])
        values = {name: tf.gather(column, index) for name, column in columns.items()}
        method_views = {} if views is None else views(images, keys("views"))
        return Batch(images, values.pop("labels"), index, {**values, **method_views})

    stop = np.iinfo(np.int64).max if steps is None else start_step + steps
    function = tf.autograph.experimental.do_not_convert(batch)
    dataset = tf.data.Dataset.range(start_step, stop)
    dataset = dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(2)
    # All cores make batches from the start. With one core, the end of training would wait for the thread that tunes
    # their number: it sleeps 10 ms, then twice as long each time, up to a minute.
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def _mixed(examples: MixedExamples, rows: tf.Tensor, batch_size: int, seed: int, step: tf.Tensor) -> tf.Tensor:
    """Return the positions of some rows of a global batch, int64; generated rows are spread evenly among the others."""
    count, of_batch = len(examples.original), examples.rows_of(batch_size)
    before = rows * of_batch // batch_size  # generated rows above each row
    is_generated = (rows + 1) * of_batch // batch_size > before
    # Every pass is another permutation, of which a remainder is dropped.
    originals = batch_size - of_batch
    steps = count // originals
    places = (step % steps) * originals + rows - before
    original = shuffled(
        tf.where(is_generated, tf.zeros_like(rows), places), count, randomness.make_key(seed, "shuffle", step // steps)
    )
    key = randomness.make_key(seed, "generated", step)
    drawn = tf.random.stateless_uniform([batch_size], key, 0, len(examples.generated), tf.int64)
    return tf.where(is_generated, count + tf.gather(drawn, rows), original)


def of_all(function: Callable, count: int, batch_size: int) -> np.ndarray:
    """Apply a function of positions to all positions, in batches.

    Args:
        function: int64 [b] -> [b, ...].
        count: number of positions, 0 .. count - 1.
        batch_size: most positions per call.

    Returns:
        [count, ...].
    """
    starts = range(0, count, batch_size)
    parts = [function(tf.range(start, min(start + batch_size, count), dtype=tf.int64)) for start in starts]
    return np.concatenate([part.numpy() for part in parts])


def shuffled(positions: tf.Tensor, count: int, key: tf.Tensor) -> tf.Tensor:
    """Apply a pseudorandom permutation of 0..count-1 to some positions, in constant time for each.

    `tf.random.experimental.index_shuffle` on keys that differ in one word only (seed, epoch) has only 256 permutations,
    so that the order repeats after 256 epochs. Here all three words of the op's seed are hashed from the key, and its
    cipher uses 8 rounds: with 4 rounds, adjacent positions stay together measurably often.

    Args:
        positions: int64 [b] in 0..count-1.
        count: size of the permutation.
        key: int32 [2].

    Returns:
        int64 [b].
    """
    words = tf.random.stateless_uniform([3], key, minval=None, maxval=None, dtype=tf.int32)
    last = tf.constant(count - 1, tf.int64)
    return tf.raw_ops.RandomIndexShuffle(index=positions, seed=words, max_index=last, rounds=8)


def _columns(examples: Examples, extra: Mapping[str, np.ndarray] | None) -> dict[str, tf.Tensor]:
    columns = {name: np.asarray(values) for name, values in (extra or {}).items()}
    for name, values in columns.items():
        if name == "labels" or len(values) != len(examples):
            raise InputError(f"extra {name!r} has {len(values)} rows for {len(examples)} examples.")
    with tf.init_scope(), tf.device("CPU"):
        return {name: tf.constant(values) for name, values in {**columns, "labels": examples.labels}.items()}
