"""Our image operations beside those of tensorflow-addons (tests/golden/addons.md), and where their conventions differ.

Ours do what Pillow does to bytes. tensorflow-addons counts from the middle of the first pixel, fades into zeros at the
border, and does not round where it is given floats.
"""

import numpy as np
import pytest
import recordings
import tensorflow as tf

from tfrobust.augment import operations
from tfrobust.corruptions import resampling

GOLDEN = recordings.arrays("addons")
PIXELS = GOLDEN["input/images"]
SLOPES = GOLDEN["input/slopes"].astype(np.float32)


def levels(operation, *arguments):
    """An operation's grey levels, as integers."""
    return operation(tf.constant(PIXELS), *(tf.constant(argument) for argument in arguments)).numpy().astype(int)


def below(values, expected, coverage):
    """Return the distance of `values` from `expected` where no zeros came in; check that this is most of the images."""
    inside = coverage >= 254.99
    assert inside.mean() > 0.5
    return np.abs(values - expected)[inside]


def test_equalize_is_the_same():
    np.testing.assert_array_equal(levels(operations.equalize), GOLDEN["equalize"])


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_translations_are_the_same_with_the_sign_turned(interpolation):
    """Theirs moves the image to the right and down; ours, as Pillow's, says where a pixel is read."""
    right, down = GOLDEN["input/moves"].T
    moved = operations.translate_y(operations.translate_x(tf.constant(PIXELS), -right), -down)
    np.testing.assert_array_equal(moved, GOLDEN[f"translate/{interpolation}"])


def test_rotation_is_the_same_cut_down_to_a_level():
    rotated = levels(operations.rotate, GOLDEN["input/degrees"].astype(np.float32))
    off = below(rotated, GOLDEN["rotate/bilinear"], GOLDEN["rotate/coverage"])
    assert off.max() < 1.02
    # Cut down, not rounded: never above.
    assert np.all(rotated <= np.where(GOLDEN["rotate/coverage"] > 254.99, GOLDEN["rotate/bilinear"] + 0.02, 255))
    # A quarter turn of an image that is not square moves pixels by whole numbers: nothing is interpolated.
    quarter = GOLDEN["input/degrees"].tolist().index(90.0)
    inside = GOLDEN["rotate/coverage"][quarter] > 254.9
    assert np.abs(rotated - GOLDEN["rotate/nearest"])[quarter][inside].max() <= 1.0


@pytest.mark.parametrize("axis", ["x", "y"])
def test_shears_are_the_same_at_the_middles_of_pixels(axis):
    """Theirs leaves the first row in place; ours, as Pillow's, leaves the edge above it, half a pixel further up."""
    sheared = levels({"x": operations.shear_x, "y": operations.shear_y}[axis], SLOPES)
    off = below(sheared, GOLDEN[f"shear_{axis}/middles"], GOLDEN[f"shear_{axis}/coverage"])
    assert off.max() < 1.02
    # With an even slope half of it is whole, and theirs, which takes the nearest pixel, is ours moved by that.
    even = SLOPES.tolist().index(2.0)
    ours, theirs = sheared[even], GOLDEN[f"shear_{axis}"][even].astype(int)
    if axis == "y":
        ours, theirs = np.swapaxes(ours, 0, 1), np.swapaxes(theirs, 0, 1)
    lines = [
        (row, column)
        for row in range(len(ours))
        for column in range(ours.shape[1])
        if column + 2 * row + 1 < ours.shape[1]
    ]
    assert len(lines) > 50
    for row, column in lines:
        np.testing.assert_array_equal(ours[row, column], theirs[row, column + 1])


def test_sharpness_is_within_two_levels():
    """Both smooth with the same 13ths. Pillow rounds the smoothed image, and its border stays; theirs cuts it down."""
    for factor in GOLDEN["input/factors"]:
        sharpened = levels(operations.sharpness, np.full(len(PIXELS), factor, np.float32))
        off = np.abs(sharpened - GOLDEN[f"sharpness/{factor}"].astype(int))
        assert off.max() <= (0 if factor == 1.0 else 2), factor


@pytest.mark.parametrize(("padding", "border"), [("reflect", "mirror"), ("symmetric", "reflect")])
def test_gaussian_filters_are_the_same(padding, border):
    """Compare filters with the same number of taps; the other library names borders as TensorFlow does."""
    for taps, sigma in GOLDEN["input/filters"]:
        taps = int(taps)
        filtered = resampling.gaussian(tf.constant(PIXELS, tf.float32) / 255.0, sigma, (taps // 2) / sigma, border)
        expected = GOLDEN[f"gaussian_filter2d/{taps}/{sigma}/{padding}"] / 255.0
        np.testing.assert_allclose(filtered, expected, atol=2e-6)
        # At the border only: theirs also knows zeros outside, which no corruption has.
        constant = GOLDEN[f"gaussian_filter2d/{taps}/{sigma}/constant"] / 255.0
        middle = np.s_[:, taps // 2 : -(taps // 2), taps // 2 : -(taps // 2)]
        np.testing.assert_allclose(filtered[middle], constant[middle], atol=2e-6)
