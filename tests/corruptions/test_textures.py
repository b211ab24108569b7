"""Plasma and frost: what they must look like, whatever their pixels; pictures from a folder; kernels and borders."""

import math

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from oracles import corruptions as oracle
from tfrobust import corruptions
from tfrobust.corruptions import blur, resampling, textures

KEYS = tf.constant([[1, 2], [3, 4]])


def test_plasma_fills_zero_to_one_and_wraps_around():
    field = tf.random.stateless_uniform([3, 64, 64], [1, 2], -1, 1)
    clouds = textures.plasma(field, 3.0).numpy()
    np.testing.assert_allclose(clouds.min(axis=(1, 2)), 0, atol=1e-6)
    np.testing.assert_allclose(clouds.max(axis=(1, 2)), 1, atol=1e-6)
    seam, inside = np.abs(clouds[:, 0] - clouds[:, -1]).mean(), np.abs(np.diff(clouds, axis=1)).mean()
    assert seam < 2 * inside
    rough = np.abs(np.diff(textures.plasma(field, 1.75).numpy(), axis=1)).mean()
    assert rough > 1.5 * inside
    assert [textures.plasma_size(*size) for size in ((8, 8), (32, 20), (33, 5), (224, 224))] == [8, 32, 64, 256]


@pytest.mark.parametrize(("size", "expected"), [(8, 32), (32, 128)])
def test_frost_panes(size, expected):
    panes = textures.frost(size, size)
    assert panes.shape == (5, expected, expected, 3) and panes.dtype == np.uint8
    levels = panes.astype(float) / 255
    means = levels.mean(axis=(1, 2))
    # Equally bright, bluish, all different, with light and dark places.
    assert np.ptp(means[:, 1]) < 0.01 and np.all(means[:, 2] > means[:, 0]) and 0.4 < means.mean() < 0.65
    assert levels.std(axis=(1, 2)).min() > 0.15
    correlations = np.corrcoef(levels[..., 1].reshape(5, -1)) - np.eye(5)
    assert np.abs(correlations).max() < 0.3


def test_frost_leaves_room_for_random_windows(monkeypatch):
    monkeypatch.setattr(textures, "_pane", lambda size, generator: np.zeros([size, size, 3], np.uint8))
    for side, expected in ((8, 32), (128, 512), (200, 512), (256, 512), (257, 1024), (512, 1024), (600, 2048)):
        assert textures.frost.__wrapped__(side, side).shape[1:3] == (expected, expected)


def test_frost_has_needles():
    """Brightness goes on along some direction for longer than across it; of white noise the ratio is 1.2."""
    pane = textures.frost(32, 32)[0, :, :, 1].astype(float)
    blocks = pane.reshape(8, 16, 8, 16).swapaxes(1, 2).reshape(64, 16, 16)
    down, across = np.gradient(blocks, axis=(1, 2))
    tensor = np.array([[np.mean(a * b, axis=(1, 2)) for a in (down, across)] for b in (down, across)]).transpose(
        2, 0, 1
    )
    small, large = np.linalg.eigvalsh(tensor).T
    assert np.median(large / small) > 2


def save(folder, name, size, value):
    PIL.Image.fromarray(np.full([*size, 3], value, np.uint8)).save(folder / name)


def test_frost_from_a_folder(tmp_path):
    for number in range(6):
        save(tmp_path, f"frost{number}.png", (300 + 10 * number, 400), 40 * number)
    (tmp_path / "notes.txt").write_text("no picture")
    pictures = textures.read_frost(tmp_path, 32, 32)
    assert pictures.shape == (5, 60, 80, 3)  # a fifth of the smallest; the sixth is never used
    np.testing.assert_array_equal(pictures[:, 0, 0, 0], [0, 40, 80, 120, 160])
    images = tf.zeros([2, 32, 32, 3])
    corrupted = corruptions.corrupt(images, "frost", 5, KEYS, frost_pictures=pictures, quantised=False).numpy() * 255
    assert all(np.any(np.isclose(value, 0.45 * 40.0 * np.arange(5), atol=1e-3)) for value in np.unique(corrupted))
    assert textures.read_frost(tmp_path, 224, 224).shape == (5, 300, 400, 3)


