"""Divergences of predictions; what is taken for probabilities, what not, and the logits behind them."""

import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import robust as oracle
from tfrobust.ops import probabilities

LOGITS = np.random.default_rng(0).normal(0, 6, (50, 10)).astype(np.float32)
P, Q = np.random.default_rng(9).normal(size=(2, 5, 4)).astype(np.float32) * 3
UNTRAINED = np.random.default_rng(1).normal(0.2, 0.05, (50, 2)).astype(np.float32)


@pytest.mark.parametrize("outputs,kind", stored.cases(__file__, "kinds", globals(), "tables.toml")["rows"])
def test_kinds_of_outputs(outputs, kind):
    assert probabilities.kind_of_outputs(np.asarray(outputs)) == kind


def test_the_odds_of_sigmoids_are_their_logits_with_their_slopes():
    logits = tf.constant([[-60.0, -3.0, 0.0, 5.0, 15.0]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        odds = probabilities.log_odds(tf.sigmoid, logits)
    np.testing.assert_allclose(odds, logits, rtol=0.02)
    np.testing.assert_allclose(tape.gradient(odds, logits), np.ones((1, 5)), rtol=1e-3)


def test_nothing_is_infinite_and_the_largest_answer_stays_the_largest():
    answers = np.array([[0.0, 1.0, 0.5], [1e-20, 1e-25, 0.0], [1.5, 1.2, 1.0], [0.99999994, 1.0, 0.9]], np.float32)
    for inverse in probabilities.INVERSES.values():
        values = inverse(tf.identity, answers).numpy()
        assert np.all(np.isfinite(values))
        np.testing.assert_array_equal(values.argmax(axis=1), answers.argmax(axis=1))


def test_scores_that_only_looked_like_probabilities_keep_their_slope_outside_of_them():
    """Scores of a linear regression sum to 1, and leave [0, 1] inside a ball around an image where they lay in it."""
    margin = tf.constant([0.3, 0.6])
    with tf.GradientTape() as tape:
        tape.watch(margin)
        logits = probabilities.log_probabilities(lambda m: tf.stack([0.5 + m, 0.5 - m], -1), margin)
        gap = logits[:, 0] - logits[:, 1]
    np.testing.assert_allclose(logits, [np.log([0.8, 0.2]), [1.1, -0.1]], atol=1e-6)
    np.testing.assert_allclose(tape.gradient(gap, margin), [1 / 0.8 + 1 / 0.2, 2.0], rtol=1e-5)


def test_kl_matches_the_sum_over_classes_and_closed_forms_and_ignores_shifts():
    np.testing.assert_allclose(probabilities.kl_from_logits(P, Q), oracle.kl(P, Q), rtol=3e-6)
    np.testing.assert_allclose(probabilities.kl_from_logits(P, P), np.zeros(5), atol=1e-7)
    np.testing.assert_allclose(
        probabilities.kl_from_logits(P, Q + 2.5), probabilities.kl_from_logits(P, Q), rtol=1e-5, atol=1e-6
    )
    # p = (3/4, 1/4), q = (1/2, 1/2): 3/4 log 3 - log 2; the other way round: log 2 - 1/2 log 3.
    p, q = [[np.log(3.0), 0.0]], [[0.0, 0.0]]
    np.testing.assert_allclose(probabilities.kl_from_logits(p, q), [0.75 * np.log(3) - np.log(2)], rtol=1e-5)
    np.testing.assert_allclose(probabilities.kl_from_logits(q, p), [np.log(2) - 0.5 * np.log(3)], rtol=1e-5)


def test_gradient_by_both_arguments():
    """d/dq = softmax(q) - softmax(p); d/dp = p (log p/q - KL)."""
    p, q = tf.constant(P), tf.constant(Q)
    with tf.GradientTape() as tape:
        tape.watch([p, q])
        values = probabilities.kl_from_logits(p, q)
    by_p, by_q = tape.gradient(values, [p, q])
    soft_p, soft_q = tf.nn.softmax(p), tf.nn.softmax(q)
    np.testing.assert_allclose(by_q, soft_q - soft_p, atol=1e-6)
    ratio = tf.math.log(soft_p) - tf.math.log(soft_q)
    np.testing.assert_allclose(by_p, soft_p * (ratio - values[:, None]), atol=2e-6)


def test_entropy_runs_from_zero_to_log_k():
    np.testing.assert_allclose(probabilities.entropy_from_logits(tf.zeros([2, 8])), [np.log(8)] * 2, rtol=1e-6)
    np.testing.assert_allclose(probabilities.entropy_from_logits([[1e4, 0.0, 0.0]]), [0.0], atol=1e-7)
    expected = [oracle.soft_cross_entropy(oracle.softmax(row), row) for row in P]
    np.testing.assert_allclose(probabilities.entropy_from_logits(P), expected, rtol=3e-6)
