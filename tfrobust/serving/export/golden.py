"""The golden request: a few fixed images or sentences, and the evaluated SavedModel's response, bit for bit."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import numpy as np

from tfrobust.common.files import replacing
from tfrobust.common.kinds import TEXT, kind_of
from tfrobust.data.spec import PIXEL_SCALE
from tfrobust.serving.export import probe

COUNT = 4


def golden_pixels(image_shape: Sequence[int], count: int = COUNT) -> np.ndarray:
    """Return images or clips that look like noise and are the same on every machine: uint8 [count, *image_shape].

    pixel_i = top byte of (i * 2654435769 mod 2^32), a Weyl sequence (2^32 / golden ratio)
    """
    return (_weyl(count * int(np.prod(image_shape))) >> np.uint64(24)).astype(np.uint8).reshape(count, *image_shape)


def golden_tokens(length: int, vocabulary_size: int, count: int = COUNT) -> np.ndarray:
    """Return sentences that are the same on every machine: int32 [count, length].

    The first has full length, each next one half the length of the one before. token_i = 1 + (w_i mod (vocabulary_size
    - 1)), where w_i is the Weyl sequence of `golden_pixels`; padded with 0.
    """
    tokens = 1 + (_weyl(count * length) % np.uint64(vocabulary_size - 1)).astype(np.int32).reshape(count, length)
    sizes = np.maximum(1, length >> np.arange(count))
    return np.where(np.arange(length) < sizes[:, None], tokens, 0).astype(np.int32)


def _weyl(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint64) * np.uint64(2654435769) % np.uint64(2**32)


def golden_images(image_shape: Sequence[int], count: int = COUNT) -> np.ndarray:
    """Return `golden_pixels` scaled as in the data pipelines: float32 [count, *image_shape] in [0, 1]."""
    return golden_pixels(image_shape, count).astype(np.float32) * PIXEL_SCALE


def golden_input(image_shape: Sequence[int], vocabulary_size: int = 0) -> np.ndarray:
    """Return `golden_images` for images and clips, `golden_tokens` for the shape (length,)."""
    is_text = kind_of(image_shape) is TEXT
    return golden_tokens(image_shape[0], vocabulary_size) if is_text else golden_images(image_shape)


def record(loaded, image_shape: Sequence[int], vocabulary_size: int = 0) -> dict[str, np.ndarray]:
    """Run the golden request and return `images` (`clips`, `tokens`) and the three outputs by name.

    If the SavedModel has the smoothed classifier, its outputs for fixed seeds are added, as `smoothed_class` and so on.
    """
    import tensorflow as tf

    name = probe.inputs_of(image_shape)["serving_default"]
    inputs = golden_input(image_shape, vocabulary_size)
    outputs = loaded.signatures["serving_default"](**{name: tf.constant(inputs)})
    response = {name: inputs} | {name: outputs[name].numpy() for name in probe.PREDICTIONS}
    if probe.SMOOTHED in loaded.signatures:
        answers = probe.smoothed_answers(loaded, inputs, probe.golden_seeds(len(inputs)))
        response |= {f"smoothed_{name}": array for name, array in answers.items()}
    return response


def write(directory, golden: dict[str, np.ndarray]) -> None:
    """Write request and response to `assets.extra/golden.npz` of a version directory."""
    path = pathlib.Path(directory, probe.GOLDEN_FILE)
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **golden)


def read(directory) -> dict[str, np.ndarray]:
    """Read the request and response that `write` wrote."""
    return probe.read_golden(directory)
