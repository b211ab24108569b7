"""The battery of `conformance.methods`: one built method and one traced step per row, shared by all checks."""

import functools
import warnings
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from tfrobust import saving
from tfrobust.runs.workdir import canonical


class Trial:
    """A built method of a row and its step as a graph; every check begins with `reset`.

    The graph takes the seed and returns the logs, the views, and the state between views and loss. Its views are
    those of a check by hand too: an eager attack could take another sign where a gradient is almost 0.
    """

    def __init__(self, row: str):
        self.row, self.method, self.traces = row, battery.build(row), 0
        self.method.term_weights = {self.method.terms[0]: 0.5}
        self.examples = [tf.constant(part) for part in battery.data(row=row)]
        self.weight = tf.linspace(0.0, 2.0, len(self.examples[1]))
        self._initial = [(v, v.numpy()) for v in (*self.method.variables, *self.method.optimizer.variables)]
        self._graph = tf.function(self._traced, autograph=False)

    def reset(self) -> None:
        for variable, value in self._initial:
            variable.assign(value)
        self.method.reset_metrics()

    def step(self, seed: int = 0):
        return self._graph(tf.constant(seed), *self.examples, self.weight)

    @functools.cached_property
    def first_step(self):
        self.reset()
        return self.step()

    def _traced(self, seed, *batch):
        self.traces += 1
        method, captured = self.method, {}

        def make_views(*arguments):
            captured["views"] = type(method).make_views(method, *arguments)
            captured["state"] = [tf.identity(variable.value) for variable in method.variables]
            return captured["views"]

        with mock.patch.multiple(method, seed=seed, make_views=make_views):
            logs = method.train_step(batch)
        return logs, captured["views"], captured["state"]


# Tracing takes seconds: the first tier has these rows alone.
FIRST = ("supervised", "trades", "ascl_leaked", "nfm", "augmix", "fcl", "cl_gaussian", "simclr", "byol")


ROWS = [pytest.param(row, marks=pytest.mark.first if row in FIRST else pytest.mark.rest) for row in battery.ROWS]


@pytest.fixture(scope="module", params=ROWS)
def trial(request):
    return Trial(request.param)


def test_a_row_trains_logs_its_terms_and_traces_once(trial):
    method = trial.method
    trial.reset()
    before = battery.weights(method)
    for _ in range(3):
        logs, *_ = trial.step()
    assert trial.traces == 1
    assert {"loss", "accuracy", *method.all_terms, *method.observations} <= set(logs)
    assert all(np.isfinite(float(value)) for value in logs.values()), logs
    assert int(method.step) == 3
    moved = [np.any(a != b) for a, b in zip(before, battery.weights(method), strict=True)]
    names = [variable.path for variable in method.variables]
    still = [name for name, has in zip(names, moved, strict=True) if not has]
    assert still == [variable.path for variable in method.variables if id(variable) in battery.frozen(method)]


def test_a_step_is_the_gradient_of_the_weighted_mean_of_the_terms(trial):
    """SGD's first step is -rate x gradient of the loss, taken here by hand."""
    method, (logs, views, _) = trial.method, trial.first_step
    if getattr(method, "weight_perturbation", None) is not None:
        return  # its gradient is that of other weights: test_weight_perturbation.py
    penalty = {} if method.penalty is None else method.penalty.weights
    factors = {**dict.fromkeys(method.terms, 1.0), **method.default_weights, **penalty, method.terms[0]: 0.5}
    logged = sum(factors[name] * float(logs[name]) for name in method.all_terms)
    assert float(logs["loss"]) == pytest.approx(logged + float(logs.get("regularization", 0.0)), rel=1e-5)
    trial.reset()
    batch = method.as_batch((*trial.examples, trial.weight))
    share = trial.weight / tf.reduce_sum(trial.weight)
    with tf.GradientTape() as tape:
        terms, _ = method.evaluate_terms(views, batch, method.context(batch))
        loss = sum(factors[name] * tf.reduce_sum(share * terms[name]) for name in method.all_terms)
        loss += sum(method.losses)
    assert float(logs["loss"]) == pytest.approx(float(loss), rel=1e-3)
    gradients = tape.gradient(loss, method.trainable_variables)
    trial.reset()
    before = [variable.numpy() for variable in method.trainable_variables]
    trial.step()
    otherwise = battery.changed_otherwise(method)
    for old, new, gradient in zip(before, method.trainable_variables, gradients, strict=True):
        if id(new) in otherwise:
            continue
        rounding = np.spacing(np.abs(old).max()) / battery.RATE
        tolerance = 1e-3 * np.abs(gradient).max() + 1e-6 + rounding
        np.testing.assert_allclose((old - new.numpy()) / battery.RATE, gradient, rtol=0, atol=tolerance)