def _bilinear(picture, factor):
    """Resize a picture as OpenCV does by default: bilinear between the centers of pixels, without antialiasing."""
    for axis in (0, 1):
        count = picture.shape[axis]
        target = round(count * factor)
        centers = np.clip((np.arange(target) + 0.5) * count / target - 0.5, 0, count - 1)
        low = np.floor(centers).astype(int)
        weight = np.expand_dims(centers - low, [other for other in range(3) if other != axis])
        high = np.minimum(low + 1, count - 1)
        picture = np.take(picture, low, axis) * (1 - weight) + np.take(picture, high, axis) * weight
    return picture


# An image of 64 pixels takes pictures of 0.4 of their size.
@pytest.mark.parametrize(("side", "factor"), [(32, 0.2), (64, 0.4)])
def test_fine_texture_of_a_picture_is_resized_as_by_opencv(tmp_path, side, factor):
    picture = np.random.default_rng(0).integers(0, 256, (200, 240, 3), np.uint8)
    PIL.Image.fromarray(picture).save(tmp_path / "frost1.png")
    resized = textures.read_frost(tmp_path, side, side)[0]
    expected = _bilinear(picture.astype(float), factor)
    assert np.abs(resized - expected).max() < 1
    if factor == 0.2:  # the centers of the new pixels are those of every fifth
        np.testing.assert_array_equal(resized, picture[2::5, 2::5])


def test_bad_folders_are_named(tmp_path):
    with pytest.raises(ValueError, match="no pictures of frost"):
        textures.read_frost(tmp_path, 32, 32)
    save(tmp_path, "small.png", (100, 400), 9)
    with pytest.raises(ValueError, match="small.png has 20 x 80 pixels once scaled; images have 32 x 32"):
        textures.read_frost(tmp_path, 32, 32)


# Beyond 8 pixels the disk's square grows, and its rim is softened more widely.
@pytest.mark.parametrize(("radius", "alias"), [(0.3, 0.4), (1, 0.2), (8, 0.5), (10, 0.5), (20.5, 0.5)])
def test_the_disk_is_opencv_s(radius, alias):
    kernel, expected = blur.disk(radius, alias), oracle.disk(radius, alias)
    around = (len(expected) - len(kernel)) // 2
    np.testing.assert_allclose(np.pad(kernel, around), expected, atol=1e-6)


@pytest.mark.parametrize("side", [8, 32, 64, 224])
def test_resampling_keeps_brightness(side):
    for matrix in (
        resampling.gaussian_matrix(side, 1.3),
        resampling.gaussian_matrix(side, 0.9 * side, 3.0, "reflect"),
        resampling.zoom_matrix(side, 1.17),
        resampling.box_matrix(side, max(1, int(0.65 * side))),
    ):
        np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-5)


def test_folding_is_numpy_s_padding():
    line = np.arange(5)
    for border, mode in (("nearest", "edge"), ("reflect", "symmetric"), ("mirror", "reflect")):
        places = np.arange(-13, 18)
        expected = np.pad(line, 13, mode=mode)
        np.testing.assert_array_equal(resampling.fold(places, 5, border), expected)
        np.testing.assert_array_equal(resampling.fold(tf.constant(places), 5, border), expected)
        assert resampling.fold(places, 1, border).max() == 0


def test_a_streak_longer_than_the_image_darkens_it():
    images = tf.ones([1, 4, 4, 1])
    weights = np.exp(-(np.arange(13) ** 2) / (2 * 5.0**2))
    darkened = blur.streaks(images, tf.zeros([1]), 6, 5.0).numpy()
    np.testing.assert_allclose(darkened, weights[:4].sum() / weights.sum(), rtol=1e-5)
    assert math.isclose(float(blur.streaks(images, tf.zeros([1]), 6, 0.5).numpy().min()), 1, rel_tol=1e-4)
