"""Mixup by loops, given the draws."""

import numpy as np
import pytest

from oracles import tiny_network
from oracles.mixing import GROUP, drawn, mixed_by_rows, mixed_entropy, step, terms_of
from tfrobust.keras.methods import CutMix, Mixing, Mixup


@pytest.mark.parametrize("per_example", [False, True])
def test_mixup_is_the_loss_of_mixed_images_and_labels(per_example):
    method = tiny_network.build(Mixup, mixing=Mixing(group=GROUP, per_example=per_example))
    batch, context = step(1)
    weights, partner = drawn(method, context)
    assert len(np.unique(weights)) == (8 if per_example else 1) and np.any(partner != np.arange(8))
    views, values, logits = terms_of(method, batch, context)
    images = mixed_by_rows(batch.images.numpy().astype(np.float64), weights, partner)
    np.testing.assert_allclose(views["mixed"], images, rtol=1e-5, atol=1e-6)
    _, expected = tiny_network.forward(method, images)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        values, mixed_entropy(expected, batch.labels.numpy(), weights, partner), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(("kind", "still"), [(Mixup, {"mixing": Mixing(alpha=0.0)}), (CutMix, {"probability": 0.0})])
def test_without_mixing_it_is_cross_entropy(kind, still):
    method = tiny_network.build(kind, **still)
    batch, context = step(1)
    _, values, logits = terms_of(method, batch, context)
    np.testing.assert_allclose(logits, method(batch.images), rtol=1e-5)
    np.testing.assert_allclose(values, tiny_network.cross_entropy(logits, batch.labels.numpy()), rtol=1e-4, atol=1e-5)
