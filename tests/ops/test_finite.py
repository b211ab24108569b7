import keras
import numpy as np
import pytest
import stored
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


@pytest.mark.parametrize("stream", stored.rows(globals(), "streams_are_their_arrays"))
def test_streams_are_their_arrays(stream):
    for array, expected in zip(finite.arrays_of(stream), (IMAGES, LABELS), strict=True):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("arguments, message", stored.rows(globals(), "what_is_no_finite_set_of_batches_is_refused"))
def test_what_is_no_finite_set_of_batches_is_refused(arguments, message, monkeypatch):
    monkeypatch.setattr(finite, "_MOST_BYTES", 10 * IMAGES.nbytes)
    with pytest.raises(InputError, match=f"^It .*{message}"):
        finite.arrays_of(*arguments, caller="It")


@pytest.mark.parametrize("stream", [PAIRS.batch(4), Batches()], ids=["dataset", "PyDataset"])
def test_a_stream_of_known_length_may_be_large(stream, monkeypatch):
    monkeypatch.setattr(finite, "_MOST_BYTES", IMAGES.nbytes // 2)
    np.testing.assert_array_equal(finite.arrays_of(stream)[0], IMAGES)
