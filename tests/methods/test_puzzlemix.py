"""Puzzle Mix as a method: saliency by hand, the puzzle of it, the weighted loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from oracles import tiny_network
from oracles.mixing import GROUP, drawn, mixed_entropy, step, terms_of
from tfrobust.augment.mixing import Mix, Mixing
from tfrobust.keras.methods import Puzzle, PuzzleMix
from tfrobust.models.heads.linear import LinearHead
from tfrobust.ops import randomness

SQUARE = (8, 8, 1)


def puzzlemix(**keywords):
    """Puzzle Mix over the tiny network, for images that blocks fit into; unsure: its gradients are exact in float32."""
    first, last = (keras.initializers.RandomNormal(stddev=0.5, seed=seed) for seed in (0, 1))
    dense = keras.layers.Dense(5, activation="tanh", kernel_initializer=first)
    encoder = keras.Sequential([keras.layers.Flatten(), dense])
    method = PuzzleMix(encoder, LinearHead(3, kernel_initializer=last), **keywords)
    method.build((None, *SQUARE))
    return method


def square_step(number):
    batch, context = step(number)
    return batch._replace(images=tf.random.stateless_uniform([8, *SQUARE], [number, 2])), context


@pytest.mark.parametrize("per_example", [False, True])
def test_puzzlemix_mixes_by_its_saliency_and_weighs_by_the_mask(per_example):
    method = puzzlemix(mixing=Mixing(group=GROUP, per_example=per_example), puzzle=Puzzle(blocks=(2, 4)))
    shares = []
    for number in range(4):
        batch, context = square_step(number)
        weights, partner = drawn(method, context)
        labels = batch.labels.numpy()
        saliency = np.abs(tiny_network.input_gradient(method, batch.images, np.eye(3)[labels]))[..., 0]
        mix = Mix(tf.constant(weights, tf.float32), tf.constant(partner))
        key = randomness.fold(context.key, "puzzle")
        expected, share = method.puzzle(batch.images, tf.constant(saliency, tf.float32), mix, key)
        views, values, logits = terms_of(method, batch, context)
        np.testing.assert_allclose(views["mixed"], expected, atol=1e-6)
        np.testing.assert_allclose(logits, tiny_network.forward(method, views["mixed"])[1], rtol=1e-4, atol=1e-4)
        expected = mixed_entropy(logits, labels, share.numpy(), partner)
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
        shares += share.numpy().tolist()
    assert len(set(shares)) > 5


def test_the_saliency_is_that_of_the_network_as_it_is_served():
    method, trained = puzzlemix(), []
    propagate = method.propagate
    method.propagate = lambda images, training=True: trained.append(training) or propagate(images, training=training)
    method.puzzle = lambda images, saliency, mix, key: (images, 1.0)
    method.make_views(*square_step(0))
    assert trained == [False]


def test_the_released_loss_of_puzzlemix_is_binary_cross_entropy_over_the_classes():
    method = puzzlemix(objective="binary_cross_entropy", mixing=Mixing(group=GROUP))
    batch, context = square_step(1)
    views, values, logits = terms_of(method, batch, context)
    _, partner = drawn(method, context)
    share = views["weight"].numpy()[:, None]
    one_hot = np.eye(3)[batch.labels.numpy()]
    targets = share * one_hot + (1 - share) * one_hot[partner]
    p = tiny_network.probabilities(logits.astype(np.float64))
    expected = -(targets * np.log(p) + (1 - targets) * np.log(1 - p)).mean(axis=-1)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)


def test_a_confident_model_in_float16_has_a_saliency():
    method, images, labels, expected = tiny_network.confident(PuzzleMix, mixing=Mixing(group=3))
    seen = []
    method.puzzle = lambda images, saliency, mix, key: seen.append(saliency) or (images, 1.0)
    batch, context = tiny_network.batch()
    method.make_views(batch._replace(images=images, labels=labels), context)
    largest = expected.max(axis=(1, 2, 3), keepdims=True)
    np.testing.assert_allclose(seen[0], (expected / largest)[..., 0], atol=0.01)
