import numpy as np
import pytest
import tensorflow as tf

from tfrobust.attacks.shared import runner
from tfrobust.attacks.shared.goal import Goal
from tfrobust.keras.attacks import GaussianNoise, ThreatModel, UniformNoise

SHAPE = (5, 5, 2)
SIZE = 50
EPSILONS = {"linf": 0.1, "l2": 0.4, "l1": 1.0}
KINDS = list(EPSILONS)


def brighter(points):
    """Wrong where the mean is above a half."""
    level = tf.reduce_mean(points, [1, 2, 3])
    return tf.stack([tf.fill(tf.shape(level), 0.5), level], axis=-1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_has_the_size_of_the_ball(kind):
    images, threat = tf.fill([2000, *SHAPE], 0.5), ThreatModel(norm=kind, epsilon=EPSILONS[kind])
    uniform = UniformNoise(threat).perturb(None, images, tf.constant([1, 2])) - images
    attack = GaussianNoise(threat)
    gaussian = attack.perturb(None, images, tf.constant([1, 2])) - images
    for noise in (uniform, gaussian):
        assert np.all(threat.distance(tf.zeros_like(noise), noise) <= threat.epsilon * (1 + 1e-5))
        assert abs(np.mean(noise)) < 5 * np.std(noise) / np.sqrt(2000 * SIZE)
    # Uniform by volume: the share of the radius is U^(1/d). In Linf each value is uniform.
    radii = threat.distance(tf.zeros_like(uniform), uniform).numpy() / threat.epsilon
    np.testing.assert_allclose(np.mean(radii), SIZE / (SIZE + 1), atol=2e-3)
    free = np.random.default_rng(0).standard_normal([2000, SIZE]) * attack.resolved_deviation(SHAPE)
    typical = {
        "linf": np.std(free),
        "l2": np.sqrt(np.mean(np.sum(free**2, axis=1))),
        "l1": np.mean(np.sum(np.abs(free), axis=1)),
    }
    assert typical[kind] == pytest.approx(threat.epsilon, rel=0.02)
    # Points outside are projected, which reduces the deviation: Linf clips a third, L2 and L1 shrink every second.
    assert 0.5 < np.std(gaussian) / attack.resolved_deviation(SHAPE) < 1.0


def test_a_small_deviation_is_left_alone():
    images = tf.fill([2000, *SHAPE], 0.5)
    noise = GaussianNoise(ThreatModel(epsilon=0.1), deviation=0.01).perturb(None, images, tf.constant([3, 4])) - 0.5
    assert abs(np.std(noise) - 0.01) < 2e-4


def test_a_joint_draw_for_two_views():
    images = {"a": tf.fill([3, *SHAPE], 0.5), "b": tf.fill([3, *SHAPE], 0.5)}
    points = UniformNoise(ThreatModel(epsilon=0.2)).perturb(None, images, tf.constant([1, 1]))
    assert np.any(points["a"] != points["b"])


@pytest.mark.parametrize("make", [UniformNoise, GaussianNoise])
def test_the_best_of_the_draws_counts(make):
    # The mean of n values uniform in +-0.1 has deviation 0.1 / sqrt(3 n): a threshold of one deviation is passed by
    # 16 % of the draws, so by 1 - 0.84^10 = 82 % of the examples in ten.
    attack, images = make(ThreatModel(epsilon=0.1), draws=10), np.zeros([400, *SHAPE], np.float32)
    deviation = np.std(attack.perturb(None, tf.fill([400, *SHAPE], 0.5), tf.constant([5, 6])))
    images += 0.5 - deviation / np.sqrt(SIZE)
    result = runner.run_attack(attack, brighter, images, np.zeros(400, int), seed=1)
    assert abs(np.mean(result.success) - (1 - 0.8413**10)) < 0.08
    single = make(ThreatModel(epsilon=0.1), draws=1)
    assert abs(np.mean(runner.run_attack(single, brighter, images, np.zeros(400, int)).success) - 0.1587) < 0.08
    assert attack.rounds(10) == 1 and attack.steps == 10


@pytest.mark.parametrize("make", [UniformNoise, GaussianNoise])
def test_without_success_the_best_draw_is_the_candidate(make):
    attack = make(ThreatModel(epsilon=0.1), draws=6)
    images, keys = tf.fill([3, *SHAPE], 0.2), tf.constant([[1, i] for i in range(3)])
    goal, rounds = Goal(tf.zeros(3, tf.int32)), tf.zeros(3, tf.int32)
    state = attack.start(brighter, images, goal, keys, rounds)
    draws = attack._draws(images, keys, tf.tile(tf.range(6)[:, None], [1, 3]))
    points = [attack._noisy(images, draws[step]) for step in range(6)]
    assert len({tuple(np.ravel(point)) for step in points for point in step}) == 18
    best = np.maximum(np.max([goal.margin(brighter(point)) for point in points], axis=0), state["margin"])
    state = attack.advance(brighter, images, goal, rounds, state, tf.constant(6))
    np.testing.assert_allclose(goal.margin(brighter(attack.candidate(state))), best, rtol=1e-5)
