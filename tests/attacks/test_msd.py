"""MSD within several norms: a literal step in NumPy, the optimum of a linear objective, and the sets of its points."""

import numpy as np
import pytest
import tensorflow as tf

from oracles import projections
from tfrobust.keras.attacks import MSD, ThreatModel

SIZE, KINDS, RADII = 10, ("linf", "l2", "l1"), (0.1, 0.25, 0.6)
THREATS = tuple(ThreatModel(norm=kind, epsilon=radius, l1_share=0.0) for kind, radius in zip(KINDS, RADII, strict=True))


def literal_step(x, kind, gradient, size):
    """Return x after one step of the given length in the direction in which a linear function rises most."""
    if kind == "linf":
        return x + size * np.sign(gradient)
    if kind == "l2":
        return x + size * gradient / np.sqrt(np.sum(gradient**2))
    moved = x.copy()
    for position in np.argsort(-np.abs(gradient)):  # one pixel after the other, as far as the box lets it move
        room = 1 - x[position] if gradient[position] > 0 else x[position]
        length = min(size, room)
        moved[position] += np.sign(gradient[position]) * length
        size -= length
    return moved


def test_each_step_is_the_worst_of_all_norms_in_numpy():
    generator = np.random.default_rng(3)
    images, slopes, bends = generator.uniform(0, 1, (12, SIZE)), *generator.normal(size=(2, 12, SIZE)) * [[[1]], [[6]]]
    slopes[:4] *= generator.uniform(size=(4, SIZE)) < 0.2  # L1 is the strongest where few pixels matter
    sizes = (0.05, 0.1, 0.15)
    chosen, expected = [], []
    for x, slope, bend in zip(images, slopes, bends, strict=True):
        bend = bend * (slope != 0)
        value = lambda z, slope=slope, bend=bend: slope @ z + 0.5 * bend @ z**2  # noqa: E731
        point = x
        for _ in range(4):
            steps = [
                projections.project(x, literal_step(point, kind, slope + bend * point, size), kind, radius, 0, 1)
                for kind, size, radius in zip(KINDS, sizes, RADII, strict=True)
            ]
            chosen.append(int(np.argmax([value(step) for step in steps])))
            point = steps[chosen[-1]]
        expected.append(point)
    assert set(chosen) == {0, 1, 2}
    slopes, bends = (tf.constant(part, tf.float32) for part in (slopes, bends * (slopes != 0)))
    objective = lambda z: tf.reduce_sum(slopes * z + 0.5 * bends * z**2, axis=1)  # noqa: E731
    attack = MSD(THREATS, steps=4, step_sizes=sizes)
    points = attack.perturb(objective, tf.constant(images, tf.float32), tf.constant([1, 2]))
    np.testing.assert_allclose(points, expected, atol=1e-5)


def test_one_long_step_finds_the_optimum_of_a_linear_objective_over_the_union():
    """The optimum within a ball is its radius times the dual norm; some points lie outside of the first ball."""
    slopes = np.random.default_rng(0).normal(size=(9, SIZE)).astype(np.float32)
    slopes[:3, 1:] *= 0.05
    slopes[3:] = np.sign(slopes[3:])
    slopes[6:, 5:] = 0
    # In L1 a pixel in the middle of the box moves by 0.5, less than the radius.
    gains = (0.1, 0.25, 0.5) * np.stack(
        [np.abs(slopes).sum(1), np.linalg.norm(slopes, axis=1), np.abs(slopes).max(1)], axis=1
    )
    assert set(gains.argmax(1)) == {0, 1, 2}
    images = tf.fill([9, SIZE], 0.5)
    attack = MSD(THREATS, steps=1, step_sizes=(0.1, 0.25, 0.5))
    points = attack.perturb(lambda z: tf.reduce_sum(z * slopes, 1), images, tf.constant([1, 2]))
    np.testing.assert_allclose(tf.reduce_sum((points - images) * slopes, 1), gains.max(1), rtol=1e-4)
    inside = np.stack([threat.contains(images, points) for threat in THREATS], axis=1)
    assert inside.any(1).all() and not inside[:, 0].all()


def test_sizes_follow_the_radii():
    assert MSD(THREATS, steps=10).resolved_step_sizes == pytest.approx((0.025, 0.0625, 0.15))
    larger = MSD(THREATS, steps=10, step_sizes=(0.01, 0.02, 0.03)).with_epsilon(0.2)
    assert [threat.epsilon for threat in larger.threats] == pytest.approx([0.2, 0.5, 1.2])
    assert larger.step_sizes == pytest.approx((0.02, 0.04, 0.06)) and larger.threats[2].norm == "l1"


def test_a_ramp_scales_all_radii():
    images, slopes = tf.fill([3, SIZE], 0.5), tf.constant(np.random.default_rng(4).normal(size=(3, SIZE)), tf.float32)
    objective, key = lambda z: tf.reduce_sum(z * slopes, axis=1), tf.constant([1, 2])  # noqa: E731
    attack = MSD(THREATS, steps=3)
    halved = attack.scaled(tf.constant(0.5)).perturb(objective, images, key)
    np.testing.assert_allclose(halved, attack.with_epsilon(0.05).perturb(objective, images, key), atol=1e-6)
    assert np.any(halved != attack.perturb(objective, images, key))
