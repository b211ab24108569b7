"""Evaluation check that no test image, nor a near duplicate of it, is among the training images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tfrobust.data.spec import Examples
from tfrobust.evaluation.doctor.limits import NEAR, NEAR_OF_CONTRAST, graded, verdict
from tfrobust.evaluation.engine.base import Setting
from tfrobust.structs import Finding

_SMALL_SIDE = 8
_TEST_ROWS = 256
# First-stage images, as float32: the bytes that are checked in total, spread evenly, and the bytes held at a time.
_FETCHED_BYTES, _BLOCK_BYTES = 2**30, 2**26


def check_duplicates(setting: Setting) -> Finding | None:
    """Check that test images, or near duplicates, are not among the training images; None if those are unknown.

    Images of a first stage count too: an encoder trained on the test images has seen them.
    """
    test, kind = setting.images, setting.examples
    exact, near, seen = np.zeros(len(test), bool), np.zeros(len(test), bool), []
    digests = _hashes(test)
    parts = {f"training {kind}": setting.train_images, f"{kind} of the first stage": setting.pretraining_examples}
    for name, images in parts.items():
        count = 0
        for block in _blocks(images, test):
            train_digests = set(_hashes(block))
            exact |= np.array([digest in train_digests for digest in digests])
            if not setting.predictor.is_text:
                near |= _nearly_equal(block, test)
            count += len(block)
        seen += [f"{count} {name}"] * (count > 0)
    if not seen:
        return None
    near &= ~exact
    evidence = f"Of {len(test)} test {kind} {exact.sum()} ({exact.mean():.1%}) are among {' and '.join(seen)}"
    if setting.predictor.is_text:
        evidence += "."
    else:
        evidence += (
            f", and {near.sum()} ({near.mean():.1%}) differ from one by less than {NEAR:.3f} (root mean square)."
        )
    remedy = (
        f"Take the test {setting.examples} out of the training set, or the duplicates out of the test set, and "
        "evaluate again."
    )
    if setting.pretraining_examples is not None:
        remedy += " train.data and Pretraining.data have one test split where they have one split_seed."
    return graded("duplicates", evidence, remedy, verdict("duplicates", float(np.mean(exact | near))))


def _blocks(images: np.ndarray | Examples | None, test: np.ndarray) -> Iterator[np.ndarray]:
    """Yield training images as arrays [b, ...]: an array held already, or `Examples`, fetched block by block.

    It yields nothing if there are none, or if their shape differs from that of the test images.
    """
    if images is None or not len(images):
        return
    if not isinstance(images, Examples):
        if np.shape(images)[1:] == test.shape[1:]:
            yield np.asarray(images, test.dtype)
        return
    if tuple(images.image_shape) != test.shape[1:]:
        return
    bytes_each = 4 * int(np.prod(images.image_shape))
    count = min(len(images), max(1, _FETCHED_BYTES // bytes_each))
    positions, step = np.arange(count, dtype=np.int64) * len(images) // count, max(1, _BLOCK_BYTES // bytes_each)
    for start in range(0, count, step):
        yield images.fetch(tf.constant(positions[start : start + step])).numpy()


def _hashes(images: np.ndarray) -> list[bytes]:
    """Return hashes of the images at 8 bits; a few thousand images are converted at a time."""
    hashes = []
    for start in range(0, len(images), 4096):
        levels = images[start : start + 4096]
        levels = levels if levels.dtype == np.int32 else np.round(levels * 255).astype(np.uint8)
        hashes += [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in levels]
    return hashes


def _nearly_equal(train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Return which test images have a training image within the near distance; bool [n].

    Averaging over blocks of pixels never increases the root mean square distance of two images. So only the nearest
    small image is compared at full size.
    """
    train, test = (_frames_as_channels(images) for images in (train, test))
    small_train, small_test = _small(train), _small(test)
    lengths, near = np.sum(small_train**2, axis=1), np.zeros(len(test), bool)
    for start in range(0, len(test), _TEST_ROWS):
        rows = small_test[start : start + _TEST_ROWS]
        nearest = np.argmin(lengths[None] - 2 * rows @ small_train.T, axis=1)
        images = test[start : start + _TEST_ROWS]
        gap = np.sqrt(np.mean((images - train[nearest]) ** 2, axis=(1, 2, 3)))
        # Two nearly empty images are similar without being the same.
        near[start : start + _TEST_ROWS] = gap <= np.minimum(NEAR, NEAR_OF_CONTRAST * images.std(axis=(1, 2, 3)))
    return near


def _frames_as_channels(images: np.ndarray) -> np.ndarray:
    """Return clips [n, t, h, w, c] as images [n, h, w, t c], and images unchanged."""
    if images.ndim == 4:
        return images
    return np.moveaxis(images, 1, 3).reshape(len(images), *images.shape[2:4], -1)


def _small(images: np.ndarray) -> np.ndarray:
    """Return means over blocks: float32 [n, d] with at most 15 x 15 blocks per channel."""
    height, width = (max(1, size // _SMALL_SIDE) for size in images.shape[1:3])
    high, wide = images.shape[1] // height, images.shape[2] // width
    cut = images[:, : high * height, : wide * width]
    blocks = cut.reshape(len(cut), high, height, wide, width, -1)
    return blocks.mean(axis=(2, 4)).reshape(len(cut), -1)
