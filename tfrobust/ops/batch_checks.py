"""Checks of batches given by users: pixels within bounds, labels that are classes of the model.

Invalid values raise ValueError where values are known. Inside a graph they fail an assertion, which XLA omits.
"""

import tensorflow as tf

from tfrobust.errors import InputError

# Tolerance, as a share of the range: rounding errors of pixels are smaller, and bytes exceed it by far.
_TOLERANCE = 1e-3


def check_floats(images: tf.Tensor, caller: str, low: float = 0.0, high: float = 1.0) -> None:
    """Raise ValueError for images that are not floating point; arguments as for `check_pixels`."""
    if not images.dtype.is_floating:
        raise InputError(
            f"{caller} takes float pixels in [{low:g}, {high:g}], got {images.dtype.name}; {_remedy(low, high)}."
        )


def check_pixels(images: tf.Tensor, caller: str, low: float = 0.0, high: float = 1.0) -> None:
    """Raise ValueError for images that are not pixels within the bounds.

    Args:
        images: float [b, ...], or a single image.
        caller: name of the caller, for the message.
        low: lower bound of a pixel.
        high: upper bound of a pixel.

    Raises:
        ValueError: not floating point; outside the bounds, or NaN.
    """
    check_floats(images, caller, low, high)
    farthest = tf.reduce_max(tf.abs(tf.cast(images, tf.float32) - (low + high) / 2))
    _require(
        farthest <= (high - low) * (0.5 + _TOLERANCE),
        f"{caller} takes float pixels in [{low:g}, {high:g}], got others; {_remedy(low, high)}, clip values that "
        "interpolation moved outside, and keep normalization inside the model.",
    )


def _remedy(low: float, high: float) -> str:
    return "divide bytes by 255" if (low, high) == (0, 1) else "cast bytes to float32 and scale them to these bounds"


def class_ids(labels, caller: str, remedy: str = "") -> tf.Tensor:
    """Return class ids int32 [n] from ids or one-hot rows.

    Args:
        labels: ids [n] or [n, 1] of any numeric type, or one-hot [n, k].
        caller: name of the caller, for the message.
        remedy: advice for mixed labels, for the message.

    Returns:
        int32 [n].

    Raises:
        ValueError: not numbers, fractional or negative ids, or rows that are not one-hot.
    """
    labels = tf.convert_to_tensor(labels)
    if not (labels.dtype.is_floating or labels.dtype.is_integer or labels.dtype.is_bool):
        raise InputError(f"{caller} takes class ids 0, 1, 2, ... or one-hot rows as labels, got {labels.dtype.name}.")
    if labels.dtype.is_bool:
        labels = tf.cast(labels, tf.int32)
    if labels.shape.rank != 2 or labels.shape[1] == 1:
        return _whole(tf.reshape(labels, [-1]), caller, remedy)
    # If the length of the second axis is unknown, only the graph can decide between ids and one-hot rows.
    column = tf.equal(tf.shape(labels)[1], 1)
    ones, others = tf.equal(labels, 1), tf.equal(labels, 0)
    single = tf.equal(tf.reduce_sum(tf.cast(ones, tf.int32), axis=1), 1)
    _require(
        column | (tf.reduce_all(ones | others) & tf.reduce_all(single)),
        f"{caller} takes class ids or one-hot rows as labels, got soft labels{remedy}.",
    )
    found = tf.argmax(labels, axis=1, output_type=tf.int32)
    return found if labels.shape[1] is not None else tf.where(column, tf.cast(labels[:, 0], tf.int32), found)


def known_classes(ids: tf.Tensor, class_count: int | tf.Tensor, caller: str) -> tf.Tensor:
    """Return the ids, int32 [n]; raise ValueError if one is not a class of a model with `class_count` classes."""
    number = "" if isinstance(class_count, tf.Tensor) else f": with {class_count} classes 0 to {class_count - 1}"
    checked = _require(tf.reduce_all(ids < class_count), f"{caller} got a label that is no class of the model{number}.")
    # The check runs before the operations that would fail with a less clear message.
    with tf.control_dependencies([] if checked is None else [checked]):
        return tf.identity(ids)


def _whole(values: tf.Tensor, caller: str, remedy: str) -> tf.Tensor:
    ids = tf.cast(values, tf.int32)
    _require(
        tf.reduce_all(tf.equal(tf.cast(ids, values.dtype), values) & (ids >= 0)),
        f"{caller} takes class ids 0, 1, 2, ... as labels, got fractional or negative values{remedy}.",
    )
    return ids


def _require(condition: tf.Tensor, message: str) -> tf.Operation | None:
    if not tf.executing_eagerly():
        return tf.debugging.Assert(condition, [message])
    if not condition:
        raise InputError(message)
    return None
