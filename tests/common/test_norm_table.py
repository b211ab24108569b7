"""The record of each norm against NumPy: nothing here comes from the table but what is checked."""

import numpy as np
import pytest

from tfrobust.common import norm_table

NORMS = norm_table.NORMS.values()


@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: norm.name)
@pytest.mark.parametrize("size", [1, 12, 49])
def test_distances_in_the_box_are_those_of_its_corners(norm, size):
    assert norm.farthest(size) == pytest.approx(np.linalg.norm(np.ones(size), norm.order))
    assert norm.center(size) == pytest.approx(np.linalg.norm(np.full(size, 0.5), norm.order))
    assert norm_table.by_order(norm.order) == norm.name


@pytest.mark.parametrize("name, noise", [("linf", 1.0), ("l2", 16.0), ("l1", 204.2)])
def test_the_norm_of_noise_is_its_expectation(name, noise):
    norm = norm_table.NORMS[name]
    assert norm.noise(256) == pytest.approx(noise, rel=1e-3)
    drawn = np.linalg.norm(np.random.default_rng(0).standard_normal((2000, 256)), norm.order, axis=1).mean()
    assert name == "linf" or noise == pytest.approx(drawn, rel=0.01)


@pytest.mark.parametrize("name", ["linf", "l2", "l1"])
def test_the_dual_norm_is_the_steepest_slope(name):
    rng, norm = np.random.default_rng(1), norm_table.NORMS[name]
    slope = rng.standard_normal(5)
    dual = np.linalg.norm(slope, norm_table.NORMS[norm.dual].order)
    candidates = np.concatenate([rng.standard_normal((20_000, 5)), np.eye(5), [np.sign(slope), slope]])
    values = np.abs(candidates @ slope) / np.linalg.norm(candidates, norm.order, axis=1)
    assert values.max() == pytest.approx(dual)


def test_only_norms_have_a_direction():
    assert norm_table.DIRECTED == ("linf", "l2", "l1") and list(norm_table.NORMS) == ["linf", "l2", "l1", "l0"]
    assert norm_table.by_order(3) is None
