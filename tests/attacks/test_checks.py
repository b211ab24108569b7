import numpy as np
import pytest

from tfrobust.attacks import checks

IMAGES = np.full([3, 2, 2, 1], 0.5)


def test_good_inputs_come_back_in_their_types():
    assert checks.check_images(IMAGES, 0, 1).dtype == np.float32
    np.testing.assert_array_equal(checks.label_ids([2.0, 0.0, 1.0], 3), [2, 0, 1])
    np.testing.assert_array_equal(checks.label_ids(np.eye(3)[[2, 0, 1]], 3), [2, 0, 1])
    np.testing.assert_array_equal(checks.label_ids(np.array([[2], [0], [1]]), 3), [2, 0, 1])
    assert checks.check_logits(np.array([[1.0, -2.0], [0.5, 0.5]]), np.array([0, 1])) == 2


@pytest.mark.parametrize(
    "images,message",
    [
        (IMAGES[:0], "n >= 1"),
        ((IMAGES * 255).astype(np.uint8), "divide by 255"),
        (np.where(IMAGES > 0, np.nan, 0), "NaN"),
        (IMAGES * 3, r"\[1.5, 1.5\].*\[0, 1\]"),
        (IMAGES - 1, "bounds are"),
    ],
)
def test_bad_images(images, message):
    with pytest.raises(ValueError, match=message) as raised:
        checks.check_images(images, 0.0, 1.0)
    assert len(str(raised.value)) <= 300


@pytest.mark.parametrize(
    "labels,message",
    [([0, 1], "n = 3"), ([0, 1, -1], "negative"), ([0, 1, 0.5], "fractional"), (np.full([3, 2], 0.5), "one-hot")],
)
def test_bad_labels(labels, message):
    with pytest.raises(ValueError, match=message):
        checks.label_ids(labels, 3)


@pytest.mark.parametrize(
    "logits,message",
    [
        ([[0.9, 0.1], [0.0, 1.0]], r"log\(p\)"),
        ([[np.nan, 0.1], [0.0, 1.0]], "NaN"),
        ([[4.0], [2.0]], "1 classes"),
    ],
)
def test_bad_logits(logits, message):
    with pytest.raises(ValueError, match=message):
        checks.check_logits(np.array(logits), np.array([0, 1]))
