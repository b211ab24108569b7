import numpy as np
import pytest
import stored
import tensorflow as tf

from conformance.attacks import SHAPE, SIZE, Linear, examples
from oracles import projections
from tfrobust.attacks import gradient
from tfrobust.attacks.apgd import APGDCrossEntropy
from tfrobust.attacks.msd import MSD
from tfrobust.attacks.shared import runner
from tfrobust.attacks.shared.goal import Goal
from tfrobust.attacks.shared.threat import ThreatModel


@pytest.mark.parametrize("make", [gradient.PGD, APGDCrossEntropy, lambda threat, steps: MSD((threat,), steps=steps)])
def test_an_array_is_perturbed_as_the_tensor_of_its_numbers(make):
    attack, images = make(ThreatModel(epsilon=0.1), steps=2), np.random.default_rng(0).uniform(size=(2, 3))
    of_array, of_tensor = (
        attack.perturb(lambda x: tf.reduce_sum(x, 1), values, tf.constant([0, 1]))
        for values in (images, tf.constant(images, tf.float32))
    )
    np.testing.assert_array_equal(of_array, of_tensor)


@pytest.mark.parametrize("kind,epsilon", [("linf", 0.3), ("l2", 0.9), ("l1", 1.7)])
def test_pgd_finds_the_optimum_of_a_linear_objective_where_ball_and_box_bind(kind, epsilon):
    rng = np.random.default_rng(2)
    images = rng.uniform(0, 1, [6, SIZE]).astype(np.float32)
    images[:, ::3] = 1.0
    directions = rng.standard_normal([6, SIZE]).astype(np.float32)
    threat = ThreatModel(norm=kind, epsilon=epsilon, l1_share=0.0)
    # In L2 the last part of the way is along the sphere: with many small steps it would take thousands.
    attack = gradient.PGD(threat, steps=200, step_size=epsilon if kind == "l2" else None)
    objective = lambda x: tf.reduce_sum(x * directions, axis=1)  # noqa: E731
    points = tf.function(attack.perturb, autograph=False)(objective, tf.constant(images), tf.constant([1, 2]))
    pairs = zip(directions, images, strict=True)
    best = [projections.linear_maximiser(g, x, kind, epsilon, 0, 1) for g, x in pairs]
    reached = np.sum((points - images) * directions, axis=1)
    possible = np.sum((np.array(best) - images) * directions, axis=1)
    np.testing.assert_allclose(reached, possible, rtol=5e-3)
    assert np.all(reached <= possible + 1e-5)


@pytest.mark.parametrize("steps,step_size,expected", [(5, 0.01, 0.05), (5, 0.06, 0.1), (1, None, 0.1)])
def test_steps_add_up_to_epsilon_at_most(steps, step_size, expected):
    attack = gradient.PGD(ThreatModel(epsilon=0.1), steps=steps, step_size=step_size, random_start="none")
    point = attack.perturb(lambda x: tf.reduce_sum(x, 1), tf.fill([1, 2], 0.5), tf.constant([0, 0]))
    np.testing.assert_allclose(point, 0.5 + expected, atol=1e-6)


def test_the_default_step_is_two_and_a_half_times_epsilon_over_steps():
    # There and back again: the objective's slope changes its sign at 0.5, so each step turns round.
    attack = gradient.PGD(ThreatModel(epsilon=0.1), steps=5, random_start="none")
    point = attack.perturb(lambda x: -tf.reduce_sum(tf.abs(x - 0.5001), 1), tf.fill([1, 2], 0.5), tf.constant([0, 0]))
    np.testing.assert_allclose(point, 0.5 + 2.5 * 0.1 / 5, atol=1e-6)
    scaled = gradient.PGD(ThreatModel(epsilon=0.1), step_size=0.02).with_epsilon(0.3)
    assert scaled.step_size == pytest.approx(0.06) and scaled.threat.epsilon == 0.3


def test_random_starts():
    images, still = tf.fill([2000, 4], 0.5), lambda x: 0.0 * tf.reduce_sum(x, 1)
    key = tf.constant([3, 3])

    def spread(**arguments):
        attack = gradient.PGD(ThreatModel(epsilon=0.2), steps=1, **arguments)
        return attack.perturb(still, images, key).numpy() - 0.5

    assert np.abs(spread(random_start="none")).max() == 0
    uniform = spread(random_start="uniform")
    assert 0.199 < uniform.max() <= 0.2001 and abs(uniform.std() - 0.2 / 3**0.5) < 5e-3
    assert np.abs(spread(random_start="uniform", start_scale=0.5)).max() <= 0.1001
    assert abs(spread(random_start="gaussian").std() - 0.001) < 5e-5
    assert abs(spread(random_start="gaussian", start_scale=0.03).std() - 0.03) < 2e-3


