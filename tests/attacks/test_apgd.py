import itertools

import numpy as np
import pytest
import tensorflow as tf

from conformance.attacks import SHAPE, Linear, examples, smooth_model
from oracles import apgd as oracle
from oracles import seeded_networks
from tfrobust.attacks import apgd
from tfrobust.attacks.shared import apgd_steps, runner
from tfrobust.attacks.shared.apgd_steps import Momentum, Sparse
from tfrobust.attacks.shared.goal import Goal
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.losses import classification
from tfrobust.ops import norms, randomness, shapes

ATTACKS = [apgd.APGDCrossEntropy, apgd.APGDDLR, apgd.APGDTargeted]
# Where no two losses of the first rows come so near each other that float32 might order them otherwise.
EPSILONS = {"linf": 0.3, "l2": 1.5, "l1": 2.0}
FEATURES, CLASSES = 30, 4


class Network:
    """tanh(x W1 + b1) W2 + b2, for TensorFlow and, with the cross-entropy's gradient, in NumPy float64."""

    def __init__(self, scale=0.5):
        weights = seeded_networks.perceptron(FEATURES, 12, CLASSES)
        names = ("hidden/kernel", "hidden/bias", "logits/kernel", "logits/bias")
        self.weights = [np.asarray(weights[name], np.float64) * scale for name in names]

    def __call__(self, images):
        kernel, bias, head, offset = (tf.constant(part, tf.float32) for part in self.weights)
        return tf.tanh(images @ kernel + bias) @ head + offset

    def cross_entropy(self, images, labels):
        kernel, bias, head, offset = self.weights
        hidden = np.tanh(images @ kernel + bias)
        logits = hidden @ head + offset
        powers = np.exp(logits - logits.max(-1, keepdims=True))
        share, rows = powers / powers.sum(-1, keepdims=True), np.arange(len(images))
        back = share - np.eye(CLASSES)[labels]
        return -np.log(share[rows, labels]), (back @ head.T * (1 - hidden**2)) @ kernel.T


def case(count=5):
    network = Network()
    images = np.random.default_rng(0).uniform(0, 1, (count, FEATURES)).astype(np.float32)
    images[:, ::5] = np.round(images[:, ::5])
    return network, images, np.argmax(network(images), axis=-1).astype(np.int32)


def trace(attack, network, images, labels, point):
    """Every point and loss that a round evaluates, and the step sizes, though points be misclassified."""
    seen, losses, states = [], [], []

    def evaluate(points):
        values, slopes, _ = apgd.input_gradient(
            lambda x: (classification.cross_entropy(network(x), labels), 0), points, has_auxiliary=True
        )
        seen.append(points.numpy())
        losses.append(values.numpy())
        return values, slopes, tf.zeros_like(values, tf.bool)

    state = attack._enter(images, tf.constant(point, tf.float32))
    for _ in range(attack.steps):
        states.append({name: value.numpy() for name, value in state.items()})
        state = attack._search(images, evaluate, state, 1)
    return np.array(seen), np.array(losses), states, state


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_iterates_equal_the_plain_loop(norm):
    network, images, labels = case()
    epsilon, steps = EPSILONS[norm], 40
    noise = np.random.default_rng(1).standard_normal(images.shape)
    attack = apgd.APGDCrossEntropy(
        ThreatModel(norm=norm, epsilon=epsilon), steps=steps, large_radii=False if norm == "l1" else None
    )
    start = attack._noisy_start(tf.constant(images), tf.constant(noise, tf.float32))
    np.testing.assert_allclose(start, oracle.start(images, noise, norm, epsilon), atol=2e-6)
    expected = oracle.search(
        images.astype(float),
        start.numpy().astype(float),
        lambda x: network.cross_entropy(x, labels),
        norm,
        epsilon,
        steps,
    )
    seen, losses, states, end = trace(attack, network, tf.constant(images), labels, start)
    np.testing.assert_allclose(seen, expected["iterates"][:-1], atol=2e-5)
    np.testing.assert_allclose(end["point"], expected["iterates"][-1], atol=2e-5)
    np.testing.assert_allclose(losses, expected["losses"][:-1], atol=1e-4)
    # A checkpoint comes after its turn's evaluation and before its step: a state shows the size of the step before.
    sizes = np.array([state["step_size"] for state in states[1:]])
    np.testing.assert_allclose(sizes, expected["step_sizes"][:-1], rtol=1e-5)
    assert len(np.unique(np.round(sizes, 6))) >= 3  # the case makes APGD change its mind
    if norm == "l1":
        shares = np.array([state["share"] for state in states[1:]])
        np.testing.assert_allclose(shares, expected["shares"][:-1], rtol=1e-5)


