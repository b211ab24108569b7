"""Plain training: the cross-entropy of the images as they are."""

import numpy as np

from oracles import tiny_network
from tfrobust.methods.supervised import Supervised


def test_the_term_is_the_cross_entropy_of_the_images():
    method = tiny_network.build(Supervised)
    batch, context = tiny_network.batch()
    views = method.make_views(batch, context)
    assert list(views) == ["images"]
    np.testing.assert_array_equal(views["images"], batch.images)
    terms, logits = method.loss_terms(views, batch, context)
    _, expected = tiny_network.forward(method, batch.images)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    assert set(terms) == set(method.terms) == {"ce"}
    np.testing.assert_allclose(
        terms["ce"], tiny_network.cross_entropy(expected, batch.labels.numpy()), rtol=1e-4, atol=1e-5
    )
    assert method.passes_per_step == 1