def test_a_joint_adversary_of_two_views():
    images = {"a": tf.fill([3, 2], 0.5), "b": tf.fill([3, 2], 0.4)}
    # Each view's gradient depends on the other view: d/da = b, d/db = a, both positive.
    objective = lambda views: tf.reduce_sum(views["a"] * views["b"], axis=1)  # noqa: E731
    attack = gradient.PGD(ThreatModel(epsilon=0.1), steps=5)
    points = tf.function(attack.perturb, autograph=False)(objective, images, tf.constant([1, 1]))
    np.testing.assert_allclose(points["a"], 0.6, atol=1e-6)
    np.testing.assert_allclose(points["b"], 0.5, atol=1e-6)
    starts = gradient.PGD(ThreatModel(epsilon=0.1), steps=1).perturb(
        lambda views: 0.0 * tf.reduce_sum(views["a"] + views["b"], 1), images, tf.constant([1, 1])
    )
    assert np.any(np.abs((starts["a"] - 0.5) - (starts["b"] - 0.4)) > 1e-3)  # own draws for each view


def test_perturb_traces_its_objective_once_and_stops_gradients():
    calls = []

    @tf.function(autograph=False)
    def train(images, key):
        def objective(x):
            calls.append(1)
            return tf.reduce_sum(x**2, axis=1)

        with tf.GradientTape() as tape:
            tape.watch(images)
            points = gradient.PGD(ThreatModel(epsilon=0.2), steps=7).perturb(objective, images, key)
            value = tf.reduce_sum(points)
        return points, tape.gradient(value, images, unconnected_gradients="zero")

    for step in range(3):
        _, back = train(tf.fill([2, 3], 0.5), tf.constant([0, step]))
    assert len(calls) == 1 and not np.any(back)


def test_multi_targeted_runs_every_other_class():
    attack = gradient.MultiTargetedPGD(ThreatModel(epsilon=0.2), steps=2)
    assert (
        attack.rounds(5) == 4
        and gradient.MultiTargetedPGD(ThreatModel(epsilon=0.2), restarts=2, include_true_class=True).rounds(5) == 10
    )
    logits, labels = tf.random.stateless_normal([4, 4], [1, 1]), tf.constant([0, 1, 2, 3])
    logs = tf.nn.log_softmax(logits).numpy()
    for offset in range(3):
        values = attack._values(logits, Goal(labels), tf.fill([4], offset), {}).numpy()
        np.testing.assert_allclose(values, [logs[i, (i + 1 + offset) % 4] for i in range(4)], rtol=1e-5)
    with_true = gradient.MultiTargetedPGD(ThreatModel(epsilon=0.2), steps=2, include_true_class=True)
    np.testing.assert_allclose(with_true._values(logits, Goal(labels), tf.fill([4], 3), {}), np.diag(logs), rtol=1e-5)


def momentum_by_hand(slope, start, centre, threat, steps, size, decay):
    """MI-FGSM of one vector, float64: slope(x) is the gradient; the directions of eq. 7 and of its L2 form."""
    point, velocity = np.array(start, np.float64), np.zeros(len(start))
    for _ in range(steps):
        gradient = slope(point)
        velocity = decay * velocity + gradient / np.sum(np.abs(gradient))
        if threat.norm == "linf":
            direction = np.sign(velocity)
        elif threat.norm == "l2":
            direction = velocity / np.linalg.norm(velocity)
        else:  # one pixel per step where there is room for all of it: the steepest
            direction = np.sign(velocity) * (np.abs(velocity) == np.abs(velocity).max())
        point = projections.project(centre, point + size * direction, threat.norm, threat.epsilon, 0, 1)
    return point


@pytest.mark.parametrize("kind,epsilon,size,decay", stored.rows(globals(), "momentum_agrees_with_the_loop_by_hand"))
def test_momentum_agrees_with_the_loop_by_hand(kind, epsilon, size, decay):
    rng = np.random.default_rng(5)
    images = rng.uniform(0.35, 0.65, [4, 7]).astype(np.float32)
    peaks = images + rng.uniform(-0.3, 0.3, [4, 7]).astype(np.float32)
    curvature = rng.uniform(0.5, 4, 7).astype(np.float32)
    objective = lambda x: -tf.reduce_sum(curvature * (x - peaks) ** 2, axis=1)  # noqa: E731 - overshot and come back to
    threat = ThreatModel(norm=kind, epsilon=epsilon, l1_share=0.0)
    attack = gradient.MomentumPGD(threat, steps=9, step_size=size, random_start="none", decay=decay)
    points = tf.function(attack.perturb, autograph=False)(objective, tf.constant(images), tf.constant([0, 0]))
    for x, peak, point in zip(images.astype(np.float64), peaks, points, strict=True):
        slope = lambda z, peak=peak: -2 * curvature * (z - peak)  # noqa: E731
        np.testing.assert_allclose(point, momentum_by_hand(slope, x, x, threat, 9, size, decay), atol=1e-5)


