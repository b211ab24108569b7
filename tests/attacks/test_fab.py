import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance.attacks import SIZE, Linear, examples
from oracles import hyperplane as oracle
from oracles import projections, tiny_network
from tfrobust.attacks import fab
from tfrobust.attacks.shared import modes, runner
from tfrobust.attacks.shared.goal import Goal
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.ops import randomness

KINDS = ["linf", "l2", "l1"]
DUAL = {"linf": "l1", "l2": "l2", "l1": "linf"}


def network():
    """(its parts, predict, images [7, 2, 3, 1], the labels it gives them)."""
    encoder, head = tiny_network.parts()
    model = keras.Sequential([keras.Input(tiny_network.SHAPE), encoder, head])
    images = np.random.default_rng(4).uniform(0.2, 0.8, [7, *tiny_network.SHAPE]).astype(np.float32)
    images[:, 0, 0] = 0.0
    parts = types.SimpleNamespace(encoder=encoder, head=head)
    labels = np.argmax(tiny_network.forward(parts, images)[1], axis=1).astype(np.int32)
    return parts, modes.as_predict(model), images, labels


def states(attack, predict, images, goal, rounds=0, steps=10):
    """The state at the start and after each step."""
    images, rounds = tf.constant(images), tf.fill([len(images)], rounds)
    keys = randomness.example_keys(tf.constant([3, 4]), tf.range(len(images)))
    goal = Goal(*(classes if classes is None else tf.constant(classes, tf.int32) for classes in goal))
    history = [attack.start(predict, images, goal, keys, rounds)]
    advance = tf.function(lambda state: attack.advance(predict, images, goal, rounds, state, 1), autograph=False)
    for _ in range(steps):
        history.append(advance(history[-1]))
    return [{name: value.numpy() for name, value in state.items()} for state in history]


def literal(parts, image, label, aim, kind, steps=10, targeted=False):
    """FAB on one image in NumPy, from the image itself: its points, the nearest success and its distance.

    aim: the class of the hyperplane; None: the nearest one. targeted: only `aim` is a success, against the best other.
    """
    kernel, _, head, _ = tiny_network.arrays(parts)
    x = image.ravel().astype(np.float64)
    logits_at = lambda z: tiny_network.forward(parts, z[None])[1][0]  # noqa: E731
    point, points, nearest, distance = x, [x], x, np.inf
    for _ in range(steps):
        hidden, logits = tiny_network.forward(parts, point[None])[0][0], logits_at(point)
        gradients = (head.T * (1 - hidden**2)) @ kernel.T
        plane = lambda c, d, z=logits, g=gradients: (z[c] - z[d], g[c] - g[d])  # noqa: E731
        rivals = [c for c in range(3) if c != label]
        if targeted:
            f, w = plane(aim, max((c for c in range(3) if c != aim), key=lambda c, z=logits: z[c]))
        elif aim is not None:
            f, w = plane(aim, label)
        else:
            f, w = min(
                (plane(c, label) for c in rivals), key=lambda fw: abs(fw[0]) / projections.measure(fw[1], DUAL[kind])
            )
        point = oracle.fab_step(x, point, f, w, kind, alpha_max=0.1, eta=1.05)
        winner = np.argmax(logits_at(point))
        if winner == aim if targeted else winner != label:
            length = projections.measure(point - x, kind)
            if length < distance:
                nearest, distance = point, length
            point = x + 0.9 * (point - x)
        points.append(point)
    return np.array(points), nearest, distance


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ["rank 0", "rank 1", "nearest class", "targeted"])
def test_equals_the_literal_loop(kind, case):
    parts, predict, images, labels = network()
    threat, goal, rounds = ThreatModel(norm=kind, epsilon=0.1), (labels, None), 0
    ranked = np.argsort(-tiny_network.forward(parts, images)[1], axis=1)
    if case == "nearest class":
        attack, aims = fab.FABUntargeted(threat), [None] * 7
    elif case == "targeted":
        attack, aims = fab.FAB(threat), ranked[:, 2]
        goal = (labels, aims)
    else:
        attack, rounds = fab.FAB(threat), int(case[-1])
        aims = ranked[:, 1 + rounds]
    history = states(attack, predict, images, goal, rounds)
    successes = 0
    for row in range(7):
        points, nearest, distance = literal(
            parts, images[row], labels[row], aims[row], kind, targeted=case == "targeted"
        )
        np.testing.assert_allclose([state["point"][row].ravel() for state in history], points, atol=2e-4)
        np.testing.assert_allclose(history[-1]["nearest"][row].ravel(), nearest, atol=2e-4)
        np.testing.assert_allclose(history[-1]["distance"][row], distance, rtol=1e-3)
        successes += np.isfinite(distance)
    assert successes >= 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attack", [fab.FAB, fab.FABUntargeted])
