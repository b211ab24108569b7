"""The operations of AugMix: to the grey level what Pillow does, and what their definitions say on a few pixels."""

import numpy as np
import pytest
import tensorflow as tf

from oracles import augmix as pillow
from tfrobust.augment import operations

COUNT = 12
GENERATOR = np.random.default_rng(0)
PARAMETERS = {
    "autocontrast": [None] * COUNT,
    "equalize": [None] * COUNT,
    "posterize": [*range(1, 9), 4, 3, 4, 3],
    "rotate": [0.0, 1.0, -1.0, 5.0, -8.0, 13.0, -17.0, 21.0, 25.0, -29.0, 30.0, -30.0],
    "solarize": [0, 1, 40, 100, 127, 128, 129, 180, 200, 230, 255, 256],
    "translate_x": [*range(-6, 6)],
    "translate_y": [*range(-6, 6)],
    **{name: [0.0, *GENERATOR.uniform(-0.3, 0.3, COUNT - 1)] for name in ("shear_x", "shear_y")},
    **{
        name: [0.0, 1.0, *GENERATOR.uniform(0.1, 1.9, COUNT - 2)]
        for name in ("color", "contrast", "brightness", "sharpness")
    },
}
SHAPES = [(32, 32, 3), (24, 17, 1), (61, 50, 3), (2, 5, 3)]


def contents(shape):
    """Pixels uint8 [COUNT, h, w, c] of several kinds: each a trap for some operation."""
    generator = np.random.default_rng(1)
    ramp = np.add.outer(2 * np.arange(shape[0]), 3 * np.arange(shape[1]))[..., None]
    offsets = generator.integers(0, 60, (COUNT, 1, 1, shape[2]))
    flat = np.zeros((COUNT, *shape), np.int64)
    yield generator.integers(0, 256, (COUNT, *shape)).astype(np.uint8)
    yield np.clip(ramp + offsets, 0, 255).astype(np.uint8)
    yield (flat + 4 * offsets).astype(np.uint8)  # one level in each channel, 0 among them
    yield generator.integers(40, 90, (COUNT, *shape)).astype(np.uint8)
    yield (255 * generator.integers(0, 2, (COUNT, *shape))).astype(np.uint8)


def run(name, pixels, parameters):
    function = getattr(operations, name)
    if parameters[0] is None:
        return function(tf.constant(pixels))
    kind = np.int32 if isinstance(parameters[0], int) else np.float32
    return function(tf.constant(pixels), tf.constant(np.array(parameters, kind)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", PARAMETERS)
def test_every_operation_is_pillow_s(name, shape):
    # What is computed in single precision is one level off where Pillow, in double, meets a whole number: rarely.
    allowed = 3e-4 if name in ("rotate", "shear_x", "shear_y") else 0
    parameters = PARAMETERS[name]
    rounded = [value if not isinstance(value, float) else float(np.float32(value)) for value in parameters]
    for pixels in contents(shape):
        result = run(name, pixels, parameters).numpy()
        pairs = zip(pixels, rounded, strict=True)
        expected = np.stack(
            [pillow.pixels_of(pillow.OPERATIONS[name](pillow.picture(image), value)) for image, value in pairs]
        )
        assert result.dtype == np.uint8 and result.shape == pixels.shape
        difference = np.abs(result.astype(int) - expected)
        assert difference.max() <= 1 and np.mean(difference > 0) <= allowed


def test_levels_survive_the_way_to_images_and_back():
    pixels = tf.reshape(tf.range(256), [1, 16, 16, 1])
    assert np.array_equal(operations.to_pixels(operations.to_images(tf.cast(pixels, tf.uint8))), pixels)