def test_large_l1_radii_equal_the_plain_loop():
    network, images, labels = case()
    noise = np.random.default_rng(1).standard_normal(images.shape)
    attack = apgd.APGDCrossEntropy(ThreatModel(norm="l1", epsilon=0.7), steps=30)
    start = attack._noisy_start(tf.constant(images), tf.constant(noise, tf.float32))
    phases = oracle.phases(images.astype(float), noise, lambda x: network.cross_entropy(x, labels), 0.7, 30)
    expected = np.concatenate([phase["iterates"] for phase in phases])
    seen, losses, _, end = trace(attack, network, tf.constant(images), labels, start)
    # 30 steps and three starts; the point after the last step is left to the verification.
    assert [len(phase["iterates"]) for phase in phases] == [10, 10, 13] and len(seen) == 32
    np.testing.assert_allclose(seen, expected[:-1], atol=2e-5)
    np.testing.assert_allclose(end["point"], expected[-1], atol=2e-5)
    np.testing.assert_allclose(losses, np.concatenate([phase["losses"] for phase in phases])[:-1], atol=1e-4)


def test_checkpoints():
    assert list(apgd_steps.checkpoints("linf", 100)) == [22, 41, 57, 70, 80, 87, 93, 99]
    for steps in (1, 3, 5, 10, 20, 30, 50, 100, 1000):
        assert list(apgd_steps.checkpoints("l2", steps).items()) == oracle.checkpoints(steps)
    assert apgd_steps.checkpoints("l1", 100) == {step: 4 for step in range(4, 101, 4)}
    assert list(apgd_steps.checkpoints("l1", 30)) == list(range(1, 31))


def test_the_schedule_of_large_radii():
    plan = apgd_steps.schedule("l1", 2.0, 100, True)
    assert plan.turns == 102  # the start, 99 points after steps, and a start for each smaller radius
    np.testing.assert_array_equal(np.flatnonzero(plan.ends), [30, 61])
    np.testing.assert_array_equal(plan.epsilon, np.repeat([6.0, 4.0, 2.0], [31, 31, 41]))
    np.testing.assert_array_equal(plan.is_final, np.arange(103) >= 62)
    assert not plan.window[[0, 31, 62]].any()
    for steps in (1, 2, 3, 4, 7):
        plan = apgd_steps.schedule("l1", 2.0, steps, True)
        assert plan.turns == steps + 2 and plan.ends.sum() == 2 and plan.epsilon[-1] == 2.0


@pytest.mark.parametrize("loss,expected", [(0.5, 1.0), (-0.5, 0.0)])
def test_the_first_step_is_compared_with_zero(loss, expected):
    images = tf.fill([1, 3], 0.5)
    moves = Momentum(ThreatModel(epsilon=0.1), images)
    state = {"turn": tf.constant([0])} | moves.begin(images, tf.constant([0.1]))
    state |= moves.note(state, tf.constant([-3.0]))  # the start
    state |= moves.note(state | {"turn": tf.constant([1])}, tf.constant([loss]))
    np.testing.assert_array_equal(state["increases"], [expected])


def test_a_checkpoint_with_few_increases_returns_to_the_best_point_with_half_the_step():
    images, ones = tf.fill([2, 3], 0.5), tf.ones([2, 3])
    moves = Momentum(ThreatModel(epsilon=0.1), images)
    state = moves.begin(images, tf.constant([0.1, 0.1])) | {"point": images + 0.05, "best_point": images - 0.05}
    state |= {"best_gradient": ones, "best_loss": tf.ones(2), "increases": tf.constant([0.0, 4.0])}
    point, slope, changed = moves.at_checkpoint(state, 0 * ones, tf.constant([4, 4]), 0.1)
    np.testing.assert_allclose(point[:, 0], [0.45, 0.55], rtol=1e-6)
    np.testing.assert_allclose(slope[:, 0], [1.0, 0.0])
    np.testing.assert_allclose(changed["step_size"], [0.1, 0.2])
    np.testing.assert_array_equal(changed["halved"], [True, False])


