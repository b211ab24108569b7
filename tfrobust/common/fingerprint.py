"""Hashes that identify weights, data and configurations: equal content has an equal hash in every process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import numpy as np

from tfrobust.errors import InputError


def weights_sha256(arrays: Iterable) -> str:
    """Hash a set of weights, independent of their order and names.

    weights = sha256(sorted(sha256(dtype, shape, bytes) of each array))

    Keras numbers variable names per process, so names are ignored: a live model and its SavedModel have the same hash.

    Args:
        arrays: NumPy arrays, or objects with `.numpy()` (variables), of any dtype and shape. The order of the arrays
            does not matter; the number of equal arrays does.

    Returns:
        64 hexadecimal digits.
    """
    digests = sorted(_array_digest(array) for array in arrays)
    return hashlib.sha256(b"".join(digests)).hexdigest()


def data_sha256(images, labels) -> str:
    """Hash a set of examples, in their order.

    Args:
        images: [n, ...] of any dtype. A uint8 image and its float32 copy in [0, 1] have different hashes.
        labels: [n], any integer dtype; compared as int64.

    Returns:
        64 hexadecimal digits.

    Raises:
        ValueError: images and labels have different lengths.
    """
    images, labels = np.asarray(images), np.asarray(labels)
    if len(images) != len(labels):
        raise InputError(f"{len(images)} images have {len(labels)} labels; give one label per image.")
    digests = _array_digest(images) + _array_digest(labels.astype(np.int64))
    return hashlib.sha256(digests).hexdigest()


def files_sha256(root, paths: Iterable) -> str:
    """Hash the state of files (names, sizes, modification times), to check if a cached result is still valid.

    Returns:
        64 hexadecimal digits.
    """
    states = [(path, path.stat()) for path in sorted(paths)]
    lines = [f"{path.relative_to(root)} {status.st_size} {status.st_mtime_ns}" for path, status in states]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def canonical_json(value) -> str:
    """Return JSON with sorted keys and no spaces, so that equal values have equal texts.

    Args:
        value: dicts with string keys, lists, tuples, strings, numbers (including NumPy's), booleans, None.

    Returns:
        The text. Tuples are written as lists.

    Raises:
        ValueError: NaN or infinity, which JSON does not support.
        TypeError: a dict key that is not a string, or a value that JSON does not support.
    """
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def json_sha256(value) -> str:
    """Hash a JSON value: sha256(canonical_json(value)), 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def _array_digest(array) -> bytes:
    if hasattr(array, "numpy"):
        array = array.numpy()
    array = np.asarray(array)
    if array.dtype.hasobject:
        raise TypeError(f"an array of dtype {array.dtype} holds Python objects and has no bytes to hash.")
    little_endian = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    # The header is JSON so that ("float32", [1, 23]) and ("float32", [12, 3]) have different bytes.
    header = json.dumps([array.dtype.name, list(array.shape)])
    digest = hashlib.sha256(header.encode())
    digest.update(little_endian.tobytes())
    return digest.digest()


def _plain(value):
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{key!r} is a key of type {type(key).__name__}; JSON keys are strings.")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist())
    return value
