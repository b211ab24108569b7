"""Gaussian noise on all pixels: closed forms, and what it draws against its distribution."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tfrobust.keras.augment import AddGaussian, PatchGaussian
from tfrobust.ops import randomness

KEY = randomness.make_key(4, "noise")


def test_noise_is_gaussian_added_and_clipped():
    images = tf.reshape([0.0, 0.25, 0.5, 1.0], [1, 2, 2, 1])
    noise = tf.reshape([-0.5, 0.25, -0.125, 0.5], [1, 2, 2, 1])
    noisy = AddGaussian().apply(images, {"noise": noise})
    np.testing.assert_array_equal(tf.reshape(noisy, [-1]), [0.0, 0.5, 0.375, 1.0])
    noise = AddGaussian(deviation=0.3).draw(KEY, (8, 10, 10, 3))["noise"].numpy()
    assert stats.kstest(noise.ravel(), stats.norm(scale=0.3).cdf).pvalue > 1e-3


@pytest.mark.parametrize("augmentation", [AddGaussian, PatchGaussian])
def test_a_level_up_to_a_largest_is_uniform_and_one_for_each_image(augmentation):
    noise = augmentation(deviation=(0.1, 0.5)).draw(KEY, (400, 20, 20, 1))["noise"].numpy()
    levels = noise.std(axis=(1, 2, 3))  # of 400 values: within 4 % of the level drawn
    assert stats.kstest(levels, stats.uniform(0.1, 0.4).cdf).pvalue > 1e-3
    # Within an image the level is one and the same.
    halves = noise.reshape(400, 2, 200).std(axis=2)
    np.testing.assert_allclose(halves[:, 0], halves[:, 1], rtol=0.35)
    assert stats.kstest((noise / levels[:, None, None, None])[::20].ravel(), stats.norm.cdf).pvalue > 1e-3
