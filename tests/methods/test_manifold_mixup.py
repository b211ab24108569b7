"""Manifold Mixup by loops, given the draws."""

import numpy as np
import pytest

from oracles import tiny_network
from oracles.mixing import check_stages, drawn, staged, step, terms_of
from tfrobust.methods.manifold_mixup import ManifoldMixup


def test_one_drawn_stage_is_mixed_and_the_loss_is_weighted_alike():
    check_stages(ManifoldMixup)


def test_the_released_loss_of_manifold_mixup_is_binary_cross_entropy_over_the_classes():
    method = staged(ManifoldMixup, objective="binary_cross_entropy")
    batch, context = step(2)
    weights, partner = drawn(method, context)
    _, values, logits = terms_of(method, batch, context)
    for row in range(8):
        p = tiny_network.probabilities(logits[row : row + 1].astype(np.float64))[0]
        target = (
            weights[row] * np.eye(3)[batch.labels[row]] + (1 - weights[row]) * np.eye(3)[batch.labels[partner[row]]]
        )
        terms = [-t * np.log(q) - (1 - t) * np.log(1 - q) for t, q in zip(target, p, strict=True)]
        assert values[row] == pytest.approx(sum(terms) / 3, rel=1e-3)