def test_finds_the_distance_to_the_plane_of_a_linear_model(kind, attack):
    model, images = Linear(), examples()
    labels = model.labels(images)
    closed = np.abs(model.margins(images, labels)) / projections.measure(model.weights, DUAL[kind])
    history = states(attack(ThreatModel(norm=kind, epsilon=1e-3)), model, images, (labels, None), steps=20)
    distances = np.array([state["distance"] for state in history])
    # From each new start at 0.9 of the way it comes back to about 1.01 of it: eta overshoots what is left.
    assert np.all(distances[-1] <= 1.015 * closed) and np.all(distances[-1] >= closed * (1 - 1e-5))
    assert np.all(distances[1:] <= distances[:-1])
    last = history[-1]
    np.testing.assert_array_equal(last["found"], last["distance"] <= 1e-3)
    assert np.all(np.argmax(model(last["nearest"]), axis=1) != labels)
    reached = [projections.measure(change, kind) for change in (last["nearest"] - images).reshape(-1, SIZE)]
    np.testing.assert_allclose(reached, last["distance"], rtol=1e-5)


def test_rounds_run_through_the_classes_by_rank():
    attack = fab.FAB(ThreatModel(epsilon=0.1), targets=3, restarts=2, steps=1)
    assert attack.rounds(10) == 6 and attack.rounds(3) == 4 and attack.rounds(2) == 2
    assert (
        fab.FAB(ThreatModel(epsilon=0.2)).rounds(10) == 9
        and fab.FABUntargeted(ThreatModel(epsilon=0.2), restarts=4).rounds(2) == 4
    )
    logits = np.array([[5, 1, 2, 4, 3], [4, 9, 1, 2, 3]], np.float32)
    predict = lambda images: tf.constant(logits) + 0.0 * tf.reduce_sum(images)  # noqa: E731
    # The second is misclassified already: its own class is never the target.
    labels = np.array([0, 4])
    rounds = [attack._aim(predict, tf.zeros([2, 4]), Goal(tf.constant(labels)), tf.fill([2], r)) for r in range(6)]
    np.testing.assert_array_equal([target for target, _ in rounds], [[3, 1], [4, 0], [2, 3]] * 2)
    np.testing.assert_array_equal([restart[0] for _, restart in rounds], [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_restarts_begin_at_half_of_epsilon(kind):
    model, images = Linear(), examples(6)
    threat = ThreatModel(norm=kind, epsilon=0.2)
    labels = model.labels(images)
    for attack, goal, first in (
        (fab.FAB(threat, restarts=2), (labels, None), 1),
        (fab.FABUntargeted(threat, restarts=2), (labels, None), 1),
        (fab.FAB(threat), (labels, 1 - labels), 1),
    ):
        begun = [states(attack, model, images, goal, rounds, steps=0)[0]["point"] for rounds in (0, first)]
        np.testing.assert_array_equal(begun[0], images)
        lengths = [projections.measure(change, kind) for change in (begun[1] - images).reshape(6, SIZE)]
        np.testing.assert_allclose(lengths, 0.1, rtol=1e-4)
        assert len({tuple(np.sign(change).ravel()) for change in begun[1] - images}) == 6  # each its own draw
    edge = fab.FAB(threat)._shifted(tf.zeros([2, 4]), tf.constant([[1.0, -1, 1, -1]] * 2)).numpy()
    assert edge.min() == 0 and edge.max() > 0


def test_a_targeted_run_reaches_the_class_it_was_given():
    _, predict, images, labels = network()
    goal = np.argsort(predict(tf.constant(images)), axis=1)[:, 0].astype(np.int32)  # the least likely class
    result = runner.run_attack(
        fab.FAB(ThreatModel(norm="l2", epsilon=3.0), steps=20), predict, images, labels, targets=goal
    )
    assert result.success.mean() > 0.5
    reached = np.argmax(predict(tf.constant(result.adversarial)), axis=1)
    np.testing.assert_array_equal(reached == goal, result.success)


def test_stops_early_with_a_point_inside_the_ball():
    model, images = Linear(), examples()
    labels = model.labels(images)
    closed = np.abs(model.margins(images, labels)) / np.abs(model.weights).sum()
    threat = ThreatModel(epsilon=float(np.median(closed)))
    attack = fab.FAB(threat)
    last = states(attack, model, images, (labels, None), steps=20)[-1]
    np.testing.assert_array_equal(last["found"], last["distance"] <= threat.epsilon)
    assert 0.3 < last["found"].mean() < 0.7
    np.testing.assert_array_equal(
        attack.candidate(last), np.where(last["found"][:, None, None, None], last["nearest"], images)
    )
    inside = threat.project(images, last["nearest"]).numpy()
    np.testing.assert_allclose(inside[last["found"]], last["nearest"][last["found"]], atol=1e-7)


def test_nothing_of_a_broken_model_gets_into_the_point():
    # Defined at the image, NaN a little to the right, where the gradient leads.
    def predict(images):
        x = images[:, 0]
        score = tf.where(x > 0.6, np.float32(np.nan) * x, 1.0 - x)
        return tf.stack([score, tf.zeros_like(score)], axis=-1)

    images = np.full([2, 3], 0.5, np.float32)
    for attack in (fab.FAB(ThreatModel(epsilon=0.3)), fab.FABUntargeted(ThreatModel(epsilon=0.3))):
        history = states(attack, predict, images, ([0, 0], None), steps=5)
        assert all(np.all(np.isfinite(state["point"])) and np.all(np.isfinite(state["nearest"])) for state in history)
    flat = lambda images: tf.constant([[1.0, 0.0]]) + 0.0 * images[:, :2]  # noqa: E731
    last = states(fab.FAB(ThreatModel(epsilon=0.3)), flat, images, ([0, 0], None), steps=5)[-1]
    np.testing.assert_array_equal(last["nearest"], images)
    assert not last["found"].any() and np.all(np.isinf(last["distance"]))


def test_a_refused_point_is_forgotten():
    """Otherwise the same point would be verified until it is misclassified by chance."""
    attack, images = fab.FAB(ThreatModel(epsilon=0.1)), tf.fill([2, 1, 1, 2], 0.5)
    near = images + 0.05
    model = lambda points: 1.0 + tf.reshape(points, [-1, 2]) * [1.0, -1.0] + [9.0, 0.0]  # noqa: E731
    state = {
        "image": images,
        "nearest": near,
        "point": images,
        "distance": tf.fill([2], 0.05),
        "found": tf.fill([2], True),
        "target": tf.ones(2, tf.int32),
    }
    state = attack.refuse(state, tf.constant([True, False]))
    np.testing.assert_array_equal(attack.candidate(state), [images[0], near[1]])
    goal, rounds = Goal(tf.zeros(2, tf.int32)), tf.zeros(2, tf.int32)
    after = attack.advance(model, images, goal, rounds, state, tf.constant(3))
    np.testing.assert_array_equal(after["found"], [False, True])
