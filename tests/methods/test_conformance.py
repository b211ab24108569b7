"""The battery of `conformance.methods` over every row."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from tfrobust import saving
from tfrobust.ops import randomness
from tfrobust.structs import Batch, Context
from tfrobust.training.workdir import canonical


def default_weights(method) -> dict:
    """What each term counts in the loss, where nobody says otherwise."""
    penalty = {} if method.penalty is None else method.penalty.weights
    return {**dict.fromkeys(method.terms, 1.0), **method.default_weights, **penalty}


@pytest.mark.parametrize("row", battery.ROWS)
def test_a_row_trains_logs_its_terms_and_traces_once(row):
    method = battery.build(row)
    images, labels = battery.data(row=row)
    traces = []
    plain = method.make_views
    method.make_views = lambda *arguments: traces.append(1) or plain(*arguments)
    step = tf.function(method.train_step, autograph=False)
    before = battery.weights(method)
    for _ in range(3):
        logs = step((tf.constant(images), tf.constant(labels)))
    assert len(traces) == 1
    assert {"loss", "accuracy", *method.all_terms, *method.observations} <= set(logs)
    assert all(np.isfinite(float(value)) for value in logs.values()), logs
    assert int(method.step) == 3
    moved = [np.any(a != b) for a, b in zip(before, battery.weights(method), strict=True)]
    names = [variable.path for variable in method.variables]
    assert all(moved), [name for name, has in zip(names, moved, strict=True) if not has]


@pytest.mark.parametrize("row", battery.ROWS)
def test_the_loss_is_the_weighted_mean_of_the_terms(row):
    method = battery.build(row, term_weights={battery.build(row, compiled=False).terms[0]: 0.5})
    images, labels = battery.data(row=row)
    weight = np.linspace(0.0, 2.0, len(labels)).astype(np.float32)
    logs = method.train_step((tf.constant(images), tf.constant(labels), tf.constant(weight)))
    weights = default_weights(method) | {method.terms[0]: 0.5}
    expected = sum(weights[name] * float(logs[name]) for name in method.all_terms)
    assert float(logs["loss"]) == pytest.approx(expected + float(logs.get("regularization", 0.0)), rel=1e-5)


@pytest.mark.parametrize("row", battery.ROWS)
def test_a_step_is_the_gradient_of_that_loss(row):
    """SGD without momentum moves by -rate x gradient of the mean of the weighted terms, taken here by hand."""
    method = battery.build(row, optimizer=keras.optimizers.SGD(0.1))
    twin = battery.build(row)
    images, labels = (tf.constant(part) for part in battery.data(row=row))
    rows = tf.range(len(labels), dtype=tf.int64)
    batch = Batch(images, labels, rows, {})
    context = Context(randomness.make_key(0, "train", 0), tf.constant(0, tf.int64), rows)
    views = twin.make_views(batch, context)
    with tf.GradientTape() as tape:
        terms, _ = twin.evaluate_terms(views, batch, context)
        weights = default_weights(twin)
        loss = sum(weights[name] * tf.reduce_mean(terms[name]) for name in twin.all_terms) + sum(twin.losses)
    gradients = tape.gradient(loss, twin.trainable_variables)
    before = [variable.numpy() for variable in method.trainable_variables]
    method.train_step((images, labels))
    for old, new, gradient in zip(before, method.trainable_variables, gradients, strict=True):
        scale = max(1e-3, float(np.abs(gradient).max()))
        np.testing.assert_allclose(new.numpy(), old - 0.1 * gradient.numpy(), atol=2e-5 * scale + 1e-7)


@pytest.mark.parametrize("row", battery.ROWS)
def test_a_row_survives_saving_with_its_type_outputs_and_next_step(row, tmp_path):
    method = battery.build(row)
    images, labels = battery.data(row=row)
    method.train_step((tf.constant(images), tf.constant(labels)))
    path = tmp_path / "method.keras"
    saving.save(method, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = saving.load(path)
    assert type(loaded) is type(method)
    assert canonical(loaded.get_config()) == canonical(method.get_config())
    np.testing.assert_array_equal(loaded.predict(images, verbose=0), method.predict(images, verbose=0))
    one, other = (m.train_step((tf.constant(images), tf.constant(labels))) for m in (method, loaded))
    assert float(one["loss"]) != 0.0
    for a, b in zip(battery.weights(method), battery.weights(loaded), strict=True):
        np.testing.assert_array_equal(a, b)
    assert set(one) == set(other)


@pytest.mark.parametrize("row", battery.ROWS)
def test_the_same_seed_gives_the_same_step_and_another_seed_another(row):
    images, labels = (tf.constant(part) for part in battery.data(row=row))
    results = []
    for seed in (0, 0, 5):
        method = battery.build(row, seed=0)
        method.seed = seed
        tf.function(method.train_step, autograph=False)((images, labels))
        results.append(battery.weights(method))
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(results[0], results[1], strict=True))
    if row not in ("supervised", "fcl_text"):  # nothing in these is random: of the words none are equally useful
        assert any(not np.allclose(a, b, atol=1e-5) for a, b in zip(results[0], results[2], strict=True))


@pytest.mark.parametrize("row", battery.ROWS)
def test_making_views_moves_no_statistic_and_hands_on_no_gradient(row):
    method = battery.build(row)
    images, labels = (tf.constant(part) for part in battery.data(row=row))
    rows = tf.range(len(labels), dtype=tf.int64)
    context = Context(randomness.make_key(0), tf.constant(0, tf.int64), rows)
    before = battery.weights(method)
    views = method.make_views(Batch(images, labels, rows, {}), context)
    for a, b in zip(before, battery.weights(method), strict=True):
        np.testing.assert_array_equal(a, b)
    for name, view in views.items():
        assert view.shape in (images.shape, labels.shape), name  # images, or a number for each
        if name.startswith("adversarial"):
            clean = views.get(name.replace("adversarial", "images"), views.get(name.replace("adversarial", "view")))
            assert 0.0 < float(tf.reduce_max(tf.abs(view - clean))) <= 0.1 + 1e-6
        if name not in ("least", "most", "usable") and row not in battery.TEXT_ROWS:  # FCL's noise is not clipped
            assert 0.0 <= float(tf.reduce_min(view)) and float(tf.reduce_max(view)) <= 1.0


def test_evaluate_reports_the_clean_numbers_of_the_deployable_path():
    method = battery.build("ascl")
    images, labels = battery.data()
    method.train_step((tf.constant(images), tf.constant(labels)))
    logits = method.predict(images, verbose=0)
    results = method.evaluate(images, labels, batch_size=5, verbose=0, return_dict=True)
    assert results["accuracy"] == pytest.approx(np.mean(logits.argmax(-1) == labels))
    shifted = logits - logits.max(-1, keepdims=True)
    by_hand = np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(len(labels)), labels]
    assert results["loss"] == pytest.approx(by_hand.mean(), rel=1e-5)
    assert set(results) == {"loss", "accuracy"}


def test_fit_trains_with_plain_arrays():
    method = battery.build("adversarial_training")
    images, labels = battery.data(24)
    history = method.fit(images, labels, batch_size=12, epochs=3, verbose=0).history
    assert history["ce"][-1] < history["ce"][0]
    assert int(method.step) == 6


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"term_weights": {"ce_advv": 1.0}}, "ce_advv"),
        ({"clip_norm": -1.0}, "clip_norm"),
    ],
)
def test_wrong_arguments_are_named(keywords, message):
    with pytest.raises(ValueError, match=message):
        battery.build("adversarial_training", **keywords)


def test_scheduled_term_weights_follow_the_step():
    schedule = keras.optimizers.schedules.PolynomialDecay(1.0, 2, end_learning_rate=0.0)
    method = battery.build("adversarial_training", term_weights={"ce_adv": schedule})
    images, labels = (tf.constant(part) for part in battery.data())
    method.train_step((images, labels))
    method.reset_metrics()
    logs = method.train_step((images, labels))
    assert float(logs["loss"]) == pytest.approx(float(logs["ce"]) + 0.5 * float(logs["ce_adv"]), rel=1e-5)


def test_clip_norm_bounds_the_step():
    images, labels = (tf.constant(part) for part in battery.data())
    method = battery.build("supervised", optimizer=keras.optimizers.SGD(1.0), clip_norm=1e-3)
    before = [variable.numpy() for variable in method.trainable_variables]
    method.train_step((images, labels))
    moves = [new.numpy() - old for old, new in zip(before, method.trainable_variables, strict=True)]
    assert np.sqrt(sum(np.sum(move**2) for move in moves)) == pytest.approx(1e-3, rel=1e-2)