def test_momentum_without_decay_is_pgd():
    linear, images = Linear(), examples(8)
    threat, labels = ThreatModel(epsilon=0.018), linear.labels(images)
    plain = runner.run_attack(gradient.PGD(threat, steps=8), linear, images, labels, seed=1)

    class Named(gradient.MomentumPGD):
        name = "pgd"  # so that the draws are the same

    without_decay = runner.run_attack(Named(threat, steps=8, decay=0.0), linear, images, labels, seed=1)
    np.testing.assert_allclose(plain.adversarial, without_decay.adversarial, atol=1e-6)


def test_momentum_of_tiny_gradients_moves():
    tiny = gradient.MomentumPGD(ThreatModel(epsilon=0.1), steps=2, step_size=0.05, random_start="none")
    point = tiny.perturb(lambda x: 1e-36 * tf.reduce_sum(x, 1), tf.fill([1, 9], 0.5), tf.constant([0, 0]))
    np.testing.assert_allclose(point, 0.6, atol=1e-6)


def test_evaluation_keeps_the_first_misclassified_iterate():
    # The model is wrong only in a thin shell that the attack passes and leaves: the last iterate is right again.
    def predict(images):
        x = images[:, 0, 0, 0]
        shell = tf.stop_gradient(0.05 - tf.abs(x - 0.6) - x) + x  # the gradient points onwards everywhere
        return tf.stack([shell, tf.zeros_like(x)], axis=-1)

    images = np.full([1, *SHAPE], 0.45, np.float32)
    attack = gradient.PGD(ThreatModel(epsilon=0.3), steps=10, step_size=0.06, random_start="none")
    result = runner.run_attack(attack, predict, images, [1])
    assert result.success[0] and result.distance[0] == pytest.approx(0.12, abs=1e-5)  # not 0.18, wrong too


def test_one_hook_moves_the_gradient_in_training_and_evaluation():
    class Ahead(gradient.PGD):
        """Takes the gradient 0.3 away from the current point."""

        def _gradient(self, objective, leaves, points, memories):
            return super()._gradient(objective, leaves, [point + 0.3 for point in points], memories)

    attack = Ahead(ThreatModel(epsilon=0.4), steps=1, step_size=0.1, random_start="none")
    # The objective increases at 0.5 and decreases at 0.8.
    point = attack.perturb(lambda x: -tf.reduce_sum((x - 0.6) ** 2, 1), tf.fill([1, 2], 0.5), tf.constant([0, 0]))
    np.testing.assert_allclose(point, 0.4, atol=1e-6)

    # The model is wrong only near 0.8, which is evaluated although it is no iterate.
    def predict(images):
        x = images[:, 0, 0, 0]
        return tf.stack([0.05 - tf.abs(x - 0.8), tf.zeros_like(x)], axis=-1)

    result = runner.run_attack(attack, predict, np.full([1, *SHAPE], 0.5, np.float32), [1])
    assert result.success[0] and result.distance[0] == pytest.approx(0.3, abs=1e-5)


@pytest.mark.parametrize("make", [gradient.FGSM, gradient.PGD, APGDCrossEntropy], ids=lambda make: make.name)
def test_a_constant_added_to_all_logits_changes_no_robust_accuracy(make):
    """A model of one logit z returns [0, z], which is as good as [-z, 0], also where it is sure."""
    images = np.random.default_rng(0).uniform(0.45, 0.55, [30, 8]).astype(np.float32).reshape(30, 2, 2, 2)
    height = lambda inputs: 200.0 * tf.reduce_sum(inputs - 0.5, axis=[1, 2, 3])  # noqa: E731
    labels = np.int32(height(images) > 0)
    reached = np.abs(height(images)) < 200 * 8 * 0.0125
    assert reached.sum() == 23 and np.sum(reached & (np.abs(height(images)) > 17)) == 3
    for predict in (
        lambda inputs: tf.stack([tf.zeros_like(height(inputs)), height(inputs)], axis=1),
        lambda inputs: tf.stack([-height(inputs), tf.zeros_like(height(inputs))], axis=1),
    ):
        result = runner.run_attack(make(ThreatModel(epsilon=0.0125)), predict, images, labels)
        np.testing.assert_array_equal(result.success, reached)
