"""CutMix by loops, given the draws."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from oracles import tiny_network
from oracles.mixing import GROUP, drawn, mixed_entropy, step, terms_of
from tfrobust.keras.methods import CutMix, Mixing

LARGE = (10, 6, 1)


def cutmix(**keywords):
    """CutMix over the tiny network, for images that a box fits into."""
    encoder = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(5, activation="tanh")])
    method = CutMix(encoder, tiny_network.parts()[1], **keywords)
    method.build((None, *LARGE))
    return method


def pasted(images, mixed, partner):
    """Return the pixels of the partner in each row that has one, bool [n, h, w]; all others must be the row's own."""
    masks = []
    for row, other in enumerate(partner):
        if row != other:
            native, foreign = (np.all(mixed[row] == images[position], axis=-1) for position in (row, other))
            assert np.all(native ^ foreign)
            masks.append(foreign)
    return np.stack(masks)


@pytest.mark.parametrize("per_example", [False, True])
def test_cutmix_pastes_a_box_and_weighs_by_its_area(per_example):
    method = cutmix(mixing=Mixing(group=GROUP, per_example=per_example))
    images = np.random.default_rng(5).uniform(size=(8, *LARGE)).astype(np.float32)
    sizes = []
    for number in range(6):
        batch, context = step(number)
        batch = batch._replace(images=tf.constant(images))
        _, partner = drawn(method, context)
        if np.all(partner == np.arange(8)):
            continue
        views, values, logits = terms_of(method, batch, context)
        boxes = pasted(images, views["mixed"].numpy(), partner)
        for box in boxes:  # a box is the rows it touches times the columns it touches
            np.testing.assert_array_equal(box, np.outer(box.any(axis=1), box.any(axis=0)))
        if not per_example:
            assert np.all(boxes == boxes[0])
        weights = np.ones(8)
        weights[partner != np.arange(8)] = 1 - boxes.mean(axis=(1, 2))
        sizes += boxes.mean(axis=(1, 2)).tolist()
        expected = mixed_entropy(logits, batch.labels.numpy(), weights, partner)
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(logits, tiny_network.forward(method, views["mixed"])[1], rtol=1e-4, atol=1e-4)
    assert len(np.unique(sizes)) > 3 and max(sizes) > 0.25


@pytest.mark.parametrize("per_example", [False, True])
def test_cutmix_cuts_with_its_probability(per_example):
    # lambda is close to 1/2: no box is empty but where nothing is to be cut.
    method = cutmix(probability=0.3, mixing=Mixing(alpha=50.0, per_example=per_example, group=GROUP))
    images = tf.random.stateless_uniform([64, *LARGE], [1, 2])
    cut = []
    for number in range(10 if per_example else 100):
        batch, context = step(number, 64)
        batch = batch._replace(images=images)
        mixed = method.make_views(batch, context)["mixed"].numpy()
        rows = np.any(mixed != images.numpy(), axis=(1, 2, 3))[drawn(method, context, 64)[1] != np.arange(64)]
        assert per_example or len(set(rows)) == 1
        cut.append(rows.mean())
    assert np.mean(cut) == pytest.approx(0.3, abs=0.1 if per_example else 0.17)


# ------------------------------------------------------------------------------------------------- at the stages
