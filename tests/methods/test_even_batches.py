"""Batches of `fit` that replicas share equally: what is cut, what is said, what is refused."""

import logging

import numpy as np
import pytest
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.methods.shared.even_batches import of_fit

X, Y = np.arange(11.0, dtype=np.float32)[:, None], np.arange(11)


def batches(**arguments):
    """Return the first column of each batch, and the shapes of its parts."""
    shared = of_fit(arguments, replicas=2)["x"]
    rows = [batch if isinstance(batch, tuple) else (batch,) for batch in shared]
    return [row[0].numpy()[:, 0].astype(int).tolist() for row in rows], [[len(part) for part in row] for row in rows]


@pytest.mark.parametrize(("count", "expected"), [(8, [4, 4]), (9, [4, 4]), (10, [4, 4, 2]), (11, [4, 4, 2])])
def test_arrays_lose_the_rows_that_do_not_divide(count, expected, caplog):
    with caplog.at_level(logging.WARNING, "tfrobust"):
        rows, sizes = batches(x=X[:count], y=Y[:count], batch_size=4, shuffle=False)
    assert [len(row) for row in rows] == expected and sizes == [[size] * 2 for size in expected]
    assert sum(rows, []) == list(range(sum(expected)))
    assert (f"{count % 2} of {count} examples are left out of every epoch" in caplog.text) == bool(count % 2)


def test_a_data_set_of_dynamic_batches_is_cut_and_one_of_static_batches_is_kept():
    dataset = tf.data.Dataset.from_tensor_slices((X[:9], Y[:9], np.ones(9)))
    assert batches(x=dataset.batch(4))[1] == [[4, 4, 4]] * 2
    full_batches = dataset.batch(4, drop_remainder=True)
    assert of_fit({"x": full_batches}, 2)["x"] is full_batches
    with pytest.raises(InputError, match="A batch of 3 examples does not divide among 2 replicas"):
        of_fit({"x": dataset.batch(3, drop_remainder=True)}, 2)


def test_shuffling_leaves_out_other_examples_in_every_epoch():
    tf.random.set_seed(0)
    shared = of_fit({"x": X, "batch_size": 4}, 2)["x"]
    left_out = {55 - int(sum(images.numpy().sum() for (images,) in shared)) for _ in range(12)}
    assert len(left_out) > 3 and shared.cardinality() == 3


def test_further_arguments_of_fit_keep_their_meaning():
    inputs = {"images": X, "other": X + 1}
    shared = of_fit({"x": inputs, "y": Y, "sample_weight": X[:, 0], "validation_split": 0.3, "epochs": 2}, 2)
    (images, labels, weight), held_out = next(iter(shared["x"])), shared["validation_data"]
    assert len(images["other"]) == len(labels) == len(weight) == 6 and shared["epochs"] == 2
    np.testing.assert_array_equal(held_out[0]["other"], X[7:] + 1)
    np.testing.assert_array_equal(held_out[1], Y[7:])
    assert not {"y", "batch_size", "validation_split"} & set(shared)
    # Keras takes the data, and no share of the training.
    both = of_fit({"x": X, "y": Y, "validation_split": 0.3, "validation_data": (X, Y)}, 2)
    assert both["validation_data"][0] is X and sum(len(rows) for rows, _ in both["x"]) == 10
    stream = iter([X])
    assert of_fit({"x": stream}, 2)["x"] is stream
    for data in ({"x": X, "batch_size": 5}, {"x": X[:1]}):
        with pytest.raises(InputError, match="not divide among 2 replicas"):
            of_fit(data, 2)
