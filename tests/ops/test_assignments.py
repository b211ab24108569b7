"""Sinkhorn's assignments beside the listing of the paper in float64, and the entropy of their mean."""

import numpy as np
import pytest
import stored
import tensorflow as tf
from scipy.special import softmax

from oracles import momentum as oracle
from tfrobust.ops import assignments

SCORES = np.array([[0.9, 0.1, -0.3], [0.2, 0.8, 0.1], [0.7, 0.6, -0.2], [-0.1, 0.3, 0.5]])
# Recorded in float64 with the released arithmetic, at temperature 0.05 and 3 iterations.
CODES = stored.table(globals(), "codes")


def test_codes_beside_recorded_ones():
    np.testing.assert_allclose(assignments.sinkhorn(tf.constant(SCORES)), CODES, atol=2e-6)


@pytest.mark.parametrize(("temperature", "iterations"), [(0.05, 3), (0.5, 1), (1.0, 30), (0.1, 0)])
def test_codes_beside_the_listing(temperature, iterations):
    scores = np.random.default_rng(0).uniform(-1, 1, (8, 5))
    codes = assignments.sinkhorn(tf.constant(scores), temperature=temperature, iterations=iterations).numpy()
    expected = oracle.sinkhorn(scores, temperature, iterations) if iterations else softmax(scores / temperature, -1)
    np.testing.assert_allclose(codes, expected, atol=1e-5)
    np.testing.assert_allclose(codes.sum(axis=1), 1.0, rtol=1e-5)
    if iterations == 30:
        np.testing.assert_allclose(codes.sum(axis=0), 8 / 5, rtol=1e-4)


def test_weights_count_rows_and_leave_rows_out():
    scores = np.random.default_rng(1).uniform(-1, 1, (6, 4)).astype(np.float32)
    twice = np.concatenate([scores, scores[:2]])
    weights = np.array([2, 2, 1, 1, 1, 1], np.float32)
    weighted = assignments.sinkhorn(tf.constant(scores), weights=tf.constant(weights))
    np.testing.assert_allclose(weighted, assignments.sinkhorn(tf.constant(twice))[:6], atol=1e-5)
    some = assignments.sinkhorn(tf.constant(scores), weights=tf.constant([0.0, 0, 1, 1, 1, 1]))
    np.testing.assert_allclose(some[2:], assignments.sinkhorn(tf.constant(scores[2:])), atol=1e-5)


def test_scores_of_any_size_are_finite_and_get_no_gradient():
    scores = tf.constant([[1e4, 0.0], [1e4, -1e4], [0.0, 1e3]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        codes = assignments.sinkhorn(scores)
    assert np.all(np.isfinite(codes)) and tape.gradient(codes, scores) is None


def test_the_entropy_of_the_mean_assignment():
    even, concentrated = tf.eye(4), tf.one_hot([1, 1, 1, 1], 4)
    assert float(assignments.mean_entropy([even])) == pytest.approx(1.0)
    assert float(assignments.mean_entropy([concentrated, concentrated])) == pytest.approx(0.0)
    # (5/8, 1/8, 1/8, 1/8): three quarters of one, a quarter of all.
    p = np.array([5, 1, 1, 1]) / 8
    entropy = float(assignments.mean_entropy([tf.one_hot([0, 0, 0, 0], 4), even]))
    assert entropy == pytest.approx(-(p * np.log(p)).sum() / np.log(4), rel=1e-5)
