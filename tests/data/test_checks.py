import numpy as np
import pytest

from tfrobust.common.arrays import check_labels
from tfrobust.data.checks import check_class_names, check_images, shorten

GOOD = np.zeros((2, 3, 3, 1), np.float32)


def _with(value, dtype=np.float32):
    images = GOOD.astype(dtype)
    images[1, 0, 2, 0] = value
    return images


@pytest.mark.parametrize(
    "images, words",
    [
        (GOOD[..., 0], "shape \\[2, 3, 3\\].*channel axis"),
        (GOOD[:, :0], "no pixels"),
        (GOOD.astype(np.int64), "int64"),
        (_with(np.nan), "image 1 has a pixel of nan"),
        (_with(np.inf), "image 1 has a pixel of inf"),
        (_with(-0.01), "image 1 has a pixel of -0.01; .*clip rounding"),
        (_with(255.0), "pixel of 255.*divide bytes by 255"),
        (np.array([[None]]), "shape"),
    ],
)
def test_bad_images(images, words):
    with pytest.raises(ValueError, match=words) as caught:
        check_images(images, "mine.npz")
    assert str(caught.value).startswith("mine.npz") and len(str(caught.value)) <= 300


def test_good_images_keep_uint8_and_become_float32():
    assert check_images(GOOD.astype(np.uint8)).dtype == np.uint8
    assert check_images(_with(1.0, np.float64)).dtype == np.float32
    assert check_images(GOOD.astype(">f4")).dtype == np.dtype("<f4")


@pytest.mark.parametrize(
    "labels, words",
    [
        ([0, 1, 1], "3 labels for 2 examples"),
        ([0, 3], "label 3 of example 1 is not a class id; ids are 0 to 2"),
        ([-1, 0], "label -1 of example 0"),
        ([0.0, 1.0], "float64"),
        ([[0, 1], [1, 1]], "one-hot"),
        ([[0.5, 0.5], [1, 0]], "one-hot"),
        ([["a", "b"], ["b", "a"]], "one-hot"),
        ([[[0, 1]], [[1, 0]]], "shape"),
        ([[0, 0, 0, 1], [1, 0, 0, 0]], "label 3 of example 0 is not a class id"),
        ([True, False], "bool"),
    ],
)
def test_bad_labels(labels, words):
    with pytest.raises(ValueError, match=words):
        check_labels(np.array(labels), 2, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, bool])
def test_one_hot_rows_and_columns_of_ids_are_ids(dtype):
    for labels in (np.eye(3)[[2, 0, 1]].astype(dtype), np.array([[2], [0], [1]])):
        ids = check_labels(labels, 3, 3)
        assert ids.tolist() == [2, 0, 1] and ids.dtype == np.int32


def test_a_negative_label_where_the_number_of_classes_is_open():
    with pytest.raises(ValueError, match="label -1 of example 0 is not a class id"):
        check_labels(np.array([-1, 0]), 2)


def test_class_names():
    assert check_class_names(["a", "b"], "x") == ("a", "b")
    with pytest.raises(ValueError, match="at least 2"):
        check_class_names(["a"], "x")
    with pytest.raises(ValueError, match="twice"):
        check_class_names(["a", "a"], "x")


def test_shorten_keeps_both_ends():
    short = shorten("/start/" + "x" * 500 + "/end.npz", 60)
    assert len(short) <= 60 and short.startswith("/start") and short.endswith("end.npz")
