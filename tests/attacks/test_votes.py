"""Stochastic models: a candidate counts if it is misclassified in enough draws."""

import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles.chance import IMAGES, LABELS, deviation, fixed, wrong_by_chance
from tfrobust.attacks.shared import engine
from tfrobust.attacks.shared.goal import Goal
from tfrobust.keras.attacks import DDN, FGSM, FMN, PGD, ThreatModel, run_attack

THREAT = ThreatModel(epsilon=0.1)
L2 = ThreatModel(norm="l2", epsilon=0.1)


@pytest.mark.parametrize("votes,share", stored.rows(globals(), "the_share_of_wrong_points_is_that_of_the_binomial"))
def test_the_share_of_wrong_points_is_that_of_the_binomial_distribution(votes, share):
    tf.random.set_seed(1)
    result = run_attack(FGSM(THREAT), wrong_by_chance, IMAGES, LABELS, votes=votes)
    assert abs(result.success.mean() - share) <= deviation(share)


def test_a_deterministic_model_has_the_same_result_for_more_passes():
    one, ten = (
        run_attack(PGD(THREAT, steps=3), fixed, IMAGES[:40], LABELS[:40], votes=votes) for votes in ((1, 1), (10, 5))
    )
    np.testing.assert_array_equal(one.success, ten.success)
    np.testing.assert_array_equal(one.adversarial, ten.adversarial)
    assert 0.1 < one.success.mean()
    np.testing.assert_array_equal((ten.passes - one.passes)[:, 0] % 9, 0)
    assert np.all((ten.passes - one.passes)[:, 0] >= 9)


@pytest.mark.parametrize("attack", [FMN(L2, steps=30), DDN(L2, steps=30, first_radius=0.1)], ids=lambda it: it.name)
def test_a_nearest_point_that_is_misclassified_by_chance_is_moved_until_the_votes_agree(attack):
    """Noise of 1/50 of the logits: the nearest point of a hundred tries is on the right side of the boundary."""
    images = np.random.default_rng(0).uniform(0.45, 0.55, [40, 8]).astype(np.float32).reshape(40, 2, 2, 2)

    def score(inputs):
        return tf.reduce_sum(inputs - 0.5, axis=[1, 2, 3])

    def noisy(inputs):
        height = score(inputs) + 0.02 * tf.random.normal(tf.shape(inputs)[:1])
        return tf.stack([tf.zeros_like(height), height], axis=1)

    truth = np.abs(score(images).numpy()) / np.sqrt(8)
    tf.random.set_seed(1)
    result = run_attack(attack, noisy, images, np.int32(score(images).numpy() > 0), votes=(10, 5))
    assert result.success.all()
    far = truth > 0.02  # beyond the noise
    assert far.sum() > 15
    np.testing.assert_array_less(result.distance[far], 2 * truth[far] + 0.02)


def test_a_nearest_point_that_another_rounding_puts_before_the_boundary_is_moved_over_it():
    images = np.full([4, 1, 1, 2], 0.5, np.float32)
    far = np.array([0.1, 0.1, 0.0, -0.1]).reshape(4, 1, 1, 1) * [0.0, 1.0]
    predict = lambda inputs: inputs[:, 0, 0] - [0.3995, 0.5]  # noqa: E731
    goal, candidates = Goal(tf.constant([0, 1, 0, 1])), tf.constant(images + far, tf.float32)
    for attack, expected in ((FMN(L2), [True, True, False, True]), (FGSM(L2), [False, True, False, True])):
        _, reached, distance, _ = engine.verify(attack, predict, tf.constant(images), goal, candidates)
        assert reached.numpy().tolist() == expected
        np.testing.assert_allclose(distance, [0.102 * expected[0], 0.1, 0.0, 0.1], rtol=1e-5)


def test_an_input_without_a_point_is_not_tried_again_until_chance_misclassifies_it():
    images, draws = tf.fill([2, 1, 1, 2], 0.5), []

    def right_once(inputs):
        draws.append(inputs)
        return tf.constant([[1.0, 0.0], [1.0, 0.0]]) * (1.0 if len(draws) == 1 else -1.0)

    candidates = images + tf.reshape([0.0, 0.1], [2, 1, 1, 1])
    _, reached, *_ = engine.verify(FMN(L2), right_once, images, Goal(tf.constant([0, 0])), candidates)
    assert reached.numpy().tolist() == [False, True]
