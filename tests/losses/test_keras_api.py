import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import stored

from oracles import contrastive as oracle
from oracles import robust
from tfrobust.adapters import losses as keras_api

GENERATOR = np.random.default_rng(6)
EMBEDDING = GENERATOR.normal(size=(6, 4)).astype(np.float32)
LABELS = np.array([0, 1, 0, 2, 1, 0])


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_supervised_contrastive_is_the_mean_over_rows(shape, dtype):
    loss = keras_api.SupervisedContrastiveLoss(temperature=0.2)
    alike = LABELS[:, None] == LABELS[None, :]
    expected = oracle.masked(EMBEDDING, EMBEDDING, alike & ~np.eye(6, dtype=bool), ~alike, 0.2, "cosine")
    labels = LABELS.reshape(shape).astype(dtype)
    np.testing.assert_allclose(loss.call(labels, EMBEDDING), expected, rtol=3e-6)
    np.testing.assert_allclose(loss(labels, EMBEDDING), expected.mean(), rtol=3e-6)
    weights = np.array([1.0, 0, 2, 0, 1, 1])
    np.testing.assert_allclose(loss(labels, EMBEDDING, weights), (weights * expected).sum() / 6, rtol=3e-6)


def test_kl_takes_logits():
    first, second = GENERATOR.normal(size=(2, 6, 3)).astype(np.float32)
    loss = keras_api.LogitsKLDivergence()
    np.testing.assert_allclose(loss(first, second), robust.kl(first, second).mean(), rtol=3e-6)


@pytest.mark.parametrize("ids", [LABELS + 2**24, 1000 * LABELS + 3 * 10**9, 7919 * LABELS - 10**12, LABELS << 61])
@pytest.mark.parametrize("dtype", [None, "float64"])
def test_large_ids_are_compared_as_integers(ids, dtype):
    loss = keras_api.SupervisedContrastiveLoss(temperature=0.2, dtype=dtype)
    expected = loss(LABELS, EMBEDDING)
    model = keras.Sequential([keras.Input(EMBEDDING.shape[1:]), keras.layers.Identity()])
    model.compile("sgd", loss)
    losses = [loss(ids, EMBEDDING), loss(ids[:, None], EMBEDDING), model.evaluate(EMBEDDING, ids, verbose=0)]
    np.testing.assert_allclose(losses, float(expected), rtol=3e-6)


def test_one_hot_labels_are_their_ids():
    loss = keras_api.SupervisedContrastiveLoss(temperature=0.2)
    np.testing.assert_array_equal(loss(np.eye(3)[LABELS], EMBEDDING), loss(LABELS, EMBEDDING))


@pytest.mark.parametrize("kind", [keras_api.SupervisedContrastiveLoss, keras_api.LogitsKLDivergence])
def test_a_file_knows_the_dtype(kind):
    loss = kind(dtype="float64", reduction="sum")
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert (again.dtype, again.reduction) == ("float64", "sum")
    keras.config.set_floatx("float16")  # a dtype that the contrastive loss refuses
    try:
        again = keras.losses.deserialize(keras.losses.serialize(kind(dtype="float32")))
    finally:
        keras.config.set_floatx("float32")
    assert again.dtype == "float32"


REPLICAS = stored.text(globals(), "replicas")


def test_two_replicas_contrast_the_whole_batch():
    done = subprocess.run([sys.executable, "-c", REPLICAS], env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
