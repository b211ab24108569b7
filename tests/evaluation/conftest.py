"""Fixtures of the tests of features."""

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from oracles import linear_model
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.security import rehearsal


@pytest.fixture(scope="module", autouse=True)
def _without_rehearsals():
    """The tests have written their models themselves; a process for each takes seconds."""
    with mock.patch.object(rehearsal, "run", lambda *_: ""):
        yield


@pytest.fixture(scope="module")
def setting():
    """Thirty images, a linear model that classifies them, features with some zeros, and a validation split."""
    predict, images, labels, _, _ = linear_model.make(30)
    held_out = {"validation_images": images[::-1][:20].copy(), "validation_labels": labels[::-1][:20].copy()}
    kernel = tf.constant(np.random.default_rng(2).normal(size=(12, 5)), tf.float32)
    embed = lambda pixels: tf.nn.relu(tf.matmul(tf.reshape(pixels, [-1, 12]) - 0.5, kernel))  # noqa: E731
    predictor = from_function(predict, image_shape=linear_model.SHAPE, embedding=embed)
    return Setting(predictor=predictor, images=images, labels=labels, batch_size=16, **held_out)
