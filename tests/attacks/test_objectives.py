import numpy as np
import pytest
import stored
import tensorflow as tf
from scipy.special import log_softmax, softmax

from oracles import instances
from tfrobust.attacks.shared import objectives
from tfrobust.structs import PairMasks

LOGITS = np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]])
LABELS = np.array([1, 0])


def _predict(images):
    return tf.cast(images, tf.float16)  # half precision comes back as float32


LOGS, SOFT, IDS = log_softmax(LOGITS, axis=1), np.array([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]]), tf.constant(LABELS)


@pytest.mark.parametrize(
    "objective, expected",
    stored.cases(__file__, "objectives", globals(), "tables.toml")["rows"],
)
def test_an_objective_of_images(objective, expected):
    values = objective(tf.constant(LOGITS, tf.float32))
    assert values.dtype == tf.float32
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_kl_is_from_the_clean_prediction_and_stops_its_gradient():
    clean, images = tf.constant(LOGITS[::-1].copy(), tf.float32), tf.constant(LOGITS, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch([clean, images])
        values = objectives.kl(_predict, clean)(images)
    p, q = softmax(LOGITS[::-1], axis=1), log_softmax(LOGITS, axis=1)
    np.testing.assert_allclose(values, np.sum(p * (np.log(p) - q), axis=1), rtol=1e-5)
    from_clean, from_images = tape.gradient(values, [clean, images])
    assert from_clean is None
    np.testing.assert_allclose(from_images, np.exp(q) - p, atol=1e-3)  # the cast to float16 rounds it


def test_the_cross_entropy_of_a_label_whose_probability_rounds_to_1_does_not_round_to_0():
    logits = tf.constant([[0.0, 30.0, -5.0], [60.0, 0.0, 1.0], [0.0, 20.0, 19.0], [0.0, 13.5, -9.0]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        values = objectives.cross_entropy(tf.identity, [[1], [0], [1], [1]])(logits)
    exact, label = np.float64(logits), np.eye(3)[[1, 0, 1, 1]]
    gaps = np.where(label, -np.inf, exact - np.sum(exact * label, axis=1, keepdims=True))
    np.testing.assert_allclose(values, np.log1p(np.exp(gaps).sum(axis=1)), rtol=0.1)
    rivals = np.exp(gaps) / (1 + np.exp(gaps).sum(axis=1, keepdims=True))
    expected = np.where(label, -rivals.sum(axis=1, keepdims=True), rivals)
    np.testing.assert_allclose(tape.gradient(values, logits), expected, rtol=0.1)


def test_classes_that_are_ruled_out_leave_no_slope_and_no_nan():
    logits = tf.constant([[-np.inf, 0.0], [0.0, 200.0]], tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        values = objectives.cross_entropy(tf.identity, [1, 1])(logits)
    np.testing.assert_array_equal(values, [0.0, 0.0])
    np.testing.assert_array_equal(tape.gradient(values, logits), np.zeros([2, 2]))


def _dlr(logits, label):
    """By the formula, with the loop of the sort."""
    largest = sorted(logits, reverse=True)
    other = max(z for c, z in enumerate(logits) if c != label)
    below = largest[0] - largest[2] + 1e-12 if len(logits) > 2 else 1.0
    return -(logits[label] - other) / below


def _targeted_dlr(logits, label, target):
    largest = sorted(logits, reverse=True)
    below = 1.0
    if len(logits) == 3:
        below = largest[0] - largest[2] + 1e-12
    elif len(logits) > 3:
        below = largest[0] - (largest[2] + largest[3]) / 2 + 1e-12
    return -(logits[label] - logits[target]) / below


@pytest.mark.parametrize("classes", [2, 3, 4, 10])
def test_dlr_and_its_gradient(classes):
    rng = np.random.default_rng(classes)
    logits = rng.normal(size=(8, classes)).astype(np.float32)
    labels, targets = rng.integers(0, classes, (2, 8))
    cases = [
        (objectives.dlr_of, (labels,), _dlr),
        (objectives.targeted_dlr_of, (labels, targets), _targeted_dlr),
    ]
    for function, classes_of, literal in cases:
        source = tf.constant(logits)
        with tf.GradientTape() as tape:
            tape.watch(source)
            values = function(source, *map(tf.constant, classes_of))
        rows = list(zip(logits.astype(float), *classes_of, strict=True))
        np.testing.assert_allclose(values, [literal(*row) for row in rows], rtol=1e-4, atol=1e-6)
        numeric = np.zeros((8, classes))
        for i, (row, *which) in enumerate(rows):
            for c, change in enumerate(1e-6 * np.eye(classes)):
                numeric[i, c] = (literal(row + change, *which) - literal(row - change, *which)) / 2e-6
        np.testing.assert_allclose(tape.gradient(values, source), numeric, rtol=1e-3, atol=1e-4)


def test_dlr_does_not_see_the_scale_of_logits():
    logits, labels = tf.constant([[3.0, 2.0, 0.5, 0.0], [1.0, 4.0, 2.0, 3.0]]), tf.constant([0, 0])
    for function in (objectives.dlr_of, lambda z, y: objectives.targeted_dlr_of(z, y, tf.constant([1, 3]))):
        np.testing.assert_allclose(function(1e5 * logits + 3.0, labels), function(logits, labels), rtol=1e-4)


def test_the_contrastive_objective_is_the_loss_of_each_image_against_keys_that_stay():
    generator = np.random.default_rng(0)
    images, target, other = (generator.normal(size=(4, 3)) for _ in range(3))
    positive = np.concatenate([np.eye(4), np.zeros((4, 4))], axis=1) > 0
    pairs = PairMasks(tf.constant(positive), tf.constant(np.tile(np.eye(4) == 0, (1, 2))))
    keys = tf.constant(np.concatenate([target, other]), tf.float32)
    expected = instances.anchor_losses(images, target, [target, other], 0.3)
    for source in (keys, lambda embeddings: keys + 0 * tf.tile(embeddings, [2, 1])):
        objective = objectives.contrastive(tf.identity, source, pairs, temperature=0.3)
        np.testing.assert_allclose(objective(tf.constant(images, tf.float32)), expected, rtol=1e-5)


def test_the_joint_objective_is_the_released_loss_of_both_views():
    first, second = np.random.default_rng(0).normal(size=(2, 4, 3))
    identity = np.eye(8) > 0
    partner = np.roll(identity, 4, axis=1)
    pairs = PairMasks(tf.constant(partner), tf.constant(~identity & ~partner))
    views = tuple(tf.constant(view, tf.float32) for view in (first, second))
    values = objectives.joint_contrastive(tf.identity, pairs, temperature=0.3)(views)
    assert values.shape == [4] and float(tf.reduce_mean(values)) == pytest.approx(
        instances.acl(first, second, 0.3), rel=1e-5
    )
