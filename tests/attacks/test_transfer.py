"""Transfer attacks and models with integer inputs, on models whose best attack is known."""

import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.attacks import apgd, fab, gradient, square  # noqa: F401
from tfrobust.attacks.shared.engine import onto_grid
from tfrobust.attacks.shared.goal import Goal
from tfrobust.keras.attacks import Ensemble, ThreatModel, Transfer, run_attack

THREAT = ThreatModel(epsilon=0.1)
IMAGES = np.random.default_rng(0).uniform(0.3, 0.7, size=(30, 4, 4, 1)).astype(np.float32)
_DIRECTIONS = tf.constant(np.random.default_rng(1).choice([-1.0, 1.0], size=(16, 2)), tf.float32)


def _linear(images, column=0):
    score = tf.reshape(images - 0.5, [-1, 16]) @ _DIRECTIONS[:, column : column + 1]
    return tf.concat([tf.zeros_like(score), score], axis=1)


def _stepped(images):
    """The same class, in logits without a slope."""
    return 3.0 * tf.sign(_linear(images))


LABELS = np.argmax(_linear(IMAGES), axis=1)
# The score moves by at most 16 epsilon.
WITHIN_REACH = np.abs(_linear(IMAGES).numpy()[:, 1]) < 16 * 0.1


@pytest.mark.parametrize("search", stored.rows(globals(), "the_surrogates_gradients"), ids=lambda search: search.name)
def test_the_surrogates_gradients_reach_a_model_without_any(search):
    assert 0.2 < WITHIN_REACH.mean() < 1
    alone = run_attack(search, _stepped, IMAGES, LABELS)
    assert alone.success.mean() < 0.5 * WITHIN_REACH.mean()
    result = run_attack(Transfer(search), _stepped, IMAGES, LABELS, surrogate=_linear)
    np.testing.assert_array_equal(result.success, WITHIN_REACH)
    np.testing.assert_array_equal(np.argmax(_stepped(result.adversarial), axis=1) != LABELS, WITHIN_REACH)
    assert result.distance.max() <= 0.1 + 1e-6


def test_a_surrogate_of_probabilities_is_searched_by_its_logits():
    """Search by values alone, which would show no change where a probability rounds to 1."""
    probabilities = lambda images: tf.nn.softmax(80.0 * _linear(images))  # noqa: E731
    search = Transfer(square.Square(THREAT, steps=200))
    results = [run_attack(search, _stepped, IMAGES, LABELS, surrogate=other) for other in (probabilities, _linear)]
    np.testing.assert_array_equal(results[0].success, results[1].success)
    assert 0.3 < results[0].success.mean()


def test_a_search_that_needs_the_models_answers_is_refused():
    for search in (fab.FAB(THREAT), fab.FABUntargeted(THREAT)):
        with pytest.raises(ValueError, match=f"Transfer.search is {type(search).__name__}"):
            Transfer(search)


def test_targets_are_never_the_label_where_the_surrogate_ranks_another_class_first():
    """A surrogate with the model's direction and an offset calls every image class 1."""
    images, labels = IMAGES[LABELS == 0], LABELS[LABELS == 0]
    offset = lambda inputs: _linear(inputs) + tf.constant([[0.0, 30.0]])  # noqa: E731
    search = apgd.APGDTargeted(THREAT, steps=10)
    for predict in (offset, _linear):
        start = tf.constant(images), Goal(tf.constant(labels)), tf.zeros([len(images), 2], tf.int32)
        state = search.start(predict, *start, tf.zeros(len(images), tf.int32))
        assert set(state["target"].numpy().tolist()) == {1}
    result = run_attack(Transfer(search), _linear, images, labels, surrogate=offset)
    np.testing.assert_array_equal(result.success, WITHIN_REACH[LABELS == 0])


def test_the_model_decides_where_the_surrogate_is_misclassified_elsewhere():
    def farther(images):  # the boundary of label 1 is three times as far away as the surrogate's
        return _linear(images) + tf.constant([[0.0, 0.8]])

    labels, margins = np.ones(30, int), _linear(IMAGES).numpy()[:, 1] + 0.8
    result = run_attack(Transfer(gradient.PGD(THREAT, steps=30)), farther, IMAGES, labels, surrogate=_linear)
    np.testing.assert_array_equal(result.success, margins < 16 * 0.1)
    assert np.any(result.success & (margins > 0.8))  # beyond the surrogate's boundary, which the search has crossed


