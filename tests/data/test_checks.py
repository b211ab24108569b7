import numpy as np
import pytest

from tfrobust.common.arrays import check_labels
from tfrobust.data.checks import check_class_names, check_images, shorten

GOOD = np.zeros((2, 3, 3, 1), np.float32)


def _with(value, dtype=np.float32):
    images = GOOD.astype(dtype)
    images[1, 0, 2, 0] = value
    return images


def test_good_images_keep_uint8_and_become_float32():
    assert check_images(GOOD.astype(np.uint8)).dtype == np.uint8
    assert check_images(_with(1.0, np.float64)).dtype == np.float32
    assert check_images(GOOD.astype(">f4")).dtype == np.dtype("<f4")


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, bool])
def test_one_hot_rows_and_columns_of_ids_are_ids(dtype):
    for labels in (np.eye(3)[[2, 0, 1]].astype(dtype), np.array([[2], [0], [1]])):
        ids = check_labels(labels, 3, 3)
        assert ids.tolist() == [2, 0, 1] and ids.dtype == np.int32


def test_class_names():
    assert check_class_names(["a", "b"], "x") == ("a", "b")


def test_shorten_keeps_both_ends():
    short = shorten("/start/" + "x" * 500 + "/end.npz", 60)
    assert len(short) <= 60 and short.startswith("/start") and short.endswith("end.npz")
