"""The row "SCL": cross-entropy and eq. 3 of Bui et al. 2021 on two augmented views."""

import numpy as np
import pytest

from oracles import contrastive, tiny_network
from tfrobust.augment.standard import RandomShift
from tfrobust.keras.methods import Contrast, SupervisedContrastive
from tfrobust.models.heads.linear import LinearProjection

# Far enough that the tiny images change and the predictions of the two views differ.
SHIFT = RandomShift(fraction=0.6)


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("forward", ["joint", "separate"])
def test_the_terms_are_the_mean_cross_entropy_and_the_sum_over_both_anchors(forward, projected):
    method = tiny_network.build(
        SupervisedContrastive,
        augmentation=SHIFT,
        forward=forward,
        contrast=Contrast(temperature=0.3),
        projection=LinearProjection(4) if projected else None,
    )
    batch, views, terms, _ = tiny_network.run(method)
    labels = batch.labels.numpy()
    passes = [tiny_network.forward(method, views[name]) for name in ("view_1", "view_2")]
    ce = np.mean([tiny_network.cross_entropy(logits, labels) for _, logits in passes], axis=0)
    np.testing.assert_allclose(terms["ce"], ce, rtol=1e-4, atol=1e-5)
    z = [embedding for embedding, _ in passes]
    if projected:
        z = [embedding @ np.asarray(method.projection.weights[0], np.float64) for embedding in z]
    predictions = np.stack([logits.argmax(-1) for _, logits in passes])
    expected = contrastive.ascl(z, labels, predictions, "global", 0.3, "cosine")
    np.testing.assert_allclose(terms["contrastive"], expected, rtol=1e-3)
    class_sizes = (labels[:, None] == labels).sum(-1)
    np.testing.assert_array_equal(terms["positives_clean"], 2 * class_sizes - 1)
    np.testing.assert_array_equal(terms["negatives_clean"], 2 * (len(labels) - class_sizes))
    assert not np.any(terms["positives_adversarial"]) and not np.any(terms["negatives_adversarial"])


def test_the_views_are_two_draws_of_the_augmentation():
    method = tiny_network.build(SupervisedContrastive, augmentation=SHIFT)
    batch, context = tiny_network.batch()
    views = method.make_views(batch, context)
    first, second, images = (np.asarray(array) for array in (views["view_1"], views["view_2"], batch.images))
    for view, other in ((first, second), (first, images), (second, images)):
        assert np.abs(view - other).max(axis=(1, 2, 3)).min() > 1e-3
    again = method.make_views(batch, context)
    np.testing.assert_array_equal(again["view_1"], first)
