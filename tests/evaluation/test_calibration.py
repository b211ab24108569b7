"""Calibration scores against bin-by-bin loops and closed forms."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from oracles import calibration as oracle
from oracles import linear_model
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import searching, statistics
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators import calibration
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.keras.attacks import PGD, ThreatModel


@pytest.fixture
def case():
    generator = np.random.default_rng(1)
    logits = generator.normal(size=(97, 5)) * 2
    labels = generator.integers(0, 5, 97)
    confidence = np.array([max(oracle.softmax(row)) for row in logits.tolist()])
    return logits, labels, confidence, logits.argmax(-1) == labels


def test_sigmoids_are_believed_one_by_one():
    # p = (1/2, 3/4): not made to sum to 1; as likely as one coin for each class.
    logits, labels = np.log([[1.0, 3.0], [1.0, 3.0]]), np.array([0, 1])
    np.testing.assert_allclose(np.exp(calibration.log_probabilities(logits, True)), [[0.5, 0.75]] * 2)
    np.testing.assert_allclose(calibration.brier_scores(logits, labels, True), [0.25 + 0.5625, 0.25 + 0.0625])
    np.testing.assert_allclose(calibration.negative_log_likelihoods(logits, labels, True), -np.log([1 / 8, 3 / 8]))
    assert calibration.log_probabilities(np.array([-800.0]), True) == -800.0


def test_a_model_of_sigmoids_is_calibrated_by_what_it_says():
    predict, images, labels, _, _ = linear_model.make(60)
    sigmoids = lambda x: tf.sigmoid(20 * predict(x) @ [[0.0, 0.0], [-2.0, 1.0]])  # noqa: E731
    predictor = from_function(sigmoids, image_shape=linear_model.SHAPE)
    outcome = run_evaluation([calibration.Calibration()], Setting(predictor=predictor, images=images, labels=labels))
    answers = np.asarray(sigmoids(images))
    confidence, correct = answers.max(-1), answers.argmax(-1) == labels
    ece = next(measurement for measurement in outcome.measurements if measurement.id == "calibration.ece")
    assert ece.settings["probabilities"] == "one per class"
    assert ece.value == pytest.approx(calibration.expected_calibration_error(confidence, correct), abs=1e-4)


def test_too_few_images_for_the_bins_of_the_code_are_refused_before_any_work():
    predict, images, labels, _, _ = linear_model.make(60)
    setting = Setting(predictor=from_function(predict, image_shape=linear_model.SHAPE), images=images, labels=labels)
    attack = PGD(ThreatModel(epsilon=0.1), steps=1)
    for changes, count in (({}, 60), ({"attack": attack, "limit": 40}, 40)):
        with pytest.raises(InputError, match=f"{count} images make one bin of 31"):
            calibration.Calibration(rms_bins="code", rms_bin_size=31, **changes).check(setting)
        calibration.Calibration(rms_bins="code", rms_bin_size=20, **changes).check(setting)


def test_ece_closed_form():
    # 3 of 4 right at confidence 0.9 and 1 of 2 at 0.6: (4/6) 0.15 + (2/6) 0.1.
    confidence = np.array([0.9, 0.9, 0.9, 0.9, 0.6, 0.6])
    correct = np.array([1, 1, 1, 0, 1, 0], bool)
    assert calibration.expected_calibration_error(confidence, correct) == pytest.approx(4 / 6 * 0.15 + 2 / 6 * 0.1)
    assert calibration.expected_calibration_error(np.ones(3), np.ones(3, bool)) == 0.0


def test_bins_are_open_below_and_closed_above():
    table = calibration.reliability(np.array([0.0, 0.2, 0.2000001, 1.0]), np.array([0, 1, 0, 1], bool), 5)
    np.testing.assert_array_equal(table["count"], [2, 1, 0, 0, 1])
    np.testing.assert_allclose(table["accuracy"], [0.5, 0, 0, 0, 1])
    np.testing.assert_allclose(table["confidence"], [0.1, 0.2000001, 0, 0, 1])


def test_scores_equal_loops(case):
    logits, labels, confidence, correct = case
    for bins in (1, 4, 15):
        error = calibration.expected_calibration_error(confidence, correct, bins)
        assert error == pytest.approx(oracle.expected_calibration_error(confidence, correct, bins), abs=1e-12)
    rows = logits.tolist()
    assert calibration.brier_scores(logits, labels).mean() == pytest.approx(oracle.brier(rows, labels))
    likelihoods = calibration.negative_log_likelihoods(logits, labels)
    assert likelihoods.mean() == pytest.approx(oracle.negative_log_likelihood(rows, labels))


def test_scores_closed_form():
    uniform = np.zeros((2, 4))
    np.testing.assert_allclose(calibration.brier_scores(uniform, np.array([0, 3])), 9 / 16 + 3 / 16)
    np.testing.assert_allclose(calibration.negative_log_likelihoods(uniform, np.array([0, 3])), np.log(4))
    # Huge logits stay finite.
    sure = np.array([[1e4, 0.0]])
    assert calibration.negative_log_likelihoods(sure, np.array([1]))[0] == 1e4
    assert calibration.brier_scores(sure, np.array([1]))[0] == 2.0
    # As many classes as a report takes need no square of them: 8 TiB.
    many = np.zeros((1, 2**20), np.float32)
    for one_per_class in (False, True):
        assert np.isfinite(calibration.brier_scores(many, np.array([7]), one_per_class)).all()
        assert np.isfinite(calibration.negative_log_likelihoods(many, np.array([7]), one_per_class)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_a_report_cannot_hold_is_unknown(value):
    assert calibration.none_if_nan(value) is None and calibration.none_if_nan(0.5) == 0.5


@pytest.mark.parametrize("size", [1, 10, 30, 97])
@pytest.mark.parametrize("bins", ["paper", "code"])
def test_rms_and_aurra_equal_loops(case, size, bins):
    _, _, confidence, correct = case
    if bins == "paper" or 2 * size <= len(confidence):
        score = calibration.rms_calibration_error(confidence, correct, bin_size=size, bins=bins)
        expected = oracle.rms_calibration_error(confidence, correct, size, bins == "paper")
        assert score == pytest.approx(expected, abs=1e-12)
    score = calibration.response_accuracy(confidence, correct).mean()
    assert score == pytest.approx(oracle.aurra(confidence.tolist(), correct), abs=1e-12)


def test_rms_closed_form_and_the_bin_that_the_code_drops():
    # 100 examples sure to 60 % of which half are right, 150 sure to 90 % that all are: the second bin has 150.
    confidence = np.repeat([0.9, 0.6], [150, 100])
    correct = np.concatenate([np.ones(150, bool), np.arange(100) % 2 == 0])
    paper = calibration.rms_calibration_error(confidence, correct)
    assert paper == pytest.approx(np.sqrt(0.4 * 0.1**2 + 0.6 * 0.1**2))
    assert calibration.rms_calibration_error(confidence, correct, bins="code") == pytest.approx(np.sqrt(0.4 * 0.1**2))


def test_rms_and_aurra_agree_with_scikit_learn(case):
    metrics, calibration_curve = pytest.importorskip("sklearn.metrics"), pytest.importorskip("sklearn.calibration")
    confidence, correct = case[2][:90], case[3][:90]
    accuracy, mean_confidence = calibration_curve.calibration_curve(correct, confidence, n_bins=9, strategy="quantile")
    error = calibration.rms_calibration_error(confidence, correct, bin_size=10)
    assert error == pytest.approx(np.sqrt(np.mean((accuracy - mean_confidence) ** 2)), abs=1e-12)
    # The accuracy of the most confident is the precision of confidence as a detector of what is right.
    precision = metrics.precision_recall_curve(correct, confidence)[0][:-1]
    np.testing.assert_allclose(np.sort(calibration.response_accuracy(confidence, correct)), np.sort(precision))


def test_aurra_closed_form():
    assert calibration.response_accuracy(np.array([0.3, 0.9]), np.ones(2, bool)).mean() == 1.0
    # The wrong one of three is the surest, then the least sure: (0 + 1/2 + 2/3) / 3 and (1 + 1 + 2/3) / 3.
    wrong = np.array([False, True, True])
    assert calibration.response_accuracy(np.array([0.9, 0.8, 0.7]), wrong).mean() == pytest.approx((1 / 2 + 2 / 3) / 3)
    assert calibration.response_accuracy(np.array([0.5, 0.8, 0.7]), wrong).mean() == pytest.approx((2 + 2 / 3) / 3)


def test_the_order_of_equally_confident_examples_has_no_say():
    confidence, correct = np.repeat([0.6, 0.8], 6), np.arange(12) % 3 == 0
    order = np.random.default_rng(0).permutation(12)
    for score in (
        lambda c, r: calibration.rms_calibration_error(c, r, bin_size=4),
        lambda c, r: calibration.response_accuracy(c, r).mean(),
    ):
        assert score(confidence[order], correct[order]) == pytest.approx(score(confidence, correct), abs=1e-12)
    assert calibration.response_accuracy(confidence, correct).mean() == pytest.approx(1 / 3)


def test_an_answer_of_nan_makes_all_scores_unknown(tmp_path):
    """Ranked as most sure and wrong, as NumPy ranks it, it would only cost a little."""
    logits = np.random.default_rng(3).normal(size=(250, 3)).astype(np.float32)
    logits[240, 1] = np.nan
    confidence = np.exp(calibration.log_probabilities(logits).max(axis=-1))
    correct = np.ones(250, bool)
    for bins in ("paper", "code"):
        assert np.isnan(calibration.rms_calibration_error(confidence, correct, bins=bins))
    assert np.isnan(calibration.response_accuracy(confidence, correct)).all()

    judged = from_function(lambda images: images[:, 0, :, 0], class_count=3, image_shape=(1, 3, 1))
    images = np.clip(0.5 + 0.1 * np.nan_to_num(logits), 0, 1)[:, None, :, None]
    setting = Setting(
        predictor=dataclasses.replace(judged, weights_sha256="w"), images=images, labels=np.arange(250) % 3
    )
    object.__setattr__(setting, "clean_logits", logits)
    outcome = run_evaluation([calibration.Calibration()], setting, cache_directory=tmp_path)
    measured = outcome.measurements[:-1]
    assert [m.id for m in measured] == list(calibration.Calibration().ids())
    assert all((m.value, m.low, m.high) == (None, None, None) for m in measured)
    assert set(outcome.series[1].columns["accuracy"]) == {None} and None in outcome.series[0].columns["confidence"]


@pytest.mark.parametrize(("limit", "label"), [(None, None), (30, "pgd5")])
def test_under_attack_the_answers_are_those_to_the_last_points(limit, label):
    predict, images, labels, _, _ = linear_model.make(40)
    setting = Setting(predictor=from_function(predict, image_shape=linear_model.SHAPE), images=images, labels=labels)
    attack, attack_id = PGD(threat=ThreatModel(epsilon=0.03), steps=5), f"{label or 'pgd'}_linf_0.03"
    outcome = calibration.Calibration(attack=attack, limit=limit, label=label, bins=4, rms_bin_size=10).run(setting)
    positions = setting.subset(limit)
    logits = predict(searching.perturbed(setting, attack, positions)).numpy().astype(np.float64)
    confidence = np.array([max(oracle.softmax(row)) for row in logits.tolist()])
    correct = logits.argmax(-1) == labels[positions]
    assert 0.1 < correct.mean() < setting.clean_correct.mean()  # an attack, and not on those that stand alone
    numbers = {measurement.id: measurement for measurement in outcome.measurements}
    assert list(numbers) == [f"calibration.{attack_id}.{name}" for name in ("ece", "rms", "aurra", "brier", "nll")]
    expected = {
        "ece": oracle.expected_calibration_error(confidence, correct, 4),
        "rms": oracle.rms_calibration_error(confidence, correct, 10, True),
        "aurra": oracle.aurra(confidence.tolist(), correct),
        "brier": oracle.brier(logits.tolist(), labels[positions]),
        "nll": oracle.negative_log_likelihood(logits.tolist(), labels[positions]),
    }
    for name, value in expected.items():
        measurement = numbers[f"calibration.{attack_id}.{name}"]
        assert measurement.value == pytest.approx(value, abs=1e-6) and measurement.n == len(positions)
        assert measurement.settings["steps"] == 5 and "last points" in measurement.settings["answers"]
    diagram, rates = outcome.series
    assert (diagram.id, rates.id) == (f"calibration.reliability.{attack_id}", f"calibration.response_rate.{attack_id}")
    table = calibration.reliability(confidence, correct, 4)
    np.testing.assert_allclose(diagram.columns["accuracy"], table["accuracy"], atol=1e-6)
    rows = zip(*(diagram.columns[name] for name in ("accuracy", "count", "low", "high")), strict=True)
    for value, count, *ends in rows:
        expected_ends = statistics.wilson_interval(round(value * count), count) if count else (None, None)
        assert tuple(ends) == expected_ends
