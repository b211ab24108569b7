import numpy as np
import pytest
import scipy.optimize
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import hyperplane as oracle
from oracles import projections
from tfrobust.ops import hyperplane

KINDS = ["linf", "l2", "l1"]


def case(seed, size, count=8):
    """Points with blank pixels, normals of many lengths with zeros, planes near and far, some out of reach."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 1, [count, size]).astype(np.float32)
    points[rng.random(points.shape) < 0.3] = 0.0
    normals = 10.0 ** rng.uniform(-3, 3, [count, 1]) * rng.standard_normal([count, size])
    normals[rng.random(points.shape) < 0.1] = 0.0
    normals = normals.astype(np.float32)
    reach = np.abs(normals).sum(axis=1) * 10.0 ** rng.uniform(-3, 0.3, count) * rng.choice([-1, 1], count)
    return points, normals, (np.sum(normals * points, axis=1) + reach).astype(np.float32)


def project(points, normals, offsets, kind, **box):
    excess = np.sum(normals * points, axis=tuple(range(1, np.ndim(points)))) - np.asarray(offsets, np.float32)
    return hyperplane.move(*map(tf.constant, (points, normals, excess)), kind, **box).numpy()


def within_reach(points, normals, offsets):
    excess = np.sum(normals.astype(np.float64) * points, axis=1) - offsets
    ways = np.where(excess[:, None] >= 0, -normals, normals)
    room = np.where(ways > 0, 1 - points, points)
    return np.sum(np.abs(normals) * room, axis=1) > np.abs(excess) * (1 + 1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_equals_the_oracle(kind, size):
    points, normals, offsets = case(size, size, count=40)
    assert size == 1 or 4 < np.sum(within_reach(points, normals, offsets)) < 40
    got = project(points, normals, offsets, kind)
    expected = [oracle.move(*row, kind) for row in zip(points, normals, offsets, strict=True)]
    np.testing.assert_allclose(got, expected, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_image_in_its_own_shape(kind):
    points, normals, offsets = case(1, 3072, count=4)
    shape = [4, 32, 32, 3]
    got = project(points.reshape(shape), normals.reshape(shape), offsets, kind)
    expected = [oracle.move(*row, kind) for row in zip(points, normals, offsets, strict=True)]
    norms = [projections.measure(move, kind) for move in got]
    np.testing.assert_allclose(norms, [projections.measure(move, kind) for move in expected], rtol=1e-4)
    np.testing.assert_allclose(got.reshape(4, -1), expected, atol=1e-3 if kind == "l1" else 2e-5)


@pytest.mark.parametrize("kind,dual", [("linf", "l1"), ("l2", "l2"), ("l1", "linf")])
def test_far_from_the_walls_it_is_the_distance_in_the_dual_norm(kind, dual):
    points, normals, offsets = case(3, 12)
    got = project(points, normals, offsets, kind, low=-1e6, high=1e6)
    excess = np.sum(normals.astype(np.float64) * points, axis=1) - offsets
    expected = np.abs(excess) / [projections.measure(normal, dual) for normal in normals]
    np.testing.assert_allclose([projections.measure(move, kind) for move in got], expected, rtol=1e-4)
    if kind == "l2":
        length = np.sum(normals.astype(np.float64) ** 2, axis=1)
        np.testing.assert_allclose(got, -(excess / length)[:, None] * normals, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["linf", "l1"])
def test_equals_linear_programming(kind):
    # Neither our formulas nor the oracle's. Unknown: the move, and bounds of its entries' magnitudes.
    points, normals, offsets = case(5, 6)
    reachable = within_reach(points, normals, offsets)
    assert reachable.sum() >= 4
    got = project(points, normals, offsets, kind)
    bounds, ones = 6 if kind == "l1" else 1, np.eye(6) if kind == "l1" else np.ones([6, 1])
    cost = np.concatenate([np.zeros(6), np.ones(bounds)])
    below = np.block([[np.eye(6), -ones], [-np.eye(6), -ones]])
    for t, w, b, move in zip(points[reachable], normals[reachable], offsets[reachable], got[reachable], strict=True):
        scale = np.abs(w).max()
        equal, gap = np.concatenate([w / scale, np.zeros(bounds)])[None], (b - t.astype(float) @ w) / scale
        box = [(-x, 1 - x) for x in t] + [(0, None)] * bounds
        solution = scipy.optimize.linprog(cost, below, np.zeros(12), equal, [gap], box)
        assert solution.success
        np.testing.assert_allclose(projections.measure(move, kind), solution.fun, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(KINDS))
def test_properties(seed, kind):
    points, normals, offsets = case(seed, 12)
    moves = project(points, normals, offsets, kind).astype(np.float64)
    ends = points + moves
    assert ends.min() >= -1e-6 and ends.max() <= 1 + 1e-6
    assert not np.any(moves[normals == 0])
    reached = np.abs(np.sum(normals * ends, axis=1) - offsets) <= 1e-5 * (np.abs(normals).sum(axis=1) + np.abs(offsets))
    walls = (np.minimum(ends, 1 - ends) < 1e-6) | (normals == 0)
    assert np.all(reached | np.all(walls, axis=1))
    # Another move to the same plane: a random one in the box, pushed onto it where the box lets it.
    other = np.random.default_rng(seed).uniform(0, 1, points.shape)
    pushed = other + project(other.astype(np.float32), normals, offsets, "l2")
    feasible = np.abs(np.sum(normals * (pushed - ends), axis=1)) <= 1e-6 * np.abs(normals).sum(axis=1)
    for here, there, ours in zip(points[feasible], pushed[feasible], moves[feasible], strict=True):
        mixed = [share * (there - here) + (1 - share) * ours for share in (0.01, 1.0)]
        assert all(projections.measure(ours, kind) <= projections.measure(blend, kind) + 1e-4 for blend in mixed)


@pytest.mark.parametrize("kind", KINDS)
def test_degenerate_planes(kind):
    points = np.array([[0.25, 0.5, 1.0], [0.25, 0.5, 1.0], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]], np.float32)
    normals = np.array([[0, 0, 0], [1, -2, 3], [1, -1, 0], [1, 1, -1]], np.float32)
    # No normal; out of reach; no room where it would have to go; on the plane already.
    got = project(points, normals, np.array([1.0, 50.0, -3.0, -1.0], np.float32), kind)
    np.testing.assert_array_equal(got, [[0, 0, 0], [0.75, -0.5, 0], [0, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1e20])
def test_the_length_of_the_normal_does_not_matter(kind, scale):
    points, normals, _ = case(8, 9)
    normals /= np.abs(normals).max(axis=1, keepdims=True)
    excess = np.linspace(-1.5, 1.5, 8, dtype=np.float32)
    plain = hyperplane.move(tf.constant(points), tf.constant(normals), tf.constant(excess), kind)
    scaled = [np.float32(scale) * array for array in (normals, excess)]
    np.testing.assert_allclose(hyperplane.move(tf.constant(points), *map(tf.constant, scaled), kind), plain, atol=1e-6)


def test_equal_weights_share_the_shortest_l1_move_and_boxes_may_be_others():
    points, normals = np.full([1, 4], 0.5, np.float32), np.array([[1, 1, -1, 0.5]], np.float32)
    np.testing.assert_allclose(project(points, normals, [1.35], "l1"), [[0.2, 0.2, -0.2, 0]], atol=1e-6)
    points, normals = np.array([[-0.5, 0.5]], np.float32), np.array([[1.0, 1.0]], np.float32)
    np.testing.assert_allclose(project(points, normals, [1.8], "linf", low=-1.0, high=1.0), [[1.3, 0.5]], rtol=1e-6)
    with pytest.raises(ValueError, match="linf.*l2.*l1"):
        hyperplane.move(tf.zeros([1, 2]), tf.zeros([1, 2]), tf.zeros([1]), "l0")


def test_close_to_the_plane_the_move_follows_the_excess():
    # <w, t> is some hundreds, the excess 1e-6: their float32 difference would be noise.
    points, normals, _ = case(2, 300)
    excess = np.full(8, 1e-6, np.float32)
    moves = hyperplane.move(tf.constant(points), tf.constant(normals), tf.constant(excess), "l2").numpy()
    np.testing.assert_allclose(np.sum(normals.astype(np.float64) * moves, axis=1), -1e-6, rtol=1e-4)


@pytest.mark.parametrize("kind", ["linf", "l2"])
def test_cut_short_it_does_not_overshoot(kind, monkeypatch):
    points, normals, offsets = case(4, 30)
    exact = project(points, normals, offsets, kind)
    monkeypatch.setattr(hyperplane, "_MAX_PASSES", 1)
    short = project(points, normals, offsets, kind)
    assert np.any(short != exact) and np.all(np.abs(short) <= np.abs(exact) + 1e-6)
