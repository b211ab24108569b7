import logging

import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
import tensorflow as tf

from tfrobust.augment.clips import EveryFrame
from tfrobust.augment.noise import AddGaussian
from tfrobust.augment.patch_gaussian import PatchGaussian
from tfrobust.augment.standard import Compose, PadCrop, RandomFlip, RandomShift
from tfrobust.augment.views import ContrastiveViews
from tfrobust.ops import randomness

RAMP = tf.constant(np.arange(12, dtype=np.float32).reshape(1, 3, 4, 1) / 16)


def test_flip_mirrors_only_the_chosen():
    images = tf.concat([RAMP, RAMP], 0)
    result = RandomFlip().apply(images, {"flip": tf.constant([True, False])})
    assert np.array_equal(result[0, :, :, 0] * 16, [[3, 2, 1, 0], [7, 6, 5, 4], [11, 10, 9, 8]])
    assert np.array_equal(result[1], images[1])


@pytest.mark.parametrize("fill, mode", [("nearest", "nearest"), ("constant", "grid-constant")])
def test_shift_equals_scipy(fill, mode):
    generator = np.random.default_rng(1)
    images = generator.random((5, 9, 7, 2)).astype(np.float32)
    shift = generator.uniform(-4, 4, (5, 2)).astype(np.float32)
    result = RandomShift(fill=fill).apply(tf.constant(images), {"shift": tf.constant(shift)})
    # scipy reads at i - shift, the transformation matrix of Keras's ImageDataGenerator at i + shift
    expected = [
        scipy.ndimage.shift(image, (*-by.astype(np.float64), 0), order=1, mode=mode)
        for image, by in zip(images, shift, strict=True)
    ]
    np.testing.assert_allclose(result, expected, atol=2e-6)


def test_shift_of_keras_image_data_generator():
    """The affine transformation that ImageDataGenerator hands to scipy for (tx, ty), written out."""
    image = np.random.default_rng(2).random((8, 6)).astype(np.float32)
    rows, columns = 0.7, -0.55
    matrix = np.array([[1, 0, rows], [0, 1, columns], [0, 0, 1]])
    expected = scipy.ndimage.affine_transform(image, matrix[:2, :2], matrix[:2, 2], order=1, mode="nearest", cval=0.0)
    draw = {"shift": tf.constant([[rows, columns]], tf.float32)}
    result = RandomShift().apply(tf.constant(image[None, :, :, None]), draw)
    np.testing.assert_allclose(result[0, :, :, 0], expected, atol=1e-6)


def test_pad_crop_closed_form():
    result = PadCrop(padding=1).apply(RAMP + 1, {"offset": tf.constant([[0, 2]])})
    expected = np.zeros((3, 4))
    expected[1:, :3] = (np.arange(12).reshape(3, 4) / 16 + 1)[:2, 1:]
    assert np.array_equal(result[0, :, :, 0], expected)


def test_compose_applies_in_order_what_draws_independently():
    flip, shift = RandomFlip(), RandomShift()
    draw = {"0": {"flip": tf.constant([True])}, "1": {"shift": tf.constant([[0.0, 1.0]])}}
    result = Compose(augmentations=(flip, shift)).apply(RAMP, draw)
    assert np.array_equal(result[0, :, :, 0] * 16, [[2, 1, 0, 0], [6, 5, 4, 4], [10, 9, 8, 8]])
    twice = Compose(augmentations=(RandomFlip(), RandomFlip())).draw(randomness.make_key(0), (512, 4, 4, 1))
    agree = np.mean(twice["0"]["flip"].numpy() == twice["1"]["flip"].numpy())
    assert 0.4 < agree < 0.6


def test_compose_draws_for_the_size_of_a_view():
    parts = Compose(augmentations=(ContrastiveViews(size=4), PatchGaussian(patch=2), RandomShift(fraction=0.5)))
    drawn = parts.draw(randomness.make_key(0), (64, 32, 16, 1))
    assert drawn["1"]["noise"].shape == (64, 4, 4, 1) and np.abs(drawn["2"]["shift"]).max() <= 2
    frames = Compose(augmentations=(EveryFrame(augmentation=parts), AddGaussian()))
    assert frames(tf.zeros([2, 3, 32, 16, 1]), randomness.make_key(0)).shape == (2, 3, 4, 4, 1)
    assert frames.shape_after((2, 3, 32, 16, 1)) == (2, 3, 4, 4, 1)


@pytest.mark.parametrize("key", [[3, 7], [[3, 0], [3, 1]]])
def test_a_key_may_be_an_array(key):
    images = tf.random.stateless_uniform([2, 6, 6, 1], (0, 1))
    for augmentation in (RandomShift(), AddGaussian(), ContrastiveViews(), Compose(augmentations=(RandomFlip(),))):
        expected = augmentation(images, tf.constant(key))
        np.testing.assert_array_equal(augmentation(images, np.array(key)), expected)
        np.testing.assert_array_equal(augmentation(images, key), expected)


def test_draws_are_uniform():
    count, keys = 3000, randomness.make_key(11, "uniform")
    shape = (count, 20, 40, 1)
    flips = RandomFlip(probability=0.3).draw(keys, shape)["flip"].numpy()
    assert scipy.stats.binomtest(int(flips.sum()), count, 0.3).pvalue > 1e-3
    shift = RandomShift(fraction=0.1).draw(keys, shape)["shift"].numpy()
    for column, reach in ((0, 2), (1, 4)):
        test = scipy.stats.kstest(shift[:, column], scipy.stats.uniform(-reach, 2 * reach).cdf)
        assert test.pvalue > 1e-3
    assert abs(np.corrcoef(shift.T)[0, 1]) < 0.15
    pixels = RandomShift(fraction=0.1, whole_pixels=True).draw(keys, shape)["shift"].numpy()
    offset = PadCrop(padding=3).draw(keys, shape)["offset"].numpy()
    for values, low, high in ((pixels[:, 0], -2, 2), (pixels[:, 1], -4, 4), (offset[:, 0], 0, 6)):
        occurring, counts = np.unique(values, return_counts=True)
        assert np.array_equal(occurring, np.arange(low, high + 1))
        assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_augmentations_are_converted_in_a_map_without_warnings(caplog):
    logger = logging.getLogger("tensorflow")
    logger.addHandler(caplog.handler)
    try:
        stream = tf.data.Dataset.from_tensors(RAMP).map(lambda images: RandomFlip()(images, randomness.make_key(0)))
        assert next(iter(stream)).shape == RAMP.shape
    finally:
        logger.removeHandler(caplog.handler)
    assert not caplog.records
