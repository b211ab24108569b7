"""SimCLR is eq 1, by loops and in closed form."""

import numpy as np
import pytest

from conformance.contrast import COUNT, contrast, projections
from oracles import self_supervised as oracle
from tfrobust.methods.simclr import SimCLR


@pytest.mark.parametrize("temperature", [0.1, 0.5])
@pytest.mark.parametrize("itself", [False, True])
def test_simclr_is_equation_1(temperature, itself):
    vectors = projections()
    expected = oracle.nt_xent(vectors, temperature, with_itself=itself)
    given = {"temperature": temperature, "self_in_denominator": itself}
    mean, _ = contrast(SimCLR, vectors, **given)
    np.testing.assert_allclose(mean, expected.mean(axis=0), rtol=2e-6)  # over 2N anchors, once averaged over images
    doubled, _ = contrast(SimCLR, vectors, scale="sum", **given)
    np.testing.assert_allclose(doubled, expected.sum(axis=0), rtol=2e-6)


def test_more_views_attract_each_other():
    vectors = projections(views=3)
    value, _ = contrast(SimCLR, vectors)
    np.testing.assert_allclose(value, oracle.nt_xent(vectors, 0.5).mean(axis=0), rtol=2e-6)


@pytest.mark.parametrize(("itself", "expected"), [(False, 2 * COUNT - 1), (True, 2 * COUNT)])
def test_identical_embeddings_give_the_logarithm_of_the_candidates(itself, expected):
    value, observed = contrast(SimCLR, np.ones([2, COUNT, 5], np.float32), self_in_denominator=itself)
    np.testing.assert_allclose(value, np.log(expected), rtol=1e-6)
    np.testing.assert_allclose(observed["embedding_deviation"], 0.0, atol=1e-7)


def test_views_that_agree_and_images_that_oppose():
    """One-hot images, both views alike, t = 1: -log( e / (e + 2 (n - 1)) )."""
    one_hot = np.stack([np.eye(COUNT, dtype=np.float32)] * 2)
    value, _ = contrast(SimCLR, one_hot, temperature=1.0)
    np.testing.assert_allclose(value, np.log1p(2 * (COUNT - 1) / np.e), rtol=1e-6)