def test_the_best_point_of_the_surrogate_is_tried_though_the_search_has_left_it():
    seen = {"surrogate": [], "model": []}

    def scores(images):  # a ridge, from which a step leads down on the other side
        return 3.0 - 100 * tf.abs(tf.reduce_sum((images - 0.5) * tf.reshape(_DIRECTIONS[:, 0], [4, 4, 1]), (1, 2, 3)))

    def watched(name, height):
        def predict(images):
            note = tf.numpy_function(lambda points: seen[name].append(points), [tf.stop_gradient(images)], [])
            with tf.control_dependencies([note]):
                return tf.stack([tf.zeros(tf.shape(images)[:1]), scores(images) - height], axis=1)

        return predict

    surrogate, model = watched("surrogate", 1e3), watched("model", 1e3)
    result = run_attack(Transfer(apgd.APGDDLR(THREAT, steps=20)), model, IMAGES[:1], [0], surrogate=surrogate)
    assert not result.success.any()
    best = {name: max(scores(points).numpy().max() for points in batches) for name, batches in seen.items()}
    assert best["model"] == pytest.approx(best["surrogate"], abs=1e-3)


def test_an_ensemble_joins_transferred_and_own_gradients():
    attack = Ensemble((Transfer(gradient.FGSM(THREAT)), gradient.FGSM(THREAT)))
    assert [member.name for member in attack.members] == ["transfer_fgsm", "fgsm"] and attack.needs_gradient
    result = run_attack(attack, _linear, IMAGES, LABELS, surrogate=lambda x: _linear(x, 1))
    np.testing.assert_array_equal(result.success, WITHIN_REACH)
    assert set(result.member[result.success]) == {0, 1}


# ----------------------------------------------------------------------------------------------- integer inputs


def test_points_are_rounded_toward_the_image_by_whole_gaps():
    inputs = tf.constant([[0.0, 0.5, 0.5, 0.5, 1.0]])
    points = tf.constant([[0.3, 0.74, 0.26, 0.7499999, 0.74]])
    with tf.GradientTape() as tape:
        tape.watch(points)
        rounded = onto_grid(inputs, points, 0.25, (0.0, 1.0))
    np.testing.assert_array_equal(rounded, [[0.25, 0.5, 0.5, 0.75, 0.75]])
    np.testing.assert_array_equal(tape.gradient(rounded, points), np.ones([1, 5]))


@pytest.mark.parametrize("kind", ["linf", "l2", "l1"])
def test_adversarial_images_lie_on_the_grid_and_within_epsilon(kind):
    from tfrobust.attacks.shared.engine import Engine

    gap, epsilon = 1 / 16, {"linf": 0.2, "l2": 0.6, "l1": 2.0}[kind]
    images = np.round(IMAGES / gap).astype(np.float32) * np.float32(gap)
    labels = np.argmax(_linear(images), axis=1)
    threat = ThreatModel(norm=kind, epsilon=epsilon)
    result = Engine(gradient.PGD(threat, steps=20), _linear, grid=gap).run(images, labels)
    assert 0.1 < result.success.mean()
    np.testing.assert_allclose(result.adversarial / gap, np.round(result.adversarial / gap), atol=1e-4)
    assert result.distance.max() <= epsilon * (1 + 1e-5)
    if kind == "linf":  # three gaps fit into 0.2
        reach = 16 * 3 * gap
        np.testing.assert_array_equal(result.success, np.abs(_linear(images).numpy()[:, 1]) < reach)


# ----------------------------------------------------------------------------------------------------- plateaus


def test_square_crosses_plateaus_if_ties_are_accepted():
    def rounded(images):  # logits with a step as large as many changes of one window
        return tf.round(_linear(images) / 1.5) * 1.5

    labels = np.argmax(rounded(IMAGES), axis=1)
    share = []
    for ties in (False, True):
        attack = square.Square(THREAT, steps=300, accept_ties=ties)
        share.append(run_attack(attack, rounded, IMAGES, labels).success.mean())
    assert share[1] > share[0]
