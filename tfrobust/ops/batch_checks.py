"""Checks of batches given by users: pixels within bounds, labels that are classes of the model.

Invalid values raise ValueError where values are known. Inside a graph they fail an assertion, which XLA omits.
"""

import contextlib
import re
from collections.abc import Iterator

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
    """
    check_floats(images, caller, low, high)
    farthest = tf.reduce_max(tf.abs(tf.cast(images, tf.float32) - (low + high) / 2))
    _require(
        farthest <= (high - low) * (0.5 + _TOLERANCE),
        f"{caller} takes float pixels in [{low:g}, {high:g}], got others; {_remedy(low, high)}, clip values that "
        "interpolation moved outside, and keep normalization inside the model. A model that scales its input takes "
        "other `bounds`, of the threat model or of plain methods.",
    )


def check_batch(images: tf.Tensor, caller: str) -> None:
    """Raise ValueError for a single image [h, w, c] in place of a batch."""
    if images.shape.rank == 3:
        raise InputError(
            f"{caller} takes images [b, h, w, c], got the shape {images.shape}: give a single image as a batch of one, "
            "images[None], or use the layer Augment."
        )


def check_sizes(images: tf.Tensor, caller: str) -> None:
    """Raise ValueError unless all sizes of images [b, ...] but b are known, as those of decoded files are not."""
    if images.shape.rank is None or None in images.shape[1:]:
        raise InputError(
            f"{caller} needs images of known height, width and channels, got {images.shape}: resize them first "
            "(tf.image.resize), or set their shape (tf.ensure_shape)."
        )


def _remedy(low: float, high: float) -> str:
    return "divide bytes by 255" if (low, high) == (0, 1) else "cast bytes to float32 and scale them to these bounds"


def examples_of(inputs, caller: str):
    """Return the examples of a batch, itself or those that a dict holds under `images`.

    Args:
        inputs: a tensor or an array, or a dict with the key `images`.
        caller: name of the caller, for the message.

    Raises:
        ValueError: a dict without them, several inputs, or ragged tensors, whose rows differ in length.
    """
    if isinstance(inputs, dict):
        if "images" not in inputs:
            keys = str(sorted(map(str, inputs)))[:100]
            raise InputError(f"{caller} takes one input, or a dict with the key 'images'; got the keys {keys}.")
        inputs = inputs["images"]
    if isinstance(inputs, (list, tuple)) and any(hasattr(part, "shape") for part in inputs):
        raise InputError(f"{caller} takes one input, got {len(inputs)}: join them, or train a model of one of them.")
    if isinstance(inputs, tf.RaggedTensor):
        raise InputError(f"{caller} takes rows of one length, got ragged ones: pad tokens by 0 (inputs.to_tensor()).")
    return inputs


def known_tokens(tokens: tf.Tensor, vocabulary_size: int, caller: str) -> tf.Tensor:
    """Return token ids unchanged; raise ValueError if one is not in the vocabulary.

    Args:
        tokens: integer [b, length].
        vocabulary_size: ids are smaller than this.
        caller: name of the caller, for the message.
    """
    lowest, highest = tf.reduce_min(tokens), tf.reduce_max(tokens)
    fits, worst = (lowest >= 0) & (highest < vocabulary_size), tf.where(lowest < 0, lowest, highest)
    message = f"{caller} takes the token ids of its vocabulary, 0 to {vocabulary_size - 1}; one is"
    if tf.executing_eagerly():
        if not fits:
            raise InputError(f"{message} {int(worst)}.")
        return tokens
    # The check runs before the lookup, which would fail with a less clear message, or not at all on a GPU.
    with tf.control_dependencies([tf.debugging.Assert(fits, [message, worst])]):
        return tf.identity(tokens)


def id_vector(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the ids of a batch, which Keras's data sets give as a column, as a vector.

    Args:
        logits: float [b, k], to which the labels belong.
        labels: class ids, integer [b] or [b, 1].

    Returns:
        int32 or int64 [b].

    Raises:
        ValueError: logits or labels of another shape.
        TypeError: labels that are not integers.
    """
    labels = tf.convert_to_tensor(labels)
    if labels.shape.rank == 2 and labels.shape[1] == 1:
        labels = tf.squeeze(labels, axis=1)
    if logits.shape.rank not in (2, None) or labels.shape.rank != 1:
        raise InputError(f"logits {logits.shape} and labels {labels.shape}: must be [b, k] and [b] or [b, 1].")
    if not labels.dtype.is_integer:
        raise TypeError(f"labels [b] must be integer class ids, not {labels.dtype.name}.")
    # Data sets come with narrower integer types too, which some operations do not support.
    return labels if labels.dtype in (tf.int32, tf.int64) else tf.cast(labels, tf.int32)


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
    labels = _one_tensor(labels, caller, "labels")
    if not (labels.dtype.is_floating or labels.dtype.is_integer or labels.dtype.is_bool):
        raise InputError(f"{caller} takes class ids 0, 1, 2, ... or one-hot rows as labels, got {labels.dtype.name}.")
    if labels.dtype.is_bool:
        labels = tf.cast(labels, tf.int32)
    if labels.shape.rank != 2 or labels.shape[1] == 1:
        return _integral(tf.reshape(labels, [-1]), caller, remedy)
    # If the length of the second axis is unknown, only the graph can decide between ids and one-hot rows.
    column = tf.equal(tf.shape(labels)[1], 1)
    ones, zeros = tf.equal(labels, 1), tf.equal(labels, 0)
    single = tf.equal(tf.reduce_sum(tf.cast(ones, tf.int32), axis=1), 1)
    _require(
        column | (tf.reduce_all(ones | zeros) & tf.reduce_all(single)),
        f"{caller} takes class ids or one-hot rows as labels, got soft labels{remedy}.",
    )
    ids = tf.argmax(labels, axis=1, output_type=tf.int32)
    return ids if labels.shape[1] is not None else tf.where(column, tf.cast(labels[:, 0], tf.int32), ids)


