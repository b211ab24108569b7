import itertools

import numpy as np
import pytest
import tensorflow as tf

from conformance.attacks import run_by_hand
from oracles import projections
from oracles import square as oracle
from tfrobust.attacks import square
from tfrobust.attacks.shared import runner
from tfrobust.attacks.shared.goal import Goal
from tfrobust.keras.attacks import Square, ThreatModel

KINDS = ["linf", "l2", "l1"]
EPSILONS = {"linf": 0.1, "l2": 0.8, "l1": 4.0}
SHAPES = [(4, 4, 1), (8, 8, 1), (9, 9, 3), (6, 11, 2), (11, 6, 2), (1, 5, 1), (1, 1, 3), (12, 2, 1)]


def images(shape, count=5, seed=0):
    return np.random.default_rng(seed).uniform(0, 1, [count, *shape]).astype(np.float32)


def still(points):
    """Never misclassified, and every change of the brightness counts."""
    return tf.stack([tf.fill([tf.shape(points)[0]], 1e3), tf.reduce_sum(points, [1, 2, 3])], axis=-1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("height,width", [(4, 4), (8, 8), (32, 32), (28, 17), (1, 3)])
def test_sides_follow_the_schedule(height, width, kind):
    steps = 9000
    sides = square.sides(height, width, kind, square.shares(steps=steps, initial_share=0.8, rescale=False))
    some = [*range(0, 60), *range(190, 210), 500, 501, 1000, 1001, 2001, 4000, 4001, 6000, 6001, 8000, 8001, 8999]
    assert [int(sides[step]) for step in some] == [oracle.side(step, height, width, kind) for step in some]
    spread = square.sides(height, width, kind, square.shares(steps=1000, initial_share=0.8, rescale=True))
    np.testing.assert_array_equal(spread, [oracle.side(10 * step, height, width, kind) for step in range(1000)])


@pytest.mark.parametrize("kind", ["l2", "l1"])
def test_patterns(kind):
    for side in range(1, 12):
        pattern = square.window_pattern(side, kind)
        np.testing.assert_allclose(pattern, oracle.pattern(side, kind), rtol=1e-12)
        assert np.linalg.norm(pattern.ravel(), 2 if kind == "l2" else 1) == pytest.approx(1)
        assert np.all(pattern[: side // 2] > 0) and np.all(pattern[side // 2 :] < 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_steps_agree_with_the_plain_ones(shape, kind):
    if kind != "linf" and min(shape[:2]) == 1:
        pytest.skip("In a window of one pixel content and filling may cancel: rounding decides what is left.")
    epsilon, rng, centres = EPSILONS[kind], np.random.default_rng(3), images(shape)
    attack, (height, width, channels) = Square(ThreatModel(norm=kind, epsilon=epsilon), steps=300), shape
    propose = attack._proposals(tf.constant(centres))
    best = attack._first_point(tf.constant(centres), tf.constant(rng.integers(0, 2**31 - 1, [5, 2]), tf.int32)).numpy()
    for step in (0, 5, 30, 100, 250):
        side = oracle.side(step, height, width, kind)
        corners = np.stack([rng.integers(0, max(limit - side, 1), 5) for limit in [height, width] * 2], axis=-1)
        signs, transposed = rng.random([5, channels]) < 0.5, rng.random(5) < 0.5
        draws = [
            tf.constant(values)[None]
            for values in (np.full(5, side, np.int32), corners.astype(np.int32), signs, transposed)
        ]
        draw = tf.nest.map_structure(lambda array: array[0], attack._windows(tf.constant(centres), *draws))
        proposed = propose(tf.constant(best), draw).numpy()
        for i in range(5):
            plus_minus = np.where(signs[i], 1.0, -1.0)
            arguments = centres[i].astype(np.float64), best[i].astype(np.float64), epsilon, side
            if kind == "linf":
                expected = oracle.linf_step(*arguments, corners[i, :2], plus_minus)
            else:
                expected = oracle.window_step(*arguments, corners[i].reshape(2, 2), plus_minus, transposed[i], kind)
            np.testing.assert_allclose(proposed[i], expected, atol=1e-5)
        best = proposed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(4, 4, 1), (8, 8, 1), (14, 14, 2), (32, 32, 3)])
def test_starts_agree_with_the_plain_ones(shape, kind):
    epsilon, rng, centres = EPSILONS[kind], np.random.default_rng(4), images(shape, 3)
    attack = Square(ThreatModel(norm=kind, epsilon=epsilon))
    if kind == "linf":
        signs = rng.random([3, 1, shape[1], shape[2]]) < 0.5
        expected = np.clip(centres + epsilon * np.where(signs, 1, -1), 0, 1)
        np.testing.assert_allclose(attack._striped(tf.constant(centres), tf.constant(signs)), expected, atol=1e-6)
        return
    _, _, down, across = square.tiling(*shape[:2])
    signs, transposed = rng.random([3, down, across, shape[2]]) < 0.5, rng.random([3, down, across]) < 0.5
    points = attack._tiled(*map(tf.constant, (centres, signs, transposed))).numpy()
    for i in range(3):
        arguments = centres[i].astype(np.float64), epsilon, np.where(signs[i], 1.0, -1.0), transposed[i]
        np.testing.assert_allclose(points[i], oracle.tiled(*arguments, kind), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_away_from_the_box_every_point_has_norm_epsilon(kind):
    centres, epsilon = tf.fill([4, 8, 8, 2], 0.5), {"linf": 0.1, "l2": 0.3, "l1": 0.4}[kind]
    attack = Square(ThreatModel(norm=kind, epsilon=epsilon), steps=12)
    keys, goal, rounds = tf.constant([[1, i] for i in range(4)]), Goal(tf.zeros(4, tf.int32)), tf.zeros(4, tf.int32)
    state = attack.start(still, centres, goal, keys, rounds)
    margins = [state["margin"]]
    for _ in range(3):
        np.testing.assert_allclose(attack.threat.distance(centres, state["point"]), epsilon, rtol=1e-5)
        state = attack.advance(still, centres, goal, rounds, state, tf.constant(4))
        margins.append(state["margin"])
    assert np.all(np.diff(margins, axis=0) >= 0) and np.all(margins[-1] > margins[0])


def test_reaches_the_optimum_of_a_linear_model_where_it_can_go():
    # The last row and column that a window fits in are never drawn, as in the official code: they carry no weight.
    rng, epsilon, centres = np.random.default_rng(0), 0.1, images((5, 5, 1), 12, seed=1)
    weights = rng.standard_normal([5, 5, 1])
    weights[-1] = weights[:, -1] = 0
    best = [projections.linear_maximiser(-weights.ravel(), x.ravel(), "linf", epsilon, 0, 1) for x in centres]
    margins = np.array(best) @ weights.ravel()
    for final_margin, succeeds in ((1e-3, False), (-1e-3, True)):
        # Each image's own bias: the best attack just fails, or just succeeds.
        bias = tf.constant(final_margin - margins, tf.float32)
        attack = Square(ThreatModel(epsilon=epsilon), steps=1500)

        def predict(points, bias=bias):
            score = tf.linalg.matvec(tf.reshape(points, [-1, 25]), tf.constant(weights.ravel(), tf.float32)) + bias
            return tf.stack([tf.zeros_like(score), score], axis=-1)

        _, success = run_by_hand(attack, predict, centres, tf.ones(12, tf.int32), tf.constant([7, 0]))
        np.testing.assert_array_equal(success, np.full(12, succeeds))


def test_a_targeted_search_ends_at_the_target():
    def predict(points):
        level = tf.reduce_mean(points, [1, 2])  # three channels, three classes
        return 10 * level

    centres = np.full([6, 6, 6, 3], 0.5, np.float32) + np.array([0.06, 0.0, 0.03], np.float32)
    attack = Square(ThreatModel(epsilon=0.1), steps=300)
    result = runner.run_attack(attack, predict, centres, np.zeros(6, int), targets=np.ones(6, int))
    assert result.success.all()
    np.testing.assert_array_equal(np.argmax(predict(tf.constant(result.adversarial)), -1), 1)


def test_the_draws_do_not_depend_on_how_steps_are_grouped():
    centres = tf.constant(images((6, 6, 1), 4))
    attack, goal, rounds = Square(ThreatModel(epsilon=0.1)), Goal(tf.zeros(4, tf.int32)), tf.zeros(4, tf.int32)
    keys = tf.constant([[3, i] for i in range(4)])
    start = attack.start(still, centres, goal, keys, rounds)
    advance = tf.function(attack.advance, autograph=False)
    once = advance(still, centres, goal, rounds, start, tf.constant(150))
    parts = start
    for count in (1, 70, 79):
        parts = advance(still, centres, goal, rounds, parts, tf.constant(count))
    for name, value in once.items():
        np.testing.assert_array_equal(value, parts[name])
    # Steps beyond the last one change no point of an example for which the attack succeeded.
    succeeded = once | {"found": tf.fill([4], True), "iteration": tf.fill([4], 5000)}
    after = advance(still, centres, goal, rounds, succeeded, tf.constant(20))
    np.testing.assert_array_equal(after["point"], once["point"])


def test_windows_are_drawn_evenly_and_apart_for_each_example():
    centres = tf.zeros([2, 8, 8, 1])
    attack = Square(ThreatModel(epsilon=0.1))
    iterations = tf.tile(tf.range(2001, 4001)[:, None], [1, 2])  # side 1, seven places
    draws = attack._draws(centres, tf.constant([[5, 0], [5, 1]]), iterations)
    places = np.argmax(draws.rows.numpy()[..., 0, 0], axis=-1), np.argmax(draws.columns.numpy()[:, :, 0, :, 0], axis=-1)
    for axis in places:
        for example in (0, 1):
            counts = np.bincount(axis[:, example], minlength=8)
            assert counts[7] == 0  # as in the official code
            assert np.all(np.abs(counts[:7] - 2000 / 7) < 5 * np.sqrt(2000 / 7))
        assert np.mean(axis[:, 0] == axis[:, 1]) < 0.2
    assert abs(np.mean(draws.signs) - 0.5) < 0.05
    assert abs(np.mean(places[0][:, 0] == places[1][:, 0]) - 1 / 7) < 0.05


def test_a_model_that_returns_nan():
    linear = lambda points: tf.reduce_sum(points, [1, 2, 3])[:, None] * [[1.0, -1.0, 0.0]]  # noqa: E731

    def nan_above(points, level):
        logits = linear(points)
        return tf.where(logits[:, :1] > level, float("nan"), logits)

    centres = np.full([3, 4, 4, 1], 0.5, np.float32)
    attack = Square(ThreatModel(epsilon=0.1), steps=60)
    # NaN counts as misclassified in an untargeted search, whose point is finite.
    result = runner.run_attack(attack, lambda points: nan_above(points, 8.0), centres, np.zeros(3, int))
    assert result.success.all() and np.all(np.isfinite(result.adversarial))
    # A targeted search never accepts NaN and continues from the last finite margin.
    goal, rounds = Goal(tf.zeros(3, tf.int32), tf.ones(3, tf.int32)), tf.zeros(3, tf.int32)
    predict, keys = lambda points: nan_above(points, 8.0), tf.constant([[1, i] for i in range(3)])
    state = attack.start(predict, tf.constant(centres), goal, keys, rounds)
    state = attack.advance(predict, tf.constant(centres), goal, rounds, state, tf.constant(60))
    assert np.all(np.isfinite(state["margin"])) and not np.any(state["found"])
    assert np.all(np.sum(state["point"], axis=(1, 2, 3)) < 8.0)


def test_an_exact_tie_that_is_no_error_does_not_end_the_search():
    def tie(points):
        bright = tf.cast(tf.reduce_mean(points, [1, 2, 3]) > 0.53, tf.float32)
        return tf.stack([tf.ones_like(bright), 1.0 + bright], axis=-1)

    # Equal logits where it is dark: the label comes first, so that the model is right.
    centres, attack = np.full([8, 6, 6, 1], 0.5, np.float32), Square(ThreatModel(epsilon=0.1), steps=50)
    keys, goal, rounds = tf.constant([[1, i] for i in range(8)]), Goal(tf.zeros(8, tf.int32)), tf.zeros(8, tf.int32)
    state = attack.start(tie, tf.constant(centres), goal, keys, rounds)
    assert np.any(~state["found"].numpy() & (state["margin"].numpy() == 0))
    state = attack.advance(tie, tf.constant(centres), goal, rounds, state, tf.constant(50))
    assert np.all(state["found"]) and np.all(tf.reduce_mean(state["point"], [1, 2, 3]) > 0.53)


@pytest.mark.parametrize("shape,kind", list(zip(SHAPES, itertools.cycle(KINDS), strict=False)))
def test_any_image_size_is_searched_inside_the_set(shape, kind):
    threat, centres = ThreatModel(norm=kind, epsilon=0.3), images(shape, 3, seed=2)
    attack = Square(threat, steps=30)
    goal, rounds = Goal(tf.zeros(3, tf.int32)), tf.zeros(3, tf.int32)
    keys = tf.constant([[1, i] for i in range(3)])
    state = attack.start(still, tf.constant(centres), goal, keys, rounds)
    state = attack.advance(still, tf.constant(centres), goal, rounds, state, tf.constant(30))
    point = state["point"].numpy()
    assert np.all(np.isfinite(point)) and point.min() >= 0 and point.max() <= 1
    assert np.all(threat.distance(tf.constant(centres), state["point"]) <= 0.3 * (1 + 1e-5))
    assert np.all(threat.distance(tf.constant(centres), state["point"]) > 0)


def test_after_a_refused_point_the_next_one_is_taken():
    """The refused margin was reached by chance: few points would exceed it."""
    centres, attack = tf.fill([2, 6, 6, 1], 0.5), Square(ThreatModel(epsilon=0.1), steps=50)
    keys, goal, rounds = tf.constant([[1, 0], [1, 1]]), Goal(tf.zeros(2, tf.int32)), tf.zeros(2, tf.int32)
    state = attack.start(still, centres, goal, keys, rounds) | {"margin": tf.ones(2), "found": tf.fill([2], True)}
    state = attack.refuse(state, tf.constant([True, False]))
    after = attack.advance(still, centres, goal, rounds, state, tf.constant(5))
    np.testing.assert_array_equal(np.any(after["point"] != state["point"], axis=(1, 2, 3)), [True, False])
    assert np.all(after["margin"][:1] < 0) and after["found"].numpy().tolist() == [False, True]
