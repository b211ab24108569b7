"""Heads that are fitted at once, beside scikit-learn's classifiers on the same features."""

import warnings

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression as Peer
from sklearn.neighbors import KNeighborsClassifier

from tfrobust.keras.models import KNearestNeighbours, LinearHead, LogisticRegression, MLPHead

CLASSES, COUNT = 4, 120


def features(count=COUNT, seed=0):
    """Blobs that overlap, float32 [n, 6], and their classes."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, CLASSES, count)
    centres = 1.5 * np.random.default_rng(9).normal(size=(CLASSES, 6))
    return (centres[labels] + generator.normal(size=(count, 6))).astype(np.float32), labels


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("regularization", [1e-3, 0.1])
def test_logistic_regression_is_scikit_learn_s(regularization, normalized):
    values, labels = features()
    head = LogisticRegression(CLASSES, regularization=regularization, normalized=normalized)
    head.fit_features(values, labels)
    inputs = values / np.linalg.norm(values, axis=1, keepdims=True) if normalized else values
    peer = Peer(C=1 / (2 * COUNT * regularization), tol=1e-10, max_iter=10_000).fit(inputs.astype(float), labels)
    np.testing.assert_allclose(head.chain[0].kernel, peer.coef_.T, atol=2e-4)
    fresh, _ = features(seed=1)
    shares = peer.predict_proba(fresh / np.linalg.norm(fresh, axis=1, keepdims=True) if normalized else fresh)
    np.testing.assert_allclose(tf.nn.softmax(head(fresh)), shares, atol=1e-4)


def test_logistic_regression_has_no_slope_left_and_knows_absent_classes():
    values, labels = features()
    few = labels < 2
    head = LogisticRegression(CLASSES, regularization=0.01)
    head.fit_features(values[few], labels[few])
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels[few], head(values[few]))
        value = tf.reduce_mean(losses) + 0.01 * tf.reduce_sum(tf.square(head.chain[0].kernel.value))
    assert tf.linalg.global_norm(tape.gradient(value, head.trainable_variables)) < 1e-5
    assert np.max(tf.nn.softmax(head(values))[:, 2:]) < 1e-3
    before = head.chain[0].kernel.numpy()
    head.fit_features(values[few], labels[few])
    np.testing.assert_array_equal(head.chain[0].kernel, before)


@pytest.mark.parametrize(("iterations", "stopped"), [(3, True), (1000, False)])
def test_a_regression_that_did_not_converge_says_so_where_scikit_learn_does(iterations, stopped, caplog):
    values, labels = features()
    outcome = LogisticRegression(CLASSES, regularization=1e-3, iterations=iterations).fit_features(values, labels)
    assert outcome["converged"] != stopped and (outcome["iterations"] == iterations) == stopped
    assert (outcome["largest_slope"] > 1e-3) == stopped
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == stopped and all(
        "stopped after 3 iterations" in message and len(message) < 300 for message in messages
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        Peer(C=1 / (2 * COUNT * 1e-3), max_iter=iterations).fit(values.astype(float), labels)
    assert any(issubclass(warning.category, ConvergenceWarning) for warning in warned) == stopped


@pytest.mark.parametrize("neighbours", [1, 7, None])
def test_nearest_neighbours_are_scikit_learn_s(neighbours):
    values, labels = features()
    temperature = 0.3
    head = KNearestNeighbours(CLASSES, neighbours=neighbours, temperature=temperature)
    head.fit_features(values, labels)
    peer = KNeighborsClassifier(
        neighbours or COUNT, metric="cosine", weights=lambda distance: np.exp(-distance / temperature)
    ).fit(values, labels)
    fresh, _ = features(seed=1)
    np.testing.assert_allclose(tf.nn.softmax(head(fresh)), peer.predict_proba(fresh), atol=1e-5)
    np.testing.assert_array_equal(np.argmax(head(values), -1) == labels, peer.predict(values) == labels)


@pytest.mark.parametrize("kind", [LogisticRegression, KNearestNeighbours])
def test_labels_are_classes_in_any_of_their_forms(kind):
    values, labels = features(20)
    heads = [kind(CLASSES) for _ in range(3)]
    for head, given in zip(heads, (labels, labels[:, None], np.eye(CLASSES)[labels]), strict=True):
        head.fit_features(values, given)
    for head in heads[1:]:
        np.testing.assert_array_equal(head(values), heads[0](values))
    for wrong in (labels - 1, labels + 1, labels[1:]):
        with pytest.raises(ValueError, match=kind.__name__):
            kind(CLASSES).fit_features(values, wrong)


def test_more_neighbours_than_examples_are_all_of_them():
    values, labels = features(9)
    heads = [KNearestNeighbours(CLASSES, neighbours=neighbours) for neighbours in (200, None)]
    for head in heads:
        head.fit_features(values, labels)
    np.testing.assert_array_equal(heads[0](values), heads[1](values))


@pytest.mark.parametrize("neighbours", [20, None])
def test_nearest_neighbours_have_the_gradient_of_their_formula(neighbours):
    values, labels = features()
    head = KNearestNeighbours(CLASSES, neighbours=neighbours, temperature=0.5)
    head.fit_features(values, labels)
    point = tf.Variable(features(3, seed=2)[0])

    def loss(where):
        return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits([0, 1, 2], head(where)))

    with tf.GradientTape() as tape:
        value = loss(point)
    gradient = tape.gradient(value, point).numpy()
    for entry in [(0, 1), (1, 4), (2, 0)]:
        step = np.zeros_like(gradient)
        step[entry] = 1e-3  # short: where another example becomes a neighbour, the vote jumps
        slope = float(loss(point + step) - loss(point - step)) / 2e-3
        assert gradient[entry] == pytest.approx(slope, abs=2e-3)
    # Of the second point all of the 20 neighbours are of one class, which is what the docstring warns of.
    assert (np.linalg.norm(gradient, axis=1) > 1e-3).tolist() == [True, neighbours is None, True]
    assert np.all(np.isfinite(head(tf.zeros([1, 6]))))
    # A step against the gradient of the right class makes it less likely: attacks apply.
    assert float(loss(point + 0.5 * gradient)) > float(value)


def test_what_was_kept_is_never_trained():
    values, labels = features(30)
    head = KNearestNeighbours(CLASSES, examples=30)
    assert np.ptp(head(values)) == 0  # no example votes yet
    head.fit_features(values, labels)
    assert head.trainable_variables == [] and {variable.shape for variable in head.variables} == {(30, 6), (30,)}


@pytest.mark.parametrize("kind, settings", stored.rows(globals(), "a_fitted_head_is_saved_with_its_own_arguments"))
def test_a_fitted_head_is_saved_with_its_own_arguments_alone(kind, settings, tmp_path):
    values, labels = features(30)
    head = kind(CLASSES, **settings)
    model = keras.Sequential([keras.Input((6,)), head])
    head.fit_features(values, labels)
    config = head.get_config()
    assert {name: config[name] for name in config if name not in ("name", "trainable", "dtype")} == {
        "class_count": CLASSES,
        **settings,
    }
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras", safe_mode=True)
    np.testing.assert_array_equal(again(values), model(values))


@pytest.mark.parametrize("head", [LinearHead(CLASSES, normalized=True), MLPHead(CLASSES, hidden=5, normalized=True)])
def test_normalised_features_have_no_length(head):
    values, _ = features(5)
    np.testing.assert_allclose(head(values), head(7.5 * values), atol=1e-5)
    length = np.linalg.norm(values, axis=1, keepdims=True)
    plain = type(head).from_config(head.get_config() | {"normalized": False})
    plain.build(values.shape)
    plain.set_weights(head.get_weights())
    np.testing.assert_allclose(head(values), plain(values / length), atol=1e-5)
    assert np.abs(plain(values) - plain(7.5 * values)).max() > 0.1
