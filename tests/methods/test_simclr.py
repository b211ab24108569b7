"""SimCLR is eq 1, by loops and in closed form."""

import numpy as np
import pytest

from conformance.contrast import contrast, projections
from oracles import self_supervised as oracle
from tfrobust.methods.simclr import SimCLR


@pytest.mark.parametrize("temperature", [0.1, 0.5])
@pytest.mark.parametrize("itself", [False, True])
def test_simclr_is_equation_1(temperature, itself):
    vectors = projections()
    expected = oracle.nt_xent(vectors, temperature, with_itself=itself)
    settings = {"temperature": temperature, "self_in_denominator": itself}
    mean, _ = contrast(SimCLR, vectors, **settings)
    np.testing.assert_allclose(mean, expected.mean(axis=0), rtol=2e-6)  # over 2N anchors, once averaged over images
    doubled, _ = contrast(SimCLR, vectors, scale="sum", **settings)
    np.testing.assert_allclose(doubled, expected.sum(axis=0), rtol=2e-6)


def test_more_views_attract_each_other():
    vectors = projections(views=3)
    value, _ = contrast(SimCLR, vectors)
    np.testing.assert_allclose(value, oracle.nt_xent(vectors, 0.5).mean(axis=0), rtol=2e-6)
