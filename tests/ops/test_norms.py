import itertools

import numpy as np
import pytest
import stored
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import projections
from tfrobust.ops import norms, randomness

KINDS = ["linf", "l2", "l1"]
DUAL = {"linf": "l1", "l2": "l2", "l1": "linf"}


def _box_case(seed, size, count=6):
    rng = np.random.default_rng(seed)
    images = rng.uniform(0, 1, [count, size]).astype(np.float32)
    images[rng.random(images.shape) < 0.3] = 0.0  # blank pixels: no room on one side
    spread = 10.0 ** rng.uniform(-2, 1, [count, 1])
    candidate = images + (spread * rng.standard_normal([count, size])).astype(np.float32)
    return images, candidate


@pytest.mark.parametrize("kind", KINDS)
def test_norm_is_its_definition(kind):
    x = np.random.default_rng(0).standard_normal([4, 3, 2, 5]).astype(np.float32)
    expected = [projections.measure(row.ravel(), kind) for row in x]
    np.testing.assert_allclose(norms.norm(tf.constant(x), kind), expected, rtol=1e-6)


def test_l0_counts_what_is_not_zero_and_l2_sees_the_tiniest_gradient():
    np.testing.assert_array_equal(norms.norm(tf.constant([[[0.0, -1e-30], [2.0, 0.0]], [[0.0] * 2] * 2]), "l0"), [2, 0])
    x = tf.constant([[3e-30, 4e-30], [0.0, 0.0]])
    np.testing.assert_allclose(norms.norm(x, "l2"), [5e-30, 0.0], rtol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_l0_projection_is_the_nearest_of_all_supports(count):
    images, candidate = _box_case(2, 5)
    got = norms.project_ball_in_box(tf.constant(images), tf.constant(candidate), "l0", count, 0.0, 1.0).numpy()
    free = norms.project_ball(tf.constant(candidate), "l0", count).numpy()
    for x, c, boxed, ball in zip(images, candidate, got, free, strict=True):
        masks = [np.isin(np.arange(5), chosen) for chosen in itertools.combinations(range(5), count)]
        least = min(np.sum((np.where(mask, np.clip(c, 0, 1), x) - c) ** 2) for mask in masks)
        assert np.sum((boxed - c) ** 2) == pytest.approx(least, rel=1e-5)
        assert np.sum((ball - c) ** 2) == pytest.approx(min(np.sum(c[~mask] ** 2) for mask in masks), rel=1e-5)
        assert np.count_nonzero(boxed != x) <= count and np.count_nonzero(ball) <= count


def test_among_equals_exactly_so_many_are_kept():
    np.testing.assert_array_equal(
        norms.largest_mask(tf.ones([3, 4]), tf.constant([0, 2, 9])),
        [[False] * 4, [True, True, False, False], [True] * 4],
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 7, 40])
@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 2.0])
def test_projection_onto_the_ball_equals_the_oracle(kind, size, epsilon):
    x = (2 * np.random.default_rng(size).standard_normal([6, size])).astype(np.float32)
    got = norms.project_ball(tf.constant(x), kind, epsilon)
    expected = [projections.project(0 * row, row, kind, epsilon) for row in x]
    np.testing.assert_allclose(got, expected, atol=2e-6 * max(1, epsilon))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 7, 40])
@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 2.0])
def test_projection_into_the_box_equals_the_oracle(kind, size, epsilon):
    images, candidate = _box_case(size, size)
    got = norms.project_ball_in_box(tf.constant(images), tf.constant(candidate), kind, epsilon, 0.0, 1.0)
    expected = [projections.project(x, c, kind, epsilon, 0, 1) for x, c in zip(images, candidate, strict=True)]
    np.testing.assert_allclose(got, expected, atol=3e-6)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(KINDS), epsilon=st.floats(1e-3, 5.0))
def test_projection_properties(seed, kind, epsilon):
    images, candidate = _box_case(seed, 12, count=4)
    images, candidate = tf.constant(images), tf.constant(candidate)
    once = norms.project_ball_in_box(images, candidate, kind, epsilon, 0.0, 1.0)
    assert np.all(norms.norm(once - images, kind) <= epsilon * (1 + 1e-5) + 1e-6)
    assert once.numpy().min() >= 0 and once.numpy().max() <= 1
    twice = norms.project_ball_in_box(images, once, kind, epsilon, 0.0, 1.0)
    np.testing.assert_allclose(twice, once, atol=1e-6)
    # p is the projection of c exactly if nowhere in the set <c - p, z> exceeds <c - p, p>.
    for x, c, p in zip(images.numpy(), candidate.numpy(), once.numpy().astype(float), strict=True):
        best = projections.linear_maximiser(c - p, x, kind, epsilon, 0, 1)
        assert np.dot(c - p, best - p) <= 2e-5 * (1 + np.abs(c - p).sum())


@pytest.mark.parametrize("kind", ["l2", "l1"])
def test_a_large_image_is_projected_exactly(kind):
    images, candidate = _box_case(1, 3072, count=2)
    epsilon = 3.0 if kind == "l2" else 12.0
    got = norms.project_ball_in_box(tf.constant(images), tf.constant(candidate), kind, epsilon, 0.0, 1.0)
    expected = [projections.project(x, c, kind, epsilon, 0, 1) for x, c in zip(images, candidate, strict=True)]
    np.testing.assert_allclose(got, expected, atol=3e-6)


