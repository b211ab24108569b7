import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance.attacks import SHAPE, SIZE, smooth_model
from oracles import linear_model, nearest
from tfrobust.attacks import fab, prox_log_barrier
from tfrobust.attacks.shared import runner
from tfrobust.attacks.shared.goal import Goal
from tfrobust.keras.attacks import ProxLogBarrier, ThreatModel
from tfrobust.ops import randomness


def test_the_fewest_values_of_a_linear_model_are_found():
    predict, images, labels, weights, bias = linear_model.sparse(seed=3, quantile=0.02)
    result = runner.run_attack(ProxLogBarrier(ThreatModel(norm="l0", epsilon=1)), predict, images, labels)
    least = [nearest.linear_distance(weights, bias, x.ravel().astype(float), "l0") for x in images]
    assert max(least) >= 3  # more than the one or two values that any search would meet
    np.testing.assert_array_equal(result.distance, least)
    changed = np.count_nonzero((result.adversarial != images).reshape(len(images), -1), axis=1)
    np.testing.assert_array_equal(changed, least)


def test_units_of_logits_and_of_pixels_do_not_matter():
    predict, images, labels, *_ = linear_model.sparse(count=6)
    plain, wide = (
        ProxLogBarrier(ThreatModel(norm="l2", bounds=(0.0, top), epsilon=0.2), outer_steps=5) for top in (1.0, 16.0)
    )
    near = runner.run_attack(plain, predict, images, labels)
    scaled = runner.run_attack(plain, lambda x: 1e3 * predict(x), images, labels)
    np.testing.assert_allclose(scaled.distance, near.distance, rtol=1e-3)
    far = runner.run_attack(wide, lambda x: predict(x / 16.0), 16 * images, labels)
    np.testing.assert_allclose(far.distance / 16, near.distance, rtol=1e-3)


