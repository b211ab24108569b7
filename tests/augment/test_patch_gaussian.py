"""Noise in a patch against a loop over its pixels, and what is drawn against its distribution."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tfrobust.augment.patch_gaussian import PatchGaussian
from tfrobust.ops import randomness

KEY = randomness.make_key(4, "patch")


def patched(images, draw):
    """Pixel by pixel: row y - floor(W / 2) .. y + ceil(W / 2) - 1, columns alike, where the image has them."""
    result = np.array(images, np.float64)
    for image, noise, width, (y, x) in zip(result, *(draw[name] for name in ("noise", "patch", "centre")), strict=True):
        for row in range(y - int(np.floor(width / 2)), y + int(np.ceil(width / 2))):
            for column in range(x - int(np.floor(width / 2)), x + int(np.ceil(width / 2))):
                if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
                    image[row, column] = np.clip(image[row, column] + noise[row, column], 0, 1)
    return result


@pytest.mark.parametrize("centres", ["pixels", "edges"])
def test_a_patch_is_noise_in_a_square_that_the_border_cuts_off(centres):
    augmentation = PatchGaussian(patch=(1, 9), deviation=0.4, centres=centres)
    images = np.random.default_rng(3).random((80, 7, 9, 3)).astype(np.float32)
    draw = {name: value.numpy() for name, value in augmentation.draw(KEY, images.shape).items()}
    assert set(draw["patch"]) == set(range(1, 10))
    np.testing.assert_allclose(augmentation.apply(images, draw), patched(images, draw), atol=1e-6)


def test_widths_and_centres_are_uniform():
    draw = PatchGaussian(patch=(3, 8), probability=0.75).draw(KEY, (4000, 5, 7, 1))
    width, centre = draw["patch"].numpy(), draw["centre"].numpy()
    assert stats.binomtest(int(np.sum(width > 0)), len(width), 0.75).pvalue > 1e-3
    for values, expected in ((width[width > 0], range(3, 9)), (centre[:, 0], range(5)), (centre[:, 1], range(7))):
        occurring, counts = np.unique(values, return_counts=True)
        assert list(occurring) == list(expected) and stats.chisquare(counts).pvalue > 1e-3
    assert np.abs(np.corrcoef([width, *centre.T]) - np.eye(3)).max() < 0.06


@pytest.mark.parametrize("patch, centres, rows", [(4, "pixels", 6), (4, "edges", 7), (3, "pixels", 6), (3, "edges", 6)])
def test_where_an_even_patch_may_be_centred(patch, centres, rows):
    centre = PatchGaussian(patch=patch, centres=centres).draw(KEY, (300, 6, 6, 1))["centre"].numpy()
    assert set(centre[:, 0]) == set(centre[:, 1]) == set(range(rows))
    inside = PatchGaussian(patch=patch, centres=centres).apply(
        tf.zeros([300, 6, 6, 1]), {"centre": centre, "patch": tf.fill([300], patch), "noise": tf.ones([300, 6, 6, 1])}
    )
    # With as many centres as it takes, the first and the last row are reached equally often.
    reached = [np.mean([c - patch // 2 <= row < c + (patch + 1) // 2 for c in range(rows)]) for row in range(6)]
    assert (reached[0] == reached[-1]) == (patch % 2 == 1 or centres == "edges")
    np.testing.assert_allclose(inside[:, :, :, 0].numpy().any(axis=2).mean(axis=0), reached, atol=0.12)


def test_the_papers_patch_covers_a_small_image():
    images = tf.fill([50, 8, 8, 1], 0.5)
    augmentation = PatchGaussian()
    assert (augmentation.patch, augmentation.deviation) == (25, 0.1)
    changed = augmentation(images, KEY).numpy() != 0.5
    assert changed.mean() > 0.999
