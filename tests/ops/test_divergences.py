"""The divergences of Bui et al. 2021 against the literal loop, and where they are not defined."""

import numpy as np

from oracles import geometry as oracle
from tfrobust.ops import divergences


def test_one_batch_equals_the_literal_loop():
    generator = np.random.default_rng(0)
    clean, adversarial = generator.normal(size=(2, 9, 4)).astype(np.float32)
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1, 3])
    measures = divergences.divergences(clean, adversarial, labels)
    expected = oracle.divergences(clean, adversarial, labels)
    np.testing.assert_allclose([float(v) for v in measures[:3]], expected[:3], rtol=1e-5)


def test_batches_are_averaged_by_their_anchors():
    generator = np.random.default_rng(1)
    clean, adversarial = generator.normal(size=(2, 10, 3)).astype(np.float32)
    labels = np.array([0, 1] * 5)
    parts = [divergences.divergences(clean[s], adversarial[s], labels[s]) for s in (slice(0, 8), slice(8, 10))]
    measures = divergences.batched_divergences(clean, adversarial, labels, 8)
    # The last batch has one example of each class, so no anchor with a positive.
    assert int(parts[1].anchors) == 0
    np.testing.assert_allclose(measures.r_div, float(parts[0].r_div), rtol=1e-6)
    assert np.isnan(divergences.batched_divergences(clean[:1], adversarial[:1], labels[:1], 8).r_div)