@pytest.fixture(scope="module")
def trained():
    """A network, and images with the labels that it gives them."""
    keras.utils.set_random_seed(2)
    rng = np.random.default_rng(3)
    images = rng.uniform(0, 1, [300, *SHAPE]).astype(np.float32)
    # Three classes with a curved boundary: which third of the image has the most contrast.
    contrast = np.stack([part.var(axis=1) for part in np.split(images.reshape(300, SIZE)[:, :15], 3, axis=1)], axis=1)
    labels = np.argmax(contrast, axis=1).astype(np.int32)
    model = keras.Sequential(
        [keras.Input(SHAPE), keras.layers.Flatten(), keras.layers.Dense(64, "gelu"), keras.layers.Dense(3)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    model.fit(images, labels, epochs=40, batch_size=50, verbose=0)
    images = images[:80]
    return model, images, np.argmax(model(images), axis=-1).astype(np.int32)


@pytest.mark.parametrize("kind", ["linf", "l2"])
def test_as_near_as_fab_on_a_trained_network(trained, kind):
    model, images, labels = trained
    result = runner.run_attack(ProxLogBarrier(ThreatModel(norm=kind, epsilon=0.2)), model, images, labels)
    reference = _distances(fab.FAB(ThreatModel(norm=kind, epsilon=0.2)), model, images, labels)
    assert result.success.all() and np.all(np.isfinite(reference))
    assert np.median(result.distance) < 1.25 * np.median(reference)


def _distances(attack, model, images, labels):
    """The least distance over all rounds of FAB, each to its end: the runner would stop within epsilon."""
    images, goal, keys = tf.constant(images), Goal(tf.constant(labels)), tf.zeros([len(images), 2], tf.int32)

    @tf.function(autograph=False)
    def one_round(rounds):
        state = attack.start(model, images, goal, keys, rounds)
        return attack.advance(model, images, goal, rounds, state, attack.steps)["distance"]

    return np.min([one_round(tf.fill([len(images)], number)) for number in range(attack.rounds(3))], axis=0)


@pytest.mark.parametrize("kind", ["linf", "l0"])
def test_targets_are_reached_and_nothing_else_counts(kind):
    model, images = smooth_model(), np.random.default_rng(0).uniform(0.3, 0.7, [6, *SHAPE]).astype(np.float32)
    labels = np.argmax(model(images), axis=-1).astype(np.int32)
    targets = (labels + 1) % 3
    attack = ProxLogBarrier(ThreatModel(norm=kind, epsilon=1), outer_steps=10)
    free = runner.run_attack(attack, model, images, labels)
    aimed = runner.run_attack(attack, model, images, labels, targets=targets)
    assert free.success.all() and aimed.success.any()
    predicted = np.argmax(model(aimed.adversarial), axis=-1)
    np.testing.assert_array_equal(predicted[aimed.success], targets[aimed.success])
    # Where the untargeted search ended in that class too, it has gone the same way.
    agreeing = aimed.success & (np.argmax(model(free.adversarial), axis=-1) == targets)
    assert agreeing.any()
    if kind == "linf":
        np.testing.assert_allclose(aimed.distance[agreeing], free.distance[agreeing], rtol=0.02)


def test_wrong_from_the_start_counts_with_distance_0_and_unreachable_as_not_found():
    predict, images, labels, *_ = linear_model.sparse(count=4)
    labels[0] = 1 - labels[0]
    attack = ProxLogBarrier(ThreatModel(epsilon=0.2), outer_steps=2, inner_steps=5)
    result = runner.run_attack(attack, predict, images, labels)
    assert result.success.all() and result.distance[0] == 0 and np.all(result.distance[1:] > 0)
    np.testing.assert_array_equal(result.adversarial[0], images[0])
    never = lambda x: tf.stack([tf.reduce_mean(x, [1, 2, 3]) + 2.0, tf.reduce_mean(x, [1, 2, 3])], 1)  # noqa: E731
    nothing = runner.run_attack(attack, never, images, np.zeros(4, np.int32))
    assert nothing.complete and not nothing.success.any() and not nothing.distance.any()
    np.testing.assert_array_equal(nothing.adversarial, images)


def test_noise_finds_what_the_gradient_does_not_show():
    # Class 1 where the values scatter; the gradient is 0 almost everywhere.
    def predict(images):
        spread = tf.math.reduce_std(tf.stop_gradient(images), axis=[1, 2, 3]) - 0.2
        return tf.stack([tf.zeros_like(spread), tf.sign(spread)], axis=-1) + 0.0 * tf.reduce_sum(images)

    images = np.full([5, *SHAPE], 0.5, np.float32)
    result = runner.run_attack(
        ProxLogBarrier(ThreatModel(norm="l2", epsilon=0.2)), predict, images, np.zeros(5, np.int32)
    )
    assert result.success.all()
    # sqrt(d) times the deviation 0.2: reached along the noise, by shrinking alone.
    np.testing.assert_allclose(result.distance, 0.2 * SIZE**0.5, rtol=0.15)


def test_a_step_back_is_a_share_of_the_step_and_ends_at_the_last_point():
    attack = ProxLogBarrier(ThreatModel(norm="l2", epsilon=0.2), backtracking=0.25)
    images = tf.zeros([1, 2])
    goal, keys = Goal(tf.constant([0])), tf.constant([[1, 2]])
    state = attack.start(None, images, goal, keys, tf.constant([0]))
    state |= {"inside": tf.constant([True]), "point": tf.constant([[1.0, 0.5]]), "trial": tf.constant([[0.0, 0.5]])}
    trials = []
    for _ in range(prox_log_barrier._MOST_BACKTRACKS + 1):
        state = attack._next(images, state, tf.constant([False]), tf.constant([-1.0]), tf.ones([1, 2]))
        trials.append(float(state["trial"][0, 0]))
        assert state["trial"][0, 1] == 0.5 and state["pull"] == 0.5  # halved once, not by every backtracking
    np.testing.assert_allclose(trials, [0.75, 0.9375, 0.984375, 0.99609375, 1.0])


def test_the_barrier_step_is_the_minimiser_along_a_linear_margin():
    # Nothing pulls (a tiny prox parameter), so that the proposal is y itself.
    attack = ProxLogBarrier(ThreatModel(norm="l2", bounds=(-9.0, 9.0), epsilon=0.2), prox_parameter=1e-9)
    images, trial, gradient = tf.zeros([1, 2]), tf.constant([[0.3, 0.4]]), tf.constant([[6.0, 8.0]])
    goal, keys = Goal(tf.constant([0])), tf.constant([[1, 2]])
    state = attack.start(None, images, goal, keys, tf.constant([0]))
    state |= {"trial": trial, "best": tf.constant([[3.0, 4.0]]), "barriers": tf.constant([1])}
    moved = attack._propose(images, state, tf.constant([2.0]), gradient)
    lengths = np.linspace(-0.19, 2, 200_001)
    weight = 0.1 * 0.1 * 5.0**2  # step_size, barrier, squared length of the best
    costs = lengths**2 / 2 - weight * np.log(2.0 + 10.0 * lengths)
    best = lengths[np.argmin(costs)]
    np.testing.assert_allclose(moved - trial, [[0.6 * best, 0.8 * best]], atol=1e-4)


def test_examples_at_different_steps_do_not_disturb_each_other():
    predict, images, labels, *_ = linear_model.sparse(count=6)
    attack = ProxLogBarrier(ThreatModel(norm="l1", epsilon=0.2), outer_steps=4, inner_steps=10)
    goal, keys = Goal(tf.constant(labels)), randomness.example_keys(tf.constant([1, 2]), tf.range(6))
    rounds = tf.zeros([6], tf.int32)
    begin = attack.start(predict, tf.constant(images), goal, keys, rounds)
    graph = tf.function(attack.advance, autograph=False)
    advance = lambda state, count: graph(predict, tf.constant(images), goal, rounds, state, tf.constant(count))  # noqa: E731
    ahead = advance(begin, 33)
    # The first three start 33 steps later than the others.
    mixed = tf.nest.map_structure(lambda new, old: tf.concat([new[:3], old[3:]], 0), begin, ahead)
    mixed, early, late = advance(mixed, 50), advance(begin, 50), advance(begin, 83)
    np.testing.assert_allclose(mixed["best"][:3], early["best"][:3], atol=1e-6)
    np.testing.assert_allclose(mixed["best"][3:], late["best"][3:], atol=1e-6)


def test_the_steps_of_a_search():
    attack = ProxLogBarrier(ThreatModel(norm="l2", epsilon=0.5), outer_steps=3)
    assert attack.steps == 2 * 24 + 3 * 30 and attack.rounds(10) == 1


def test_a_model_that_overflows_leaves_a_point():
    predict, images, labels, *_ = linear_model.sparse(count=8)
    images, labels = images[labels == 0], labels[labels == 0]

    def broken(x):  # NaN wherever it would be misclassified, with NaN gradients
        logits = predict(x)
        wrong = tf.argmax(logits, -1) != 0
        return tf.where(wrong[:, None], tf.math.log(-tf.abs(logits)), logits)

    result = runner.run_attack(ProxLogBarrier(ThreatModel(epsilon=0.2), outer_steps=2), broken, images, labels)
    assert np.all(np.isfinite(result.adversarial)) and result.success.all()