def example_weights(weights, caller: str) -> tf.Tensor:
    """Return sample weights [b] from weights [b] or [b, 1].

    Args:
        weights: of any numeric type.
        caller: name of the caller, for the message.

    Raises:
        ValueError: another shape, or weights that are negative, infinite or NaN.
    """
    weights = _one_tensor(weights, caller, "sample weights")
    if weights.shape.rank not in (None, 1) and tuple(weights.shape[1:]) not in ((1,), (None,)):
        raise InputError(f"{caller} takes one sample weight per example, [b] or [b, 1], got {weights.shape}.")
    _require(
        tf.equal(tf.size(weights), tf.shape(weights)[0]), f"{caller} takes one sample weight per example, got several."
    )
    floats = tf.cast(weights, tf.float32)
    _require(
        tf.reduce_all(tf.math.is_finite(floats) & (floats >= 0)), f"{caller} takes finite sample weights of at least 0."
    )
    return tf.reshape(weights, [-1])


def _one_tensor(values, caller: str, kind: str) -> tf.Tensor:
    several = isinstance(values, (list, tuple)) and any(getattr(part, "shape", ()) != () for part in values)
    if several or isinstance(values, dict):
        raise InputError(f"{caller} takes {kind} as one tensor, got a {type(values).__name__} of {len(values)}.")
    return tf.convert_to_tensor(values)


def known_classes(ids: tf.Tensor, class_count: int | tf.Tensor, caller: str) -> tf.Tensor:
    """Return the ids, int32 [n]; raise ValueError if one is not a class of a model with `class_count` classes."""
    number = "" if isinstance(class_count, tf.Tensor) else f": with {class_count} classes 0 to {class_count - 1}"
    checked = _require(tf.reduce_all(ids < class_count), f"{caller} got a label that is no class of the model{number}.")
    # The check runs before the operations that would fail with a less clear message.
    with tf.control_dependencies([] if checked is None else [checked]):
        return tf.identity(ids)


def _integral(values: tf.Tensor, caller: str, remedy: str) -> tf.Tensor:
    ids = tf.cast(values, tf.int32)
    _require(
        tf.reduce_all(tf.equal(tf.cast(ids, values.dtype), values) & (ids >= 0)),
        f"{caller} takes class ids 0, 1, 2, ... as labels, got fractional, negative or too large values{remedy}.",
    )
    return ids


@contextlib.contextmanager
def plain_refusals() -> Iterator[None]:
    """Convert a failed assertion of a graph into the one-sentence ValueError that is raised in eager mode."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        assertion = re.search(r"assertion failed: \[(.+)\]", error.message)
        if assertion is None:
            raise
        raise InputError(assertion[1].replace("] [", " ")) from error


def _require(condition: tf.Tensor, message: str) -> tf.Operation | None:
    if not tf.executing_eagerly():
        return tf.debugging.Assert(condition, [message])
    if not condition:
        raise InputError(message)
    return None
