import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import finite

IMAGES, LABELS = np.random.default_rng(0).random((10, 4, 4, 1), np.float32), np.arange(10) % 3
PAIRS = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS))
NAMED = tf.data.Dataset.from_tensor_slices({"image": IMAGES, "label": LABELS, "id": LABELS})


class Batches(keras.utils.PyDataset):
    def __init__(self, size=4, count=3):
        super().__init__()
        self.size, self.count = size, count

    @property
    def num_batches(self):
        return self.count

    def __getitem__(self, number):
        rows = slice(number * self.size, (number + 1) * self.size)
        return IMAGES[rows], LABELS[rows]


@pytest.mark.parametrize(
    "stream",
    [
        PAIRS.batch(4),
        NAMED.batch(3),
        PAIRS.batch(4).map(lambda x, y: ({"images": x}, y, tf.ones_like(y))),
        PAIRS.batch(5).repeat().take(2),
        PAIRS.batch(4).filter(lambda x, y: True),
        Batches(),
    ],
)
def test_streams_are_their_arrays(stream):
    for array, expected in zip(finite.arrays_of(stream), (IMAGES, LABELS), strict=True):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((PAIRS.batch(4).repeat(),), "needs a data set that ends"),
        ((PAIRS.batch(4).repeat().filter(lambda x, y: True),), "without end: call .take"),
        ((Batches(count=None),), "needs a data set that ends"),
        ((PAIRS,), "got single examples: call .batch"),
        ((NAMED,), "got single examples: call .batch"),
        ((PAIRS.take(0).batch(2),), "without examples"),
        ((Batches(count=0),), "without examples"),
        ((PAIRS.batch(4).map(lambda x, y: x),), r"batches \(images, labels\) or dicts .* got ndarray"),
        ((PAIRS.batch(4).map(lambda x, y: ((x, x), y)),), r"batches \(images, labels\)"),
        (
            (NAMED.batch(4).map(lambda element: {"pixels": element["image"], "label": element["label"]}),),
            "got .'label', 'pixels'.",
        ),
        ((IMAGES,), "takes labels with arrays"),
        ((PAIRS.batch(4), LABELS), "got labels twice"),
    ],
)
def test_what_is_no_finite_set_of_batches_is_refused(arguments, message, monkeypatch):
    monkeypatch.setattr(finite, "_MOST_BYTES", 10 * IMAGES.nbytes)
    with pytest.raises(InputError, match=f"^It .*{message}"):
        finite.arrays_of(*arguments, caller="It")