def test_a_sparse_step_takes_the_largest_gradients():
    images = tf.fill([2, 10], 0.5)
    moves = Sparse(ThreatModel(norm="l1", epsilon=9.0), images, follow=False)
    slopes = tf.constant([[0.1, -5.0, 0.2, 3.0, 0.3, 0.4, 0.0, 1.0, 2.0, -2.5], [0.0] * 9 + [1.0]])
    state = moves.begin(images, tf.constant([0.4, 0.4]))
    np.testing.assert_allclose(state["share"], 0.2)
    point, _ = moves.move(state, images, slopes, 9.0)
    expected = np.zeros((2, 10))
    # The 0.8 quantile of ten is the ninth in order: two are at least as large. Zeros never move.
    expected[0, [1, 3]] = -0.2, 0.2
    expected[1, 9] = 0.4
    np.testing.assert_allclose(point - images, expected, atol=1e-6)
    wide, _ = moves.move(state | {"share": tf.constant([0.31, 1.0])}, images, slopes, 9.0)
    assert np.count_nonzero(np.abs(wide - images) > 1e-6, axis=1).tolist() == [4, 1]


def test_l1_projection_with_a_radius_for_each_example():
    rng = np.random.default_rng(3)
    images = tf.constant(rng.uniform(0, 1, (4, 3, 5)).astype(np.float32))
    candidate = images + rng.standard_normal((4, 3, 5)).astype(np.float32)
    radii = tf.constant([0.01, 0.5, 2.0, 50.0])
    together = norms.project_ball_in_box(images, candidate, "l1", radii, 0.0, 1.0)
    for row, radius in enumerate(radii.numpy()):
        alone = norms.project_ball_in_box(
            images[row : row + 1], candidate[row : row + 1], "l1", float(radius), 0.0, 1.0
        )
        np.testing.assert_allclose(together[row : row + 1], alone, atol=1e-7)
    np.testing.assert_array_equal(together[3], tf.clip_by_value(candidate, 0.0, 1.0)[3])


def test_perturb_returns_the_best_point_not_the_last():
    # A hat whose top the first, long steps jump over; the last point evaluated counts too.
    images = tf.fill([1, 1], 0.5)
    objective = lambda x: -tf.abs(x[:, 0] - 0.57)  # noqa: E731
    for steps in (1, 2, 3, 12):
        points = []

        def watched(x, points=points):
            points.append(float(x[0, 0]))
            return objective(x)

        end = apgd.APGDDLR(ThreatModel(epsilon=0.1), steps=steps).perturb(watched, images, tf.constant([0, 5]))
        assert len(points) == steps + 1
        assert float(end[0, 0]) == pytest.approx(min(points, key=lambda x: abs(x - 0.57)))


def test_the_search_stops_at_the_first_misclassified_point_the_start_included():
    def predict(images):  # wrong everywhere but at the image itself
        far = tf.reduce_sum(tf.abs(images - 0.5), axis=[1, 2, 3])
        return tf.stack([0.001 - far, tf.zeros_like(far)], axis=-1)

    images, goal = tf.fill([2, *SHAPE], 0.5), Goal(tf.constant([0, 0]))
    attack = apgd.APGDCrossEntropy(ThreatModel(epsilon=0.1), steps=5)
    rounds, keys = tf.zeros([2], tf.int32), tf.constant([[0, 1], [0, 2]])
    state = attack.start(predict, images, goal, keys, rounds)
    after = attack.advance(predict, images, goal, rounds, state, 5)
    assert after["found"].numpy().all()
    np.testing.assert_array_equal(attack.candidate(after), state["point"])


def test_only_the_last_l1_ball_counts():
    def predict(images):  # wrong from a distance of 1.5 epsilon on
        far = tf.reduce_sum(tf.abs(images - 0.5), axis=[1, 2, 3])
        return tf.stack([1.5 - far, tf.zeros_like(far)], axis=-1)

    images, goal = tf.fill([2, *SHAPE], 0.5), Goal(tf.constant([0, 0]))
    attack = apgd.APGDCrossEntropy(ThreatModel(norm="l1", epsilon=1.0), steps=20)
    rounds, keys = tf.zeros([2], tf.int32), tf.constant([[0, 1], [0, 2]])
    state, wrong = attack.start(predict, images, goal, keys, rounds), []
    for _ in range(20):
        wrong.append(bool(tf.reduce_any(goal.reached(predict(state["point"])))))
        state = attack.advance(predict, images, goal, rounds, state, 1)
    assert any(wrong) and not state["found"].numpy().any()
    assert np.all(attack.threat.distance(images, attack.candidate(state)) <= 1 + 1e-5)


