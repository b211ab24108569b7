"""What is taken for probabilities, what not, and the logits behind them."""

import numpy as np
import pytest
import tensorflow as tf

from tfrobust.ops import probabilities

LOGITS = np.random.default_rng(0).normal(0, 6, (50, 10)).astype(np.float32)
UNTRAINED = np.random.default_rng(1).normal(0.2, 0.05, (50, 2)).astype(np.float32)


@pytest.mark.parametrize(
    "answers,kind",
    [
        (np.array([[0.25, 0.75], [1.0, 0.0]]), "softmax"),
        (tf.nn.softmax(LOGITS), "softmax"),
        (tf.cast(tf.nn.softmax(tf.cast(LOGITS, tf.bfloat16)), tf.float32), "softmax"),
        (tf.cast(tf.nn.softmax(tf.cast(LOGITS, tf.float16)), tf.float32), "softmax"),
        (tf.sigmoid(LOGITS), "sigmoid"),
        (tf.cast(tf.sigmoid(tf.cast(LOGITS, tf.bfloat16)), tf.float32), "sigmoid"),
        (LOGITS, "logits"),
        (np.array([[1.5, -0.5], [0.5, 0.5]]), "logits"),
        (np.array([[np.nan, 1.0], [0.5, 0.5]]), "logits"),
        # Logits stopped at 0 but not at 1, however many are near both; or small ones that are positive by chance.
        (np.maximum(LOGITS / 6, 0), "logits"),
        (UNTRAINED, "unclear"),
        (np.zeros((9, 4)), "unclear"),
        (tf.sigmoid(LOGITS / 100), "unclear"),
        (np.array([[1.0, 0.0], [0.5, 0.6]]), "unclear"),  # too few images to tell
        # One in a hundred off is no rounding of float32.
        (np.array([[0.301, 0.705], [0.3, 0.7]], np.float32), "unclear"),
    ],
)
def test_kinds_of_answers(answers, kind):
    assert probabilities.kind_of_answers(np.asarray(answers)) == kind


def test_the_odds_of_sigmoids_are_their_logits_with_their_slopes():
    logits = tf.constant([[-60.0, -3.0, 0.0, 5.0, 15.0]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        found = probabilities.log_odds(tf.sigmoid, logits)
    np.testing.assert_allclose(found, logits, rtol=0.02)
    np.testing.assert_allclose(tape.gradient(found, logits), np.ones((1, 5)), rtol=1e-3)


def test_nothing_is_infinite_and_the_largest_answer_stays_the_largest():
    answers = np.array([[0.0, 1.0, 0.5], [1e-20, 1e-25, 0.0], [1.5, 1.2, 1.0], [0.99999994, 1.0, 0.9]], np.float32)
    for inverse in probabilities.INVERSES.values():
        found = inverse(tf.identity, answers).numpy()
        assert np.all(np.isfinite(found))
        np.testing.assert_array_equal(found.argmax(axis=1), answers.argmax(axis=1))
