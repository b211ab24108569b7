"""Threat models with a budget for frames: each frame in a ball of its own, or a limited number of changed frames."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import projections
from tfrobust.attacks.shared.threat import ThreatModel

KINDS = ["linf", "l2", "l1"]
SHAPE = (4, 1, 3, 1)
EPSILONS = {"linf": 0.2, "l2": 0.3, "l1": 0.5}


def clips(seed=0, count=12):
    rng = np.random.default_rng(seed)
    low, high = rng.choice([(0.0, 1.0), (0.4, 0.6)])
    inputs = rng.uniform(low, high, [count, *SHAPE]).astype(np.float32)
    inputs[rng.random(inputs.shape) < 0.1] = 0.0  # no room on one side
    scale = 10.0 ** rng.uniform(-1.5, 0.5, [count, 4, 1, 1, 1])  # frames of very different sizes
    return inputs, (inputs + scale * rng.standard_normal(inputs.shape)).astype(np.float32)


def flat(tensor):
    return np.asarray(tensor, np.float64).reshape(-1, 4, 3)


@pytest.mark.parametrize("per_frame", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_projection_is_the_nearest_over_all_choices_of_frames(kind, per_frame):
    threat = ThreatModel(norm=kind, epsilon=EPSILONS[kind], bounds=(0, 1), per_frame=per_frame, max_frames=2)
    inputs, candidate = clips()
    nearest, exact = threat.project(tf.constant(inputs), tf.constant(candidate)), kind == "linf" or per_frame
    short = []
    for x, c, z in zip(flat(inputs), flat(candidate), flat(nearest), strict=True):
        pairs = itertools.combinations(range(4), 2)
        every = [projections.project_frames(x, c, kind, threat.epsilon, pair, per_frame, 0, 1) for pair in pairs]
        short.append(np.linalg.norm(z - c) - min(np.linalg.norm(point - c) for point in every))
        # Whatever the frames are, the point is the nearest of those that change them only.
        assert min(np.abs(z - point).max() for point in every) < 1e-5
    assert np.max(short) < (1e-5 if exact else 0.05)


def test_without_the_box_the_projection_in_l2_is_the_nearest():
    threat = ThreatModel(norm="l2", epsilon=0.3, bounds=(-50.0, 50.0), max_frames=2)
    inputs, candidate = clips(3)
    nearest = threat.project(tf.constant(inputs), tf.constant(candidate))
    for x, c, z in zip(flat(inputs), flat(candidate), flat(nearest), strict=True):
        pairs = itertools.combinations(range(4), 2)
        least = min(np.linalg.norm(projections.project_frames(x, c, "l2", 0.3, pair) - c) for pair in pairs)
        assert np.linalg.norm(z - c) == pytest.approx(least, abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(KINDS),
    per_frame=st.booleans(),
    count=st.sampled_from([None, 1, 3]),
)
def test_projections_lie_in_the_set_and_stay_where_they_are(seed, kind, per_frame, count):
    threat = ThreatModel(norm=kind, epsilon=EPSILONS[kind], per_frame=per_frame, max_frames=count)
    inputs, candidate = map(tf.constant, clips(seed, 4))
    point = threat.project(inputs, candidate)
    assert np.all(threat.contains(inputs, point))
    np.testing.assert_allclose(threat.project(inputs, point), point, atol=2e-6)
    frames = np.any(point != inputs, axis=(2, 3, 4)).sum(axis=1)
    assert frames.max() <= (count or 4)
    sizes = [[projections.measure(frame, kind) for frame in clip] for clip in flat(point - inputs)]
    bound = threat.epsilon * (1 + 1e-5)
    assert np.max(sizes) <= bound
    assert per_frame or all(projections.measure(clip, kind) <= bound for clip in flat(point - inputs))


def test_in_linf_the_budget_per_frame_is_that_of_the_clip_and_all_frames_are_no_limit():
    inputs, candidate = map(tf.constant, clips(5))
    for kind in KINDS:
        plain = ThreatModel(norm=kind, epsilon=EPSILONS[kind])
        limited = ThreatModel(norm=kind, epsilon=EPSILONS[kind], max_frames=4)
        np.testing.assert_array_equal(limited.project(inputs, candidate), plain.project(inputs, candidate))
    per_frame, key = ThreatModel(per_frame=True, epsilon=0.2), tf.constant([1, 2])
    np.testing.assert_array_equal(
        per_frame.random_start(inputs, key), ThreatModel(epsilon=0.2).random_start(inputs, key)
    )


def test_radii_of_examples_are_those_of_their_frames():
    threat = ThreatModel(norm="l1", epsilon=0.5, per_frame=True)
    inputs, candidate = clips(7, 3)
    radii = [0.1, 0.3, 0.7]
    nearest = threat.project_ball(tf.constant(inputs), tf.constant(candidate), tf.constant(radii))
    for x, c, z, radius in zip(flat(inputs), flat(candidate), flat(nearest), radii, strict=True):
        np.testing.assert_allclose(z, projections.project_frames(x, c, "l1", radius, range(4), True, 0, 1), atol=1e-5)


def test_what_the_set_does_not_contain():
    threat = ThreatModel(norm="l2", epsilon=0.3, per_frame=True, max_frames=2)
    inputs = np.full([6, *SHAPE], 0.1, np.float32)
    points = inputs.copy()
    points[0, :2, 0, 0] += 0.3  # both frames on their spheres: inside
    points[1, 0, 0, :2] += 0.3  # a frame outside of its ball
    points[2, :3, 0, 0] += 1e-6  # three frames
    points[3, 0, 0, 0] -= 0.2  # outside of the box
    points[4, 3, 0, 0] = np.nan
    assert threat.contains(tf.constant(inputs), tf.constant(points)).numpy().tolist() == [True] + 4 * [False] + [True]


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("kind", ["l2", "l1"])
def test_random_starts_fill_the_ball_of_each_frame_with_draws_of_its_own(kind, stacked):
    threat = ThreatModel(norm=kind, epsilon=0.3, per_frame=True)
    inputs = tf.fill([200, *SHAPE], 0.5)
    keys = tf.stack([tf.range(200), tf.range(200)], axis=1) if stacked else tf.constant([4, 5])
    changes = flat(threat.random_start(inputs, keys) - inputs)
    sizes = np.linalg.norm(changes, 1 if kind == "l1" else 2, axis=-1)
    # Uniform by volume in three dimensions: P(|p| <= r epsilon) = r^3, whose mean is 3/4.
    assert sizes.max() <= 0.3 * (1 + 1e-5) and sizes.mean() == pytest.approx(0.3 * 0.75, abs=0.01)
    assert abs(np.corrcoef(changes[:, 0, 0], changes[:, 1, 0])[0, 1]) < 0.25
    if stacked:
        alone = threat.random_start(inputs[7:8], keys[7:8])
        np.testing.assert_allclose(alone, threat.random_start(inputs, keys)[7:8], atol=1e-6)


@pytest.mark.parametrize("per_frame", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_focused_step_from_the_clip_is_the_steepest_of_all_choices_of_frames(kind, per_frame):
    threat = ThreatModel(norm=kind, epsilon=0.05, per_frame=per_frame, max_frames=2, l1_share=0.0)
    inputs = tf.fill([10, *SHAPE], 0.5)
    gradient = tf.random.stateless_normal([10, *SHAPE], [3, 4])
    moved = threat.step(inputs, threat.focus(inputs, inputs, gradient), 0.05) - inputs
    assert np.any(moved != 0, axis=(2, 3, 4)).sum(axis=1).max() <= 2
    reached = np.sum(flat(moved) * flat(gradient), axis=(1, 2))
    best = [
        projections.maximise_frames(g, np.full([4, 3], 0.5), kind, 0.05, 2, per_frame, 0, 1) for g in flat(gradient)
    ]
    np.testing.assert_allclose(reached, best, rtol=1e-5)


def test_changed_frames_keep_their_places():
    threat = ThreatModel(max_frames=2, epsilon=0.2)
    inputs = tf.fill([1, *SHAPE], 0.5)
    point = inputs + tf.reshape([0.0, 0.1, 0.0, 0.0], [1, 4, 1, 1, 1])
    gradient = tf.reshape([9.0, 0.0, 2.0, 3.0], [1, 4, 1, 1, 1]) * tf.ones_like(inputs)
    assert flat(threat.focus(inputs, point, gradient))[0, :, 0].tolist() == [9.0, 0.0, 0.0, 0.0]
    crowded = point + 0.05
    settled = flat(threat.settle(inputs, crowded, gradient) - inputs)[0, :, 0]
    np.testing.assert_allclose(settled, [0.05, 0, 0, 0.05], atol=1e-6)


def test_ids_and_settings_name_the_variant():
    assert ThreatModel(epsilon=0.2).variant == "" and ThreatModel(epsilon=0.2).frame_settings == {}
    both = ThreatModel(norm="l2", epsilon=1.5, per_frame=True, max_frames=2)
    assert both.variant == "_per_frame_max_frames_2" and both.budget == "l2 1.5 per frame max frames 2"
    assert both.frame_settings == {"per_frame": True, "max_frames": 2}
