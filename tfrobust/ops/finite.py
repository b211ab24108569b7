"""Labeled examples as arrays, from arrays or from a finite stream of batches."""

from __future__ import annotations

import math
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import batch_checks

# Bytes of a stream of unknown length after which it counts as endless.
_MOST_BYTES = 2**34
_IMAGES, _LABELS = ("images", "image", "x", "tokens", "clips"), ("labels", "label", "y")


def arrays_of(examples, labels=None, caller: str = "this") -> tuple[np.ndarray, np.ndarray]:
    """Return examples and labels as arrays.

    Args:
        examples: array [n, ...], or a dict that holds it under `images`; or, without `labels`, a `tf.data.Dataset` or
            `keras.utils.PyDataset` of batches: pairs (examples, labels), also with weights, which are not used, or
            dicts of them under `images` and `labels`, or `image` and `label`.
        labels: [n] or [n, k]; None with a stream.
        caller: name of the caller, for messages.

    Returns:
        Examples [n, ...] and labels, n >= 1 if they come from a stream.

    Raises:
        ValueError: a stream without end, without batches or of single examples; elements that are no such pairs; labels
            with a stream, or none with arrays; several inputs; a tensor of a graph.
    """
    is_stream = isinstance(examples, (tf.data.Dataset, keras.utils.PyDataset))
    if is_stream and labels is not None:
        raise InputError(f"{caller} got labels twice: the data set has its own.")
    if labels is None and not is_stream:
        raise InputError(
            f"{caller} takes labels with arrays, (images, labels), or batches of both in a tf.data.Dataset or "
            f"keras.utils.PyDataset; got a {type(examples).__name__} without labels."
        )
    if not is_stream:
        return _array(examples, caller), np.asarray(labels)
    images: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    size = 0
    most = _MOST_BYTES if _has_unknown_length(examples) else math.inf
    for element in _batches(examples, caller):
        image, target = (np.asarray(part) for part in _pair(element, caller))
        if not target.ndim:
            raise InputError(f"{caller} takes batches, got single examples: call .batch(128) on the data set.")
        size += image.nbytes + target.nbytes
        if size > most:
            raise InputError(f"{caller} has read {size >> 30} GiB without end: call .take(n) on the data set.")
        images.append(image)
        targets.append(target)
    if not sum(map(len, targets)):
        raise InputError(f"{caller} got a data set without examples.")
    return np.concatenate(images), np.concatenate(targets)


def _array(examples, caller: str) -> np.ndarray:
    """Return examples as an array."""
    if tf.is_symbolic_tensor(examples):
        raise InputError(
            f"{caller} takes values, and got a tensor of a graph: call it outside of tf.function. In a training step, "
            "attack.perturb(objective, images, key) computes adversarial images."
        )
    try:
        return np.asarray(batch_checks.examples_of(examples, caller) if isinstance(examples, dict) else examples)
    except ValueError as error:  # arrays of different shapes
        if isinstance(error, InputError):
            raise
        raise InputError(f"{caller} takes examples of one shape as one array, and models of one input.") from error


def _batches(stream, caller: str) -> Iterator:
    endless = InputError(f"{caller} needs a data set that ends: leave .repeat() out, or call .take(n) after it.")
    if isinstance(stream, tf.data.Dataset):
        if stream.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise endless
        yield from stream.as_numpy_iterator()
        return
    if stream.num_batches is None:
        raise endless
    yield from (stream[number] for number in range(stream.num_batches))


def _has_unknown_length(stream) -> bool:
    return isinstance(stream, tf.data.Dataset) and stream.cardinality() == tf.data.UNKNOWN_CARDINALITY


def _pair(element, caller: str) -> tuple:
    """Return examples and labels of one element of a stream."""
    if isinstance(element, dict):
        parts = [next((element[name] for name in names if name in element), None) for names in (_IMAGES, _LABELS)]
    elif isinstance(element, (tuple, list)) and len(element) in (2, 3):
        parts = [
            _pair({**element[0], "labels": 0}, caller)[0] if isinstance(element[0], dict) else element[0],
            element[1],
        ]
    else:
        parts = [None]
    if any(part is None or isinstance(part, (dict, tuple, list, tf.RaggedTensor)) for part in parts):
        keys = sorted(map(str, element)) if isinstance(element, dict) else type(element).__name__
        raise InputError(
            f"{caller} takes batches (images, labels) or dicts with 'images' and 'labels', got {str(keys)[:80]}: map "
            "the data set to pairs."
        )
    return tuple(parts)
