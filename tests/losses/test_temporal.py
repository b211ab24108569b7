"""The losses of TCLR against loops in float64, and NT-Xent of SimCLR as the case of two sets."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from oracles import temporal as oracle
from tfrobust.keras.losses import PairMasks, global_local, local_local, masked_contrastive, paired_instances

VECTORS = np.random.default_rng(0).normal(size=(5, 4, 6)).astype(np.float32)
IDENTITY = np.eye(5, dtype=bool)
ALL = [pair for pair in itertools.product(range(4), repeat=2) if pair[0] != pair[1]]


@pytest.mark.parametrize("temperature", [0.1, 0.7])
@pytest.mark.parametrize("pairs", [None, [(0, 2), (2, 0), (1, 3), (3, 1)]])
def test_instances_are_the_mean_over_pairs_of_sets(temperature, pairs):
    mask = None
    if pairs is not None:
        mask = np.zeros((4, 4), bool)
        mask[tuple(zip(*pairs, strict=True))] = True
    losses = paired_instances(VECTORS, VECTORS, IDENTITY, temperature=temperature, pairs=mask)
    np.testing.assert_allclose(losses, oracle.instances(VECTORS, temperature, pairs or ALL), rtol=1e-5)
    # The rows of one of several replicas, whose keys are in another order.
    order = [3, 0, 4, 1, 2]
    part = paired_instances(VECTORS[1:3], VECTORS[order], IDENTITY[1:3][:, order], temperature=temperature, pairs=mask)
    np.testing.assert_allclose(part, losses[1:3], rtol=1e-5)


def test_two_sets_give_nt_xent():
    views = VECTORS[:, :2]
    stacked = views.transpose(1, 0, 2).reshape(10, 6)
    positive = np.roll(np.eye(10, dtype=bool), 5, axis=1)
    masks = PairMasks(tf.constant(positive), tf.constant(~positive & ~np.eye(10, dtype=bool)))
    anchor_losses = masked_contrastive(stacked, stacked, masks, temperature=0.5).numpy().reshape(2, 5)
    losses = paired_instances(views, views, IDENTITY, temperature=0.5)
    np.testing.assert_allclose(losses, anchor_losses.mean(axis=0), rtol=1e-5)


@pytest.mark.parametrize("temperature", [0.1, 0.7])
def test_parts_of_one_video(temperature):
    first, second = VECTORS, np.random.default_rng(1).normal(size=VECTORS.shape).astype(np.float32)
    for function, literal in ((local_local, oracle.local_local), (global_local, oracle.global_local)):
        expected = [literal(part, other, temperature) for part, other in zip(first, second, strict=True)]
        np.testing.assert_allclose(function(first, second, temperature=temperature), expected, rtol=1e-5)
        # No other video enters.
        np.testing.assert_allclose(function(first[:1], second[:1], temperature=temperature), expected[:1], rtol=1e-5)


def test_gradients_are_finite_for_equal_and_zero_vectors():
    for vectors in (tf.zeros([3, 2, 4]), tf.ones([3, 2, 4])):
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            total = tf.reduce_sum(paired_instances(vectors, vectors, IDENTITY[:3, :3], temperature=0.1))
            total += tf.reduce_sum(local_local(vectors, vectors, temperature=0.1))
            total += tf.reduce_sum(global_local(vectors, vectors, temperature=0.1))
        assert np.isfinite(total) and np.isfinite(tape.gradient(total, vectors)).all()