def test_a_batch_of_mixed_steps_is_advanced_row_by_row():
    # The runner refills: rows of one batch are at different turns, and in L1 in different phases.
    network, images, labels = case(4)
    attack = apgd.APGDCrossEntropy(ThreatModel(norm="l1", epsilon=0.2), steps=20)
    goal, rounds = Goal(tf.constant(labels)), tf.zeros([4], tf.int32)
    keys = randomness.example_keys(tf.constant([1, 2]), tf.range(4))
    images = tf.constant(images)
    fresh = attack.start(network, images, goal, keys, rounds)
    full_run = attack.advance(network, images, goal, rounds, fresh, 20)
    early = attack.advance(network, images, goal, rounds, fresh, 8)
    half = tf.constant([True, False, True, False])
    mixed = {name: shapes.select(half, early[name], fresh[name]) for name in fresh}
    mixed = attack.advance(network, images, goal, rounds, mixed, 12)  # ends the round of every other row
    for row in (0, 2):
        np.testing.assert_allclose(mixed["point"][row], full_run["point"][row], atol=1e-5)
    mixed = attack.advance(network, images, goal, rounds, mixed, 8)
    np.testing.assert_allclose(mixed["point"], full_run["point"], atol=1e-5)  # the ended rows have stayed


def test_expectation_averages_gradients_and_tests_the_last_logits():
    slopes = itertools.cycle([[3.0, -1.0], [-1.0, -1.0], [-1.0, 3.0]])  # the mean is (1/3, 1/3)

    def predict(images):
        score = tf.reduce_sum(images * next(slopes), axis=1)
        return tf.stack([tf.zeros_like(score) - 50.0, score], axis=-1)

    images = tf.fill([1, 2], 0.5)
    attack = apgd.APGDDLR(ThreatModel(epsilon=0.1), steps=2, expectation_samples=3)
    state = attack._enter(images, images)
    state = attack.advance(
        predict, images, Goal(tf.constant([0])), tf.zeros([1], tf.int32), state | {"found": tf.constant([False])}, 1
    )
    np.testing.assert_allclose(state["best_gradient"], [[1 / 3, 1 / 3]], rtol=1e-5)
    np.testing.assert_allclose(state["best_loss"], [50.0 + 1.0], rtol=1e-5)


def test_targets_are_the_ranks_of_the_clean_image():
    logits = np.array([[0.0, 5.0, 1.0, 3.0], [9.0, 1.0, 2.0, 3.0]], np.float32)
    attack = apgd.APGDTargeted(ThreatModel(epsilon=0.1), targets=2, restarts=2)
    assert (attack.rounds(10), attack.rounds(4), attack.rounds(2)) == (4, 4, 2)
    assert (
        apgd.APGDTargeted(ThreatModel(epsilon=0.2)).rounds(10) == 9
        and apgd.APGDTargeted(ThreatModel(epsilon=0.2)).rounds(4) == 3
    )
    keys = tf.constant([[0, 1], [0, 2]])
    expected = [[3, 3], [2, 2], [3, 3], [2, 2]]
    for number in range(4):
        rounds = tf.fill([2], number)
        state = attack.start(
            lambda x: tf.constant(logits), tf.zeros([2, *SHAPE]), Goal(tf.constant([1, 0])), keys, rounds
        )
        np.testing.assert_array_equal(state["target"], expected[number])


@pytest.mark.parametrize("kind", ATTACKS)
def test_given_targets_are_reached(kind):
    model, images = smooth_model(classes=4), examples(12, 0.0, 1.0)
    labels = np.argmax(model(images), axis=-1)
    targets = (labels + 1) % 4
    result = runner.run_attack(kind(ThreatModel(epsilon=0.9), steps=20), model, images, labels, targets=targets)
    assert result.success.mean() > 0.5
    predicted = np.argmax(model(result.adversarial), axis=-1)
    np.testing.assert_array_equal(predicted == targets, result.success)


def test_losses_of_few_classes_have_fallbacks():
    fallbacks = [[bool(kind(ThreatModel(epsilon=0.2)).fallback(classes)) for kind in ATTACKS] for classes in (2, 3, 4)]
    assert fallbacks == [[False, True, True], [False, False, True], [False, False, False]]


def test_a_model_with_nan_gradients_does_not_poison_the_search():
    linear = Linear()

    def predict(images):
        poison = tf.where(images[:, :1] < 2.0, 0.0, tf.sqrt(images[:, :1] - 5.0))
        return linear(images) + tf.reduce_sum(poison, axis=[1, 2, 3])[:, None]

    images = examples(8)
    for norm, epsilon in {"linf": 0.1, "l1": 0.6}.items():
        attack = apgd.APGDCrossEntropy(ThreatModel(norm=norm, epsilon=epsilon), steps=10)
        result = runner.run_attack(attack, predict, images, linear.labels(images))
        assert np.all(np.isfinite(result.adversarial)) and result.success.any()  # by the rows without NaN
