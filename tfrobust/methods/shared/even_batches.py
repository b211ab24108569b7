"""Batches that several replicas share equally, for Keras's `fit`."""

from __future__ import annotations

import logging
import math

import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import distribution

_log = logging.getLogger("tfrobust")
_BATCH_SIZE = 32  # Keras's default


def of_fit(arguments: dict, replicas: int) -> dict:
    """Return the arguments of `fit` with data whose batches divide among the replicas.

    Random numbers, contrastive pairs, mixing and batch statistics follow from a row's position in the global batch, so
    every replica needs equally many rows. The last rows of a batch that does not divide are left out, which a warning
    says: with arrays at most `replicas - 1` examples of an epoch, others in every epoch if `fit` shuffles. Data of
    other kinds than arrays and `tf.data` pass unchanged, and the step checks their batches.

    Args:
        arguments: argument of `keras.Model.fit` -> value.
        replicas: number of replicas, r >= 2.

    Returns:
        The arguments, with a data set in place of arrays.

    Raises:
        ValueError: a batch size that r does not divide.
    """
    x = arguments.get("x")
    if isinstance(x, tf.data.Dataset):
        return arguments | {"x": _trimmed(x, replicas)}
    data = tuple(arguments.pop(name, None) for name in ("x", "y", "sample_weight"))
    if not _is_arrays(data):
        return arguments | dict(zip(("x", "y", "sample_weight"), data, strict=True))
    data = tf.nest.map_structure(tf.convert_to_tensor, data[: 1 + max(k for k in range(3) if data[k] is not None)])
    count = len(tf.nest.flatten(data)[0])
    share = arguments.pop("validation_split", 0.0)
    if share and arguments.get("validation_data") is None:
        training_count = math.floor(count * (1.0 - share))
        arguments["validation_data"] = tf.nest.map_structure(lambda values: values[training_count:], data)
        data, count = tf.nest.map_structure(lambda values: values[:training_count], data), training_count
    size = arguments.pop("batch_size", None) or _BATCH_SIZE
    _require_divisor(size, replicas)
    return arguments | {"x": _batches(data, count, size, arguments.pop("shuffle", True), replicas)}


def check_step(images: tf.Tensor) -> tf.Tensor:
    """Return the images of a replica; the step fails unless all replicas have equally many.

    Args:
        images: [b, ...]; nothing is checked if b is static, as in this library's own loop.

    Returns:
        The images, which exist only after the check.
    """
    replicas, _ = distribution.replica()
    if replicas == 1 or images.shape[0] is not None:
        return images
    counts = distribution.gather(tf.shape(images)[:1])
    message = (
        f"A batch of the training does not divide among {replicas} replicas: pass arrays or a tf.data.Dataset, whose "
        "last batch is then cut, or batches of a multiple of that number."
    )
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(tf.equal(counts, counts[0])), [message])]):
        return tf.identity(images)


def _is_arrays(data: tuple) -> bool:
    x, y, weight = data
    values = tf.nest.flatten([part for part in data if part is not None])
    regular = all(isinstance(getattr(value, "shape", None), (tuple, tf.TensorShape)) for value in values)
    return x is not None and bool(values) and regular and (y is not None or weight is None)


def _require_divisor(size: int, replicas: int) -> None:
    if size % replicas:
        raise InputError(f"A batch of {size} examples does not divide among {replicas} replicas; use a multiple.")


def _batches(data, count: int, size: int, shuffle: bool, replicas: int) -> tf.data.Dataset:
    rest = count % size % replicas
    if rest:
        _log.warning("%d of %d examples are left out of every epoch: %d replicas share batches.", rest, count, replicas)
    if count - rest == 0:
        raise InputError(f"{count} examples do not divide among {replicas} replicas.")
    rows = tf.data.Dataset.range(count)
    rows = (rows.shuffle(count) if shuffle else rows).take(count - rest).batch(size)
    return rows.map(lambda chosen: tf.nest.map_structure(lambda values: tf.gather(values, chosen), data)).prefetch(2)


def _trimmed(dataset: tf.data.Dataset, replicas: int) -> tf.data.Dataset:
    sizes = {spec.shape[0] if spec.shape.rank else None for spec in tf.nest.flatten(dataset.element_spec)}
    for size in sizes - {None}:
        _require_divisor(size, replicas)
    if None not in sizes:
        return dataset

    def trim(*batch):
        count = tf.shape(tf.nest.flatten(batch)[0])[0] // replicas * replicas
        return tf.nest.map_structure(lambda values: values[:count], batch if len(batch) > 1 else batch[0])

    _log.warning("The last examples of a batch that does not divide among %d replicas are left out.", replicas)
    dataset = dataset.filter(lambda *batch: tf.shape(tf.nest.flatten(batch)[0])[0] >= replicas)
    return dataset.map(trim)
