"""PMA and MALT against literal float64 oracles, on linear models in closed form, and on very confident models."""

import numpy as np
import pytest
import tensorflow as tf

from oracles import pma as oracle
from tfrobust.attacks.shared import runner
from tfrobust.attacks.shared.goal import Goal
from tfrobust.keras.attacks import MALT, PMA, APGDTargeted, ThreatModel

CLASSES, SHAPE = 5, (2, 2, 1)
GENERATOR = np.random.default_rng(3)
FIRST, SECOND = GENERATOR.normal(size=(4, 6)), GENERATOR.normal(size=(6, CLASSES))


def model(x):
    """A smooth network of NumPy or TensorFlow values; one image or a batch."""
    if tf.is_tensor(x):
        return tf.tanh(tf.reshape(x, [-1, 4]) @ tf.constant(FIRST, x.dtype)) @ tf.constant(SECOND, x.dtype)
    return np.tanh(x.reshape(-1, 4) @ FIRST)[0] @ SECOND


def images_and_labels(count=6):
    images = GENERATOR.uniform(0.3, 0.7, (count, *SHAPE)).astype(np.float32)
    return images, np.array([model(image.astype(np.float64)).argmax() for image in images], np.int32)


@pytest.mark.parametrize("run", [0, 1])
def test_each_step_of_pma_is_that_of_the_oracle(run):
    threat, steps, (images, labels) = ThreatModel(epsilon=0.02), 9, images_and_labels()
    attack, goal, rounds = PMA(threat, steps=steps), Goal(tf.constant(labels)), tf.fill([len(images)], run)
    keys = tf.constant(GENERATOR.integers(0, 99, (len(images), 2)), tf.int32)
    state = attack.start(model, tf.constant(images), goal, keys, rounds)
    points = [state["point"].numpy()]
    for _ in range(steps):
        state = attack.advance(model, tf.constant(images), goal, rounds, state, 1)
        points.append(state["point"].numpy())
    assert not state["found"].numpy().any()
    for row, (image, label) in enumerate(zip(images.astype(np.float64), labels, strict=True)):
        start = points[0][row].astype(np.float64)
        expected = oracle.run_from(start, image, model, label, 0.02, steps, run)
        np.testing.assert_allclose([point[row] for point in points], expected, atol=2e-6)


def test_so_few_steps_that_all_have_length_0_are_refused():
    with pytest.raises(ValueError, match="PMA.steps"):
        PMA(ThreatModel(epsilon=0.3), steps=2)


@pytest.mark.parametrize("steps", [3, 9, 100])
def test_the_lengths_of_the_steps_of_pma_are_those_of_the_oracle(steps):
    # Points alone do not show them: most steps end at the surface of the ball.
    lengths = PMA(ThreatModel(epsilon=0.3), steps=steps)._step_length({"step": 1 + tf.range(steps)})
    np.testing.assert_allclose(lengths, [oracle.step_length(0.3, step, steps) for step in range(steps)], atol=1e-6)


@pytest.mark.parametrize("norm,order", [("linf", 1), ("l2", 2), ("l1", np.inf)])
def test_malt_aims_in_the_order_of_the_oracle(norm, order):
    images, labels = images_and_labels(12)
    attack, goal = MALT(ThreatModel(norm=norm, epsilon=0.02), targets=3), Goal(tf.constant(labels))
    rows = [
        attack.start(model, tf.constant(images), goal, tf.zeros([12, 2], tf.int32), tf.fill([12], number))["target"]
        for number in range(attack.rounds(CLASSES))
    ]
    expected = [
        oracle.malt_order(i.astype(np.float64), model, y, order)[:3] for i, y in zip(images, labels, strict=True)
    ]
    np.testing.assert_array_equal(np.stack(rows, axis=1), expected)
    by_logits = [np.argsort(-model(image.astype(np.float64)))[1:4] for image in images]
    assert np.any(np.array(expected) != by_logits)  # else the order of APGD-T would do


@pytest.mark.parametrize("attack", [PMA, MALT])
def test_a_nearest_class_in_closed_form(attack):
    # Class 2 is the largest rival, class 1 the only one within reach: its slope is ten times as steep.
    weights = tf.constant([[0.0, 10.0, 0.1, 0.0]])
    predict = lambda x: x[:, 0, 0] @ weights + tf.constant([[3.0, -3.0, 2.5, 0.0]])  # noqa: E731
    images = np.array([0.5, 0.45, 0.39], np.float32).reshape(3, 1, 1, 1)
    # z_1 - z_0 = 10 x - 6 > 0 from x = 0.6.
    result = runner.run_attack(attack(ThreatModel(epsilon=0.2), steps=20), predict, images, np.zeros(3, int))
    assert result.success.tolist() == [True, True, False]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0, 1e4])
def test_the_directions_of_pma_do_not_depend_on_the_scale_of_confident_logits(scale):
    # The softmax of the larger scales is exactly 0 and 1 in float32.
    logits = tf.constant([[4.0, 1.0, 2.0], [9.0, -1.0, 8.0]])
    attack = PMA(ThreatModel(epsilon=0.1), steps=10)
    for step, run in ((0, 0), (3, 0), (3, 1), (8, 0)):
        pull = attack._pull(scale * logits, tf.zeros(2, tf.int32), tf.fill([2], run), tf.fill([2], step)).numpy()
        pull /= np.abs(pull).max(axis=1, keepdims=True)
        signs = np.array([1, -1, -1] if step == 0 else [-1, 1, 1])
        assert np.all(pull[:, 0] * signs[0] > 0.1) and np.all(pull[:, 2] * signs[2] > 0.1)


def test_malt_shares_the_search_of_apgd_t_and_ranks_few_of_many_classes():
    threat = ThreatModel(epsilon=0.1)
    few = MALT(threat, candidates=2)
    assert (few.rounds(10), few.most_passes(10)[1]) == (2, 2 * 102) and MALT(threat).rounds(10) == 9
    images, labels = images_and_labels(8)
    results = [runner.run_attack(make(threat), model, images, labels, seed=1).success for make in (MALT, APGDTargeted)]
    assert np.mean(results[0] == results[1]) > 0.8
