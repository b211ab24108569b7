"""AugMix training by hand: which views it sees, how it weighs their divergence."""

import numpy as np
import pytest

from oracles import tiny_network
from oracles.consistency import jensen_shannon
from tfrobust.augment.standard import RandomShift
from tfrobust.methods.augmix import AUGMENTED, AugMixTraining
from tfrobust.ops import randomness

SHIFT = RandomShift(fraction=0.5)


@pytest.mark.parametrize("forward", ["joint", "separate"])
def test_the_terms_are_those_of_the_three_views(forward):
    method = tiny_network.build(AugMixTraining, augmentation=SHIFT, forward=forward)
    batch, views, terms, logits = tiny_network.run(method)
    expected = [tiny_network.forward(method, views[name].numpy())[1] for name in ("images", *AUGMENTED)]
    np.testing.assert_allclose(logits, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(terms["ce"], tiny_network.cross_entropy(expected[0], batch.labels.numpy()), rtol=1e-3)
    np.testing.assert_allclose(terms["jsd"], jensen_shannon(expected), rtol=1e-3, atol=1e-5)
    assert terms["jsd"].numpy().max() > 0.01


def test_the_images_are_as_they_came_and_the_others_two_draws_for_each_example():
    method = tiny_network.build(AugMixTraining, augmentation=SHIFT)
    batch, context = tiny_network.batch()
    keys = randomness.example_keys(randomness.make_key(1), batch.index)
    host_views = method.host_views(batch.images, keys)
    assert tuple(host_views) == AUGMENTED == method.host_view_names
    for view, other in ((host_views[AUGMENTED[0]], host_views[AUGMENTED[1]]), (host_views[AUGMENTED[0]], batch.images)):
        assert np.all(np.abs(view - other).max(axis=(1, 2, 3)) > 1e-3)
    part = method.host_views(batch.images[2:4], keys[2:4])
    np.testing.assert_array_equal(part[AUGMENTED[1]], host_views[AUGMENTED[1]][2:4])
    views = method.make_views(batch._replace(extra=host_views), context)
    assert views["images"] is batch.images and all(views[name] is host_views[name] for name in AUGMENTED)
