"""Noisy Feature Mixup by loops, given the draws."""

import numpy as np

from oracles.mixing import check_stages, staged, step, terms_of
from tfrobust.keras.methods import NFM, FeatureNoise, Mixing


def test_one_drawn_stage_is_mixed_and_noised_and_the_loss_is_weighted_alike():
    check_stages(NFM)


def test_the_noise_of_nfm_is_fresh_in_every_step():
    method = staged(NFM, stages=(0,), noise=FeatureNoise(additive=0.5))
    method.mixing = Mixing(alpha=0.0)
    batch, _ = step(0)
    logits = [terms_of(method, batch, step(number)[1])[2] for number in (0, 0, 1)]
    np.testing.assert_array_equal(logits[0], logits[1])
    assert np.abs(logits[0] - logits[2]).max() > 1e-3
