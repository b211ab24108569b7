"""The golden request: a few fixed images and the answer of the SavedModel that was judged, bit for bit."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import numpy as np

from tfrobust.data.spec import PIXEL_SCALE
from tfrobust.ops.files import replacing
from tfrobust.serving import probe

COUNT = 4


def golden_pixels(image_shape: Sequence[int], count: int = COUNT) -> np.ndarray:
    """Images that look like noise and are the same on every machine: uint8 [count, h, w, c].

    pixel_i = top byte of (i * 2654435769 mod 2^32), a Weyl sequence (2^32 / golden ratio)
    """
    positions = np.arange(count * int(np.prod(image_shape)), dtype=np.uint64)
    words = positions * np.uint64(2654435769) % np.uint64(2**32)
    return (words >> np.uint64(24)).astype(np.uint8).reshape(count, *image_shape)


def golden_images(image_shape: Sequence[int], count: int = COUNT) -> np.ndarray:
    """`golden_pixels` as the data pipelines scale them: float32 [count, h, w, c] in [0, 1]."""
    return golden_pixels(image_shape, count).astype(np.float32) * PIXEL_SCALE


def record(signatures, image_shape: Sequence[int]) -> dict[str, np.ndarray]:
    """Asks loaded signatures the golden request: `images` and the three outputs by name."""
    import tensorflow as tf

    images = golden_images(image_shape)
    outputs = signatures["serving_default"](images=tf.constant(images))
    return {"images": images} | {name: outputs[name].numpy() for name in probe.PREDICTIONS}


def write(directory, golden: dict[str, np.ndarray]) -> None:
    """Writes request and response to `assets.extra/golden.npz` of a version directory."""
    path = pathlib.Path(directory, probe.GOLDEN_FILE)
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **golden)


def read(directory) -> dict[str, np.ndarray]:
    """Reads what `write` wrote."""
    return probe.read_golden(directory)
