"""Stochastic models: a candidate counts if it is misclassified in enough draws."""

import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.keras.attacks import FGSM, PGD, ThreatModel, run_attack

COUNT = 600
IMAGES = np.random.default_rng(0).uniform(0.3, 0.7, [COUNT, 2, 2, 1]).astype(np.float32)
LABELS = np.zeros(COUNT, np.int32)
THREAT = ThreatModel(epsilon=0.1)


def wrong_by_chance(images):
    """Misclassified with probability 0.3, whatever the image; the gradient is 0, so that attacks stay at the image."""
    wrong = tf.cast(tf.random.uniform([tf.shape(images)[0]]) < 0.3, tf.float32)
    return tf.stack([tf.fill(tf.shape(wrong), 0.5), wrong], axis=-1) + 0.0 * tf.reduce_sum(images)


@pytest.mark.parametrize("votes,share", stored.rows(globals(), "the_share_of_wrong_points_is_that_of_the_binomial"))
def test_the_share_of_wrong_points_is_that_of_the_binomial_distribution(votes, share):
    tf.random.set_seed(1)
    result = run_attack(FGSM(THREAT), wrong_by_chance, IMAGES, LABELS, votes=votes)
    assert abs(result.success.mean() - share) <= 4 * np.sqrt(share * (1 - share) / COUNT) + 1e-3


def test_a_deterministic_model_has_the_same_result_for_more_passes():
    predict = lambda images: tf.stack([images[:, 0, 0, 0], images[:, 1, 1, 0]], axis=-1)  # noqa: E731
    one, ten = (
        run_attack(PGD(THREAT, steps=3), predict, IMAGES[:40], LABELS[:40], votes=votes) for votes in ((1, 1), (10, 5))
    )
    np.testing.assert_array_equal(one.success, ten.success)
    np.testing.assert_array_equal(one.adversarial, ten.adversarial)
    assert 0.1 < one.success.mean()
    np.testing.assert_array_equal((ten.passes - one.passes)[:, 0] % 9, 0)
    assert np.all((ten.passes - one.passes)[:, 0] >= 9)
