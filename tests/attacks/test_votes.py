"""Stochastic models: a candidate counts if it is misclassified in enough draws."""

import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles.chance import IMAGES, LABELS, deviation, fixed, wrong_by_chance
from tfrobust.keras.attacks import FGSM, PGD, ThreatModel, run_attack

THREAT = ThreatModel(epsilon=0.1)


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
