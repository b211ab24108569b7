"""The draws have the distributions they name, follow from each key alone, and differ from purpose to purpose."""

import numpy as np
import pytest
import scipy.stats
import stored
import tensorflow as tf

from tfrobust.corruptions import draws, weather
from tfrobust.ops import hashing, randomness

KEYS = draws.fold(randomness.example_keys(randomness.make_key(1, "draws"), tf.range(40)), "test", 1)


def likely(p_value):
    """Seeds are fixed, so this is no gamble: a right sampler was seen to pass, a wrong one would not."""
    return p_value > 1e-3


def test_uniform():
    values = draws.uniform(KEYS, [50, 11], "a", -2.0, 3.0).numpy()
    assert values.shape == (40, 50, 11) and values.min() >= -2 and values.max() < 3
    assert likely(scipy.stats.kstest(values.ravel(), scipy.stats.uniform(-2, 5).cdf).pvalue)


def test_normal():
    values = draws.normal(KEYS, [33, 17], "a").numpy()
    assert values.shape == (40, 33, 17)
    assert likely(scipy.stats.kstest(values.ravel(), scipy.stats.norm.cdf).pvalue)
    # Neighbours, the two halves of one Box-Muller pair, and examples have nothing in common.
    flat = values.reshape(40, -1)
    half = -(-flat.shape[1] // 2)
    for first, second in ((flat[:, 1:], flat[:, :-1]), (flat[:, half:], flat[:, : flat.shape[1] - half])):
        assert likely(scipy.stats.pearsonr(first.ravel(), second.ravel()).pvalue)
        assert likely(scipy.stats.pearsonr(np.abs(first).ravel(), np.abs(second).ravel()).pvalue)
    assert likely(scipy.stats.pearsonr(flat[1:].ravel(), flat[:-1].ravel()).pvalue)


def test_below():
    values = draws.below(KEYS, [500], "a", 6).numpy()
    assert likely(scipy.stats.chisquare(np.bincount(values.ravel(), minlength=6)).pvalue)
    assert set(np.unique(values)) == set(range(6))


@pytest.mark.parametrize("rate", [0.0, 0.7, 3.0, 60.0, 500.0])
def test_poisson(rate):
    values = draws.poisson(KEYS, tf.fill([40, 25, 20], rate)).numpy()
    if rate == 0:
        assert not values.any()
        return
    edges = scipy.stats.poisson(rate).ppf(np.linspace(0, 1, 12)[1:-1])
    edges = np.unique(edges)
    observed = np.bincount(np.searchsorted(edges, values.ravel()), minlength=len(edges) + 1)
    expected = np.diff(scipy.stats.poisson(rate).cdf([-1, *edges, np.inf])) * values.size
    assert likely(scipy.stats.chisquare(observed, expected).pvalue)


def test_each_key_by_itself():
    rates = tf.random.stateless_uniform([40, 9], [1, 2]) * 20
    for sampler in stored.table(globals(), "each_key_by_itself"):
        together, alone = sampler(KEYS, rates), sampler(KEYS[7:9], rates[7:9])
        # Sines and logarithms of several numbers at once may differ in the last bit.
        np.testing.assert_allclose(together[7:9], alone, rtol=1e-6)
        assert np.any(alone[0] != alone[1])


def test_words_and_numbers_draw_anew():
    base = hashing.words(KEYS, [4], "a")
    assert np.all(base == hashing.words(KEYS, [4], "a")) and np.mean(base == hashing.words(KEYS, [4], "b")) < 0.01
    assert np.any(draws.fold(KEYS, "a", 1) != draws.fold(KEYS, "a", 2))
    assert np.any(draws.fold(KEYS, "a", 1) != draws.fold(KEYS, "b", 1))


def test_integers_of_numpy_are_numbers_like_others():
    assert np.array_equal(draws.fold(KEYS, "a", np.int64(3)), draws.fold(KEYS, "a", 3))


def test_angles_and_offsets_have_their_ranges():
    angle = weather.draw_snow(KEYS, tf.zeros([40, 4, 4, 3]), None)["angle"].numpy()
    assert angle.shape == (40,) and -135 <= angle.min() < -115 and -65 < angle.max() < -45
