import sys

import numpy as np
import pytest

from tfrobust.data.sources import digits
from tfrobust.data.sources.digits import Digits, read_digits


def test_equals_scikit_learn():
    from sklearn.datasets import load_digits

    expected = load_digits()
    images, labels = read_digits()
    assert images.shape == (1797, 8, 8, 1) and images.dtype == np.float32
    assert np.array_equal(images[..., 0], expected.images / 16)
    assert np.array_equal(labels, expected.target)


def test_reading_does_not_import_sklearn_datasets(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)  # an import would raise
    assert len(read_digits()[1]) == 1797


def test_split_sizes_and_strata():
    data = Digits(validation_size=100).load()
    assert data.sizes == {"train": 1337, "validation": 100, "test": 360}
    assert data.class_names == tuple("0123456789") and data.image_shape == (8, 8, 1)
    shares = np.bincount(read_digits()[1]) / 1797
    assert np.all(np.abs(np.bincount(data.test.labels) - 360 * shares) < 1)
    assert Digits().load().sizes == {"train": 1437, "validation": 0, "test": 360}


def test_test_split_is_pinned():
    """Published numbers rest on this split: whoever changes it must say so in CHANGELOG."""
    plain = Digits().load()
    assert plain.fingerprint == "05e71b901bd5037ae417748ce79602b1d19b066fe9bc54618a8ce0950e554b57"
    assert Digits(validation_size=0.1).load().test.fingerprint == plain.test.fingerprint
    assert Digits(split_seed=1).load().test.fingerprint != plain.test.fingerprint


def _rows(examples):
    return [image.tobytes() for image in examples.arrays()[0]]


def test_splits_and_folds_are_disjoint_and_complete():
    data = Digits(validation_size=0.2, split_seed=5).load()
    rows = _rows(data.train) + _rows(data.validation) + _rows(data.test)
    assert sorted(rows) == sorted(image.tobytes() for image in read_digits()[0])
    folds = [Digits(fold=fold, validation_size=50).load() for fold in range(5)]
    tested = [row for data in folds for row in _rows(data.test)]
    assert sorted(tested) == sorted(image.tobytes() for image in read_digits()[0])
    assert [data.sizes["test"] for data in folds] == [360, 360, 359, 359, 359]
    assert all(sum(data.sizes.values()) == 1797 for data in folds)


def test_missing_scikit_learn_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(digits.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install scikit-learn"):
        Digits().load()