def test_the_same_seed_gives_the_same_step_and_another_seed_another(trial):
    results = []
    for seed in (0, 0, 5):
        trial.reset()
        trial.step(seed)
        results.append(battery.weights(trial.method))
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(results[0], results[1], strict=True))
    if trial.row not in (
        "supervised",
        "fcl_text",
        "free_adversarial_training",
        "ibp",
        "crown_ibp",
    ):  # nothing in these is random: of the words none are equally useful
        assert any(not np.allclose(a, b, atol=1e-5) for a, b in zip(results[0], results[2], strict=True))


def test_making_views_moves_no_statistic_and_stays_in_range(trial):
    _, views, state = trial.first_step
    trial.reset()
    for a, b in zip(battery.weights(trial.method), state, strict=True):
        np.testing.assert_array_equal(a, b)
    images, labels = trial.examples
    for name, view in views.items():
        # Images, a number for each, or images of another size.
        cut = name.startswith("local") or trial.row in battery.CUT_ROWS
        assert cut or view.shape in (images.shape, labels.shape), name
        if name.startswith("adversarial"):
            clean = views.get(name.replace("adversarial", "images"), views.get(name.replace("adversarial", "view")))
            assert 0.0 < float(tf.reduce_max(tf.abs(view - clean))) <= 0.1 + 1e-6
        clipped = name not in ("least", "most", "usable") and not name.startswith("copy")  # noise is not clipped
        if clipped and trial.row not in battery.TEXT_ROWS:
            assert 0.0 <= float(tf.reduce_min(view)) and float(tf.reduce_max(view)) <= 1.0


def test_a_row_survives_saving_with_its_type_state_and_outputs(trial, tmp_path):
    method, (images, _) = trial.method, trial.examples
    trial.reset()
    trial.step()
    saving.save(method, tmp_path / "method.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = saving.load(tmp_path / "method.keras")
    assert type(loaded) is type(method)
    assert canonical(loaded.get_config()) == canonical(method.get_config())
    for old, new in ((method, loaded), (method.optimizer, loaded.optimizer)):
        of_metrics = {id(metric) for model in (method, loaded) for part in model.metrics for metric in part.variables}
        assert len(old.variables) == len(new.variables)
        for a, b in zip(old.variables, new.variables, strict=True):
            if id(a) not in of_metrics:  # Keras does not save the sums of metrics
                np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=a.path)
    np.testing.assert_array_equal(loaded(images, training=False), method(images, training=False))


# ------------------------------------------------------------------------------------------------- of the base


def test_evaluate_reports_the_clean_numbers_of_the_deployable_path():
    method = battery.build("ascl")
    images, labels = battery.data()
    logits = method(images, training=False).numpy()
    results = method.evaluate(images, labels, batch_size=5, verbose=0, return_dict=True)
    assert results["accuracy"] == pytest.approx(np.mean(logits.argmax(-1) == labels))
    shifted = logits - logits.max(-1, keepdims=True)
    by_hand = np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(len(labels)), labels]
    assert results["loss"] == pytest.approx(by_hand.mean(), rel=1e-5)
    assert set(results) == {"loss", "accuracy"}


def test_scheduled_term_weights_follow_the_step():
    schedule = keras.optimizers.schedules.PolynomialDecay(1.0, 2, end_learning_rate=0.0)
    method = battery.build("adversarial_training", term_weights={"ce_adv": schedule})
    images, labels = (tf.constant(part) for part in battery.data())
    method.train_step((images, labels))
    method.reset_metrics()
    logs = method.train_step((images, labels))
    assert float(logs["loss"]) == pytest.approx(float(logs["ce"]) + 0.5 * float(logs["ce_adv"]), rel=1e-5)
