"""Energies, masks and transports of Puzzle Mix, against loops."""

import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import puzzlemix as oracle
from tfrobust.augment import mixing, puzzlemix
from tfrobust.augment.puzzlemix import Puzzle
from tfrobust.ops import randomness

KEY = randomness.make_key(3, "puzzle")
COUNT = 6


def drawn(side, weight=None, channels=2, seed=1):
    """Images, saliencies, weights and partners, and the same for one call."""
    images, saliency, weights, partner = oracle.pairs_of(COUNT, side, seed, channels)
    weights = weights if weight is None else np.full(COUNT, weight)
    mix = mixing.Mix(tf.constant(weights if weight is None else weight, tf.float32), tf.constant(partner))
    pairs = [
        ((images[row], images[other]), (saliency[row], saliency[other]), weights[row])
        for row, other in enumerate(partner)
    ]
    return images, saliency, mix, pairs


# Constants that differ from the defaults and from each other; parts that divide the blocks, or do not.
@pytest.mark.parametrize("side, blocks, settings", stored.rows(globals(), "the_energy_is_that_of_its_definition"))
@pytest.mark.parametrize("weight", [None, 0.3])
def test_the_energy_is_that_of_its_definition(side, blocks, settings, weight):
    images, saliency, mix, pairs = drawn(side, weight)
    puzzle = Puzzle(**settings)
    constants = {name: getattr(puzzle, name) for name in ("prior", "smoothness", "contrast", "neighbourhood")}
    terms = [part.numpy() for part in puzzle.terms(images, saliency, mix, blocks)]
    masks = np.random.default_rng(0).choice(oracle.LEVELS, (5, blocks, blocks))
    for row, pair in enumerate(pairs[:3]):
        expected = np.array([oracle.energy(mask, *pair, **constants) for mask in masks])
        energies = np.array([oracle.value(*(part[row] for part in terms), mask) for mask in masks])
        np.testing.assert_allclose(energies - energies[0], expected - expected[0], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("side, blocks, settings", stored.rows(globals(), "images_are_put_together_as_by_loops"))
def test_images_are_put_together_as_by_loops(side, blocks, settings):
    images, saliency, mix, pairs = drawn(side)
    puzzle = Puzzle(**settings)
    mixed, weight = (part.numpy() for part in puzzle.mix_at(images, saliency, mix, blocks))
    terms = [part.numpy() for part in puzzle.terms(images, saliency, mix, blocks)]
    some_moved = False
    for row, (pair, salient, _) in enumerate(pairs):
        mask = oracle.minimum_cut(*(part[row] for part in terms))
        options = {"cost": puzzle.transport_cost, "transport_side": puzzle.transport_side}
        np.testing.assert_allclose(mixed[row], oracle.mixed(pair, salient, mask, **options), atol=1e-6)
        np.testing.assert_allclose(weight[row], mask.mean(), atol=1e-7)
        still = oracle.mixed(pair, salient, mask, **options | {"cost": 1e9})
        some_moved |= not np.allclose(mixed[row], still)
    assert some_moved


def test_without_transport_pieces_stay():
    images, saliency, mix, pairs = drawn(8)
    unmoved, _ = Puzzle(transport=False).mix_at(images, saliency, mix, 4)
    still, _ = Puzzle(transport_cost=1e9).mix_at(images, saliency, mix, 4)
    moved, _ = Puzzle().mix_at(images, saliency, mix, 4)
    np.testing.assert_array_equal(unmoved, still)
    assert not np.allclose(unmoved, moved)


@pytest.mark.parametrize("grid", [2, 3, 5, 8])
@pytest.mark.parametrize("share", [0.15, 0.6])
def test_what_is_wanted_is_transported_as_by_loops(grid, share):
    generator = np.random.default_rng(grid)
    images = generator.uniform(0.1, 1.0, (20, grid, grid, 1)).astype(np.float32)
    visible = generator.uniform(size=images.shape[:3]) < share
    # One piece in ten is hot: many claim the same squares, and g rounds are not always enough.
    saliency = generator.uniform(size=visible.shape) ** 8 + 1e-3
    saliency = (saliency / saliency.sum(axis=(1, 2), keepdims=True)).astype(np.float32)
    moved = puzzlemix.transport(images, tf.constant(visible), tf.constant(saliency), 0.05).numpy()
    expected = np.stack([oracle.moved(*row, 0.05) for row in zip(images, visible, saliency, strict=True)])
    np.testing.assert_array_equal(moved[visible], expected[visible])
    if visible.any():
        assert np.any(moved[visible] != images[visible])


def test_equal_claims_go_to_the_first_and_nothing_moves_where_nothing_is_salient():
    visible = tf.constant([[[False, True, False]] + [[False] * 3] * 2] * 2)
    saliency = tf.constant([[[0.4, 0.0, 0.4]] + [[0.0] * 3] * 2, [[0.0] * 3] * 3])
    plan = puzzlemix.transport_plan(visible, saliency, 0.8).numpy()
    np.testing.assert_array_equal(plan, [[0, 0, 2, *range(3, 9)], range(9)])


# ------------------------------------------------------------------------------------------------------- the call


class Told(Puzzle):
    """Says on how many blocks it would mix."""

    def mix_at(self, images, saliency, mix, blocks):
        return images, tf.fill([images.shape[0]], float(blocks))


def test_the_number_of_blocks_is_one_of_those_that_divide_the_side():
    images, saliency, mix, _ = drawn(8)

    @tf.function
    def blocks(number):
        return Told()(images, saliency, mix, randomness.fold(KEY, number))[1][0]

    counts = np.bincount([int(blocks(tf.constant(number))) for number in range(300)])
    assert set(np.flatnonzero(counts)) == {2, 4, 8}
    assert counts[[2, 4, 8]].min() > 70


def test_a_call_is_the_mixture_on_its_blocks_whatever_else_is_in_the_batch():
    images, saliency, mix, _ = drawn(8, 0.4)
    puzzle = Puzzle(blocks=(4, 16))
    both = puzzle(tf.constant(images), tf.constant(saliency), mix, KEY)
    for result, other in zip(both, puzzle.mix_at(images, saliency, mix, 4), strict=True):
        np.testing.assert_array_equal(result, other)
    rows = np.array([2, mix.partner[2]])
    alone, weight = puzzle(images[rows], 3.0 * saliency[rows], mixing.Mix(mix.weight, tf.constant([1, 1])), KEY)
    np.testing.assert_array_equal(alone[0], both[0][2])
    assert weight[0] == both[1][2]


def test_the_weight_draws_the_mask_to_its_image():
    images, saliency, *_ = drawn(8)
    partner = tf.constant([1, 2, 3, 4, 5, 0])
    for weight, share in ((0.0, 0.0), (1.0, 1.0)):
        mixed, shares = Puzzle(transport=False).mix_at(images, saliency, mixing.Mix(tf.constant(weight), partner), 2)
        np.testing.assert_array_equal(shares, np.full(COUNT, share))
        np.testing.assert_array_equal(mixed, images if share else images[partner])


def test_saliency_is_the_size_of_the_gradient_over_the_channels():
    gradient = np.random.default_rng(2).normal(size=(3, 4, 4, 3)).astype(np.float32)
    expected = np.sqrt((gradient**2).mean(axis=-1))
    for scale in (1.0, 1e-30):
        saliency = puzzlemix.input_saliency(gradient * np.float32(scale)).numpy()
        relative = (maps / maps.max(axis=(1, 2), keepdims=True) for maps in (saliency, expected))
        np.testing.assert_allclose(*relative, rtol=1e-4)
    np.testing.assert_array_equal(puzzlemix.input_saliency(0 * gradient), np.zeros((3, 4, 4)))


def test_an_image_without_saliency_is_mixed_all_the_same():
    images, saliency, mix, _ = drawn(8, 0.9)
    mixed, weight = Puzzle().mix_at(images, 0 * saliency, mix, 4)
    assert np.isfinite(mixed).all()
    np.testing.assert_array_equal(weight, np.ones(COUNT))
