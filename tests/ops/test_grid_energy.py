"""The lowest energy on grids, against minimum cuts and against everything."""

import numpy as np
import pytest
import tensorflow as tf

from oracles import puzzlemix as oracle
from tfrobust.augment import mixing, puzzlemix
from tfrobust.ops.grid_energy import lowest_levels

SIDE = 32


def terms_of(count, blocks, **keywords):
    """Energies like those of training."""
    images, saliency, weight, partner = oracle.pairs_of(count, SIDE, seed=blocks)
    mix = mixing.Mix(tf.constant(weight, tf.float32), tf.constant(partner))
    return [part.numpy() for part in puzzlemix.Puzzle(**keywords).terms(images, saliency, mix, blocks)]


def gaps(terms):
    """Return the excess of the energies over the lowest, relative to it."""
    masks = tf.function(lowest_levels, autograph=False)(*terms).numpy()
    assert masks.dtype == np.float32 and set(np.unique(masks)) == set(oracle.LEVELS)
    values = []
    for *parts, mask in zip(*terms, masks, strict=True):
        lowest = oracle.value(*parts, oracle.minimum_cut(*parts))
        values.append(oracle.value(*parts, mask) / lowest - 1)
    return np.array(values)


def random_terms(count, side, seed=0):
    generator = np.random.default_rng(seed)
    shapes = (side, side, 3), (side - 1, side), (side, side - 1)
    return [generator.uniform(size=(count, *shape)).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize(("side", "count"), [(2, 20), (3, 2)])
def test_the_lowest_energy_of_small_grids_is_that_of_the_best_of_all_masks(side, count):
    terms = random_terms(count, side)
    masks = lowest_levels(*terms).numpy()
    for *parts, mask in zip(*terms, masks, strict=True):
        best = oracle.best_of_all(*parts)
        assert oracle.value(*parts, oracle.minimum_cut(*parts)) == pytest.approx(best, abs=1e-6)
        assert oracle.value(*parts, mask) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(("blocks", "exact"), [(2, 1.0), (4, 0.98), (8, 0.95), (16, 0.9)])
def test_energies_like_those_of_training_are_within_a_ten_thousandth_of_the_lowest(blocks, exact):
    excesses = gaps(terms_of(60, blocks))
    assert excesses.min() > -1e-6 and excesses.mean() < 1e-4 and excesses.max() < 5e-3
    assert np.mean(excesses < 1e-6) >= exact


@pytest.mark.parametrize("blocks", [8, 16])
def test_dear_pairs_and_even_weights_take_no_harm(blocks):
    # Where every neighbour counts four times as much, plain messages would swing.
    excesses = gaps(terms_of(40, blocks, smoothness=5.0, prior=0.0))
    assert excesses.mean() < 1e-3 and np.mean(excesses < 1e-6) > 0.85


def test_without_pairs_each_cell_takes_its_cheapest_level():
    costs, down, right = random_terms(5, 7)
    levels = lowest_levels(costs, 0 * down, 0 * right).numpy()
    np.testing.assert_array_equal(levels, costs.argmin(axis=-1) / 2)


def test_a_grid_does_not_depend_on_the_others_nor_on_the_compiler():
    terms = [tf.constant(part) for part in random_terms(6, 4)]
    levels = lowest_levels(*terms).numpy()
    np.testing.assert_array_equal(levels[2:3], lowest_levels(*(part[2:3] for part in terms)))
    np.testing.assert_array_equal(levels, tf.function(lowest_levels, jit_compile=True)(*terms))
    shapes = [tf.TensorSpec([None, *part.shape[1:]]) for part in terms]
    np.testing.assert_array_equal(levels, tf.function(lowest_levels, input_signature=shapes)(*terms))
