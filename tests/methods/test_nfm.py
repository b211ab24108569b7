"""Noisy Feature Mixup by loops, given the draws."""

import numpy as np

from oracles.mixing import check_stages, drawn, mixed_by_rows, mixed_entropy, staged, step, terms_of
from tfrobust.augment.mixing import FeatureNoise, Mixing
from tfrobust.methods.nfm import NFM


def test_one_drawn_stage_is_mixed_and_noised_and_the_loss_is_weighted_alike():
    check_stages(NFM)


def test_labels_are_mixed_by_the_weights_of_the_images():
    method = staged(NFM, stages=(0,), noise=FeatureNoise(additive=0.0, multiplicative=0.0))
    batch, context = step(1)
    weights, partner = drawn(method, context)
    labels = batch.labels.numpy()
    assert np.any(labels[partner] != labels)
    _, values, logits = terms_of(method, batch, context)
    np.testing.assert_allclose(values, mixed_entropy(logits, labels, weights, partner), rtol=1e-4, atol=1e-5)
    mixed = mixed_by_rows(batch.images.numpy(), weights, partner).astype(np.float32)
    np.testing.assert_allclose(logits, method(mixed), rtol=1e-3, atol=1e-4)


def test_the_noise_of_nfm_is_fresh_in_every_step():
    method = staged(NFM, stages=(0,), noise=FeatureNoise(additive=0.5))
    method.mixing = Mixing(alpha=0.0)
    batch, _ = step(0)
    logits = [terms_of(method, batch, step(number)[1])[2] for number in (0, 0, 1)]
    np.testing.assert_array_equal(logits[0], logits[1])
    assert np.abs(logits[0] - logits[2]).max() > 1e-3
