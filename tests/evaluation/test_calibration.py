"""Calibration scores against bin-by-bin loops and closed forms."""

import numpy as np
import pytest

from oracles import calibration as oracle
from tfrobust.evaluation import calibration


@pytest.fixture
def case():
    generator = np.random.default_rng(1)
    logits = generator.normal(size=(97, 5)) * 2
    labels = generator.integers(0, 5, 97)
    confidence = np.array([max(oracle.softmax(row)) for row in logits.tolist()])
    return logits, labels, confidence, logits.argmax(-1) == labels


@pytest.mark.parametrize("bins", [1, 4, 15])
def test_ece_equals_loop(case, bins):
    _, _, confidence, correct = case
    found = calibration.expected_calibration_error(confidence, correct, bins)
    assert found == pytest.approx(oracle.expected_calibration_error(confidence, correct, bins), abs=1e-12)


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
    logits, labels, _, _ = case
    assert calibration.brier_scores(logits, labels).mean() == pytest.approx(oracle.brier(logits.tolist(), labels))
    assert calibration.negative_log_likelihoods(logits, labels).mean() == pytest.approx(
        oracle.negative_log_likelihood(logits.tolist(), labels)
    )


def test_scores_closed_form():
    uniform = np.zeros((2, 4))
    np.testing.assert_allclose(calibration.brier_scores(uniform, np.array([0, 3])), 9 / 16 + 3 / 16)
    np.testing.assert_allclose(calibration.negative_log_likelihoods(uniform, np.array([0, 3])), np.log(4))
    # Huge logits stay finite.
    sure = np.array([[1e4, 0.0]])
    assert calibration.negative_log_likelihoods(sure, np.array([1]))[0] == 1e4
    assert calibration.brier_scores(sure, np.array([1]))[0] == 2.0


def test_evaluator_refuses_no_bins():
    with pytest.raises(ValueError, match="bins"):
        calibration.Calibration(bins=0)
