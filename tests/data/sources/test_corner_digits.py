import numpy as np
import pytest

from tfrobust.keras.data import CornerDigits, Digits

SMALL = {"per_class": 30, "rare_share": 0.1, "balanced": 8}


@pytest.fixture(scope="module")
def dataset():
    return CornerDigits(**SMALL).load()


def _corners(images, side=7):
    """Ink in the four corner squares where no digit in the middle reaches, [n, 4]."""
    images = images.copy()
    images[:, 4:24, 4:24] = 0
    low, high = slice(side), slice(-side, None)
    squares = (images[:, rows, columns] for rows in (low, high) for columns in (low, high))
    return np.stack([square.sum((1, 2, 3)) for square in squares], axis=1)


def test_classes_are_rare_in_training_and_balanced_elsewhere(dataset):
    assert dataset.class_count == 15 and dataset.train.image_shape == (28, 28, 1)
    assert np.bincount(dataset.train.labels).tolist() == [30] * 10 + [3] * 5
    for split in (dataset.validation, dataset.test):
        assert np.bincount(split.labels).tolist() == [8] * 15


def test_a_corner_digit_stands_where_the_class_says(dataset):
    images, labels = dataset.train.arrays()
    inked = (_corners(images) > 0).sum(1)
    assert np.all(inked[labels < 5] == 0) and np.all(inked[labels >= 5] == 1)
    where = np.argmax(_corners(images[labels >= 5]), axis=1)
    assert np.all(np.bincount(where, minlength=4) > 0.15 * len(where))  # every corner


def test_the_middle_is_a_digit_of_the_source(dataset):
    """Class 10 shows zeros: enlarged by hand, one of the source's zeros is there, and of the same split."""
    import tensorflow as tf

    source = Digits(validation_size=200).load()
    for split in ("train", "test"):
        digits, digit_labels = getattr(source, split).arrays()
        images, labels = getattr(dataset, split).arrays()
        large = np.clip(tf.image.resize(digits, (20, 20), antialias=True).numpy(), 0, 1)
        for label in (3, 7, 10):
            middle = images[labels == label][0][7:21, 7:21]  # without what a corner digit covers
            gaps = np.abs(large[:, 3:17, 3:17] - middle).max((1, 2, 3))
            assert np.min(gaps) < 1e-6 and digit_labels[np.argmin(gaps)] == label % 10


@pytest.mark.parametrize("composition", ["maximum", "add", "replace"])
def test_ink_is_put_together(composition):
    """Digits as large as the canvas overlap everywhere."""
    source = CornerDigits(canvas=8, centre=8, corner=8, composition=composition, **SMALL)
    middle, corner = np.full((8, 8, 1), 0.7, np.float32), np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8, 1)
    image = middle.copy()
    source._paste(image, corner, 0, 1)
    expected = {"maximum": np.maximum(middle, corner), "add": np.minimum(middle + corner, 1), "replace": corner}
    np.testing.assert_array_equal(image, expected[composition])


def test_draws_follow_from_the_seed_and_the_settings_alone():
    tiny = {"source": Digits(), "per_class": 2, "rare_share": 0.5, "balanced": 1}  # a source without validation
    changes = ({}, {}, {"split_seed": 2}, {"margin": 1})
    drawn = [CornerDigits(**{"split_seed": 1, **tiny, **change}).load() for change in changes]
    first, again, *changed = (dataset.test.fingerprint for dataset in drawn)
    assert first == again and first not in changed
    assert len(drawn[0].validation) == 0 and len(drawn[0].test) == 15