def test_l2_scaling_cut_short_stays_inside(monkeypatch):
    monkeypatch.setattr(norms, "_MAX_SCALING_PASSES", 1)
    images, candidate = _box_case(3, 30)
    got = norms.project_ball_in_box(tf.constant(images), tf.constant(candidate), "l2", 0.7, 0.0, 1.0)
    assert np.all(norms.norm(got - images, "l2") <= 0.7 * (1 + 1e-5))


@pytest.mark.parametrize("kind,dual", [("linf", "l1"), ("l2", "l2"), ("l1", "linf")])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e20])
def test_steepest_step_reaches_the_dual_norm(kind, dual, scale):
    gradient = (scale * np.random.default_rng(1).standard_normal([5, 4, 3])).astype(np.float32)
    step = norms.unit_steepest(tf.constant(gradient), kind).numpy()
    np.testing.assert_allclose(norms.norm(tf.constant(step), kind), 1.0, rtol=1e-6)
    reached = np.sum(gradient.astype(float) * step, axis=(1, 2))
    expected = [projections.measure(row.ravel(), dual) for row in gradient]
    np.testing.assert_allclose(reached, expected, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_gradient_gives_a_zero_step(kind):
    np.testing.assert_array_equal(norms.unit_steepest(tf.zeros([2, 3]), kind), np.zeros([2, 3]))


def test_ties_share_the_steepest_l1_step_and_a_sparse_one_goes_where_there_is_room():
    np.testing.assert_array_equal(norms.unit_steepest(tf.constant([[2.0, -2.0, 1.0]]), "l1"), [[0.5, -0.5, 0]])
    gradient = tf.constant([[1.0, -4.0, 3.0, 0.5], [0.0, 0.0, 2.0, 0.0]])
    room = tf.constant([[1.0, 0.125, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    step = norms.sparse_step(gradient, room, 1.0, 0.5)
    np.testing.assert_allclose(step, [[0.375, -0.125, 0.5, 0], [0, 0, 0.5, 0]], atol=1e-7)


@pytest.mark.parametrize("size", [0.1, 0.6, 3.0, 100.0])
def test_a_strict_sparse_step_is_the_best_inside_the_box(size):
    images, candidate = _box_case(4, 9)
    gradient = candidate - images
    room = np.where(gradient > 0, 1 - images, images)
    step = norms.sparse_step(tf.constant(gradient), tf.constant(room), size, 0.0)
    best = [projections.linear_maximiser(g, x, "l1", size, 0, 1) for g, x in zip(gradient, images, strict=True)]
    np.testing.assert_allclose(images + step, best, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_random_points_are_uniform_in_the_ball(kind):
    size, count, epsilon = 3, 4000, 0.4
    points = norms.random_in_ball(tf.constant([1, 2]), tf.zeros([count, size]), kind, epsilon).numpy()
    radius = norms.norm(tf.constant(points), kind).numpy() / epsilon
    assert radius.max() <= 1 + 1e-6
    # Uniform by volume: the share within radius r is r^d.
    for quantile in (0.3, 0.6, 0.9):
        assert abs(np.mean(radius <= quantile) - quantile**size) < 0.03
    assert np.abs(points.mean(axis=0)).max() < 0.02
    assert np.abs(np.sort((points**2).mean(axis=0)) / (points**2).mean() - 1).max() < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_random_points_follow_each_examples_own_key(kind):
    keys = randomness.example_keys(tf.constant([5, 6]), tf.range(4))
    like = tf.zeros([4, 2, 3])
    together = norms.random_in_ball(keys, like, kind, 0.5)
    apart = norms.random_in_ball(keys[2:3], like[:1], kind, 0.5)
    np.testing.assert_allclose(together[2:3], apart, atol=1e-6)


@pytest.mark.parametrize("kind,strength,expected", stored.rows(globals(), "proximal_by_hand"))
def test_proximal_by_hand(kind, strength, expected):
    got = norms.proximal(tf.constant([[3.0, -4.0, 0.0]]), kind, strength)
    np.testing.assert_allclose(got, [expected], atol=1e-6)


@pytest.mark.parametrize("kind", ["linf", "l2", "l1"])
@pytest.mark.parametrize("strength", [1e-3, 0.4, 1.5, 30.0])
def test_proximal_and_the_dual_projection_sum_to_the_point(kind, strength):
    # s = prox_T(s) + the projection onto the dual ball of radius T, here by bisection in float64.
    s = np.random.default_rng(0).standard_normal([6, 9]).astype(np.float32)
    got = norms.proximal(tf.constant(s), kind, strength)
    rest = [projections.project(0 * row, row, DUAL[kind], strength) for row in s]
    np.testing.assert_allclose(got + np.array(rest), s, atol=3e-6)


def test_proximal_takes_a_strength_for_each_example():
    s = tf.random.stateless_normal([4, 2, 3, 1], [1, 2])
    strengths = tf.constant([0.1, 0.5, 1.0, 3.0])
    for kind in [*KINDS, "l0"]:
        together = norms.proximal(s, kind, strengths)
        apart = tf.concat([norms.proximal(s[i : i + 1], kind, float(strengths[i])) for i in range(4)], axis=0)
        np.testing.assert_allclose(together, apart, atol=1e-6)
        assert not np.any(norms.proximal(0.0 * s, kind, strengths))
        assert np.all(norms.norm(together, kind) <= norms.norm(s, kind) + 1e-6)
