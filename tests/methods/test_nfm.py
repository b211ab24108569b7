"""Noisy Feature Mixup by loops, given the draws."""

import numpy as np

from oracles import tiny_network
from oracles.mixing import Staged, check_refusals, check_stages, staged, step, terms_of
from tfrobust.augment.mixing import FeatureNoise, Mixing
from tfrobust.methods.nfm import NFM


def test_one_drawn_stage_is_mixed_and_noised_and_the_loss_is_weighted_alike():
    check_stages(NFM)


def test_the_noise_of_nfm_is_fresh_in_every_step():
    method = staged(NFM, stages=(0,), noise=FeatureNoise(additive=0.5))
    method.mixing = Mixing(alpha=0.0)
    batch, _ = step(0)
    logits = [terms_of(method, batch, step(number)[1])[2] for number in (0, 0, 1)]
    np.testing.assert_array_equal(logits[0], logits[1])
    assert np.abs(logits[0] - logits[2]).max() > 1e-3


def test_what_cannot_be_is_named():
    check_refusals(NFM)


def test_the_defaults_are_the_papers():
    method = NFM(Staged(), tiny_network.parts()[1], stages=(0, 1, 2))
    assert method.mixing.alpha == 1.0
    assert method.noise == FeatureNoise(additive=0.4, multiplicative=0.2, sparsity=0.0, scale=(2.0, 5.0))
