import numpy as np
import pytest

from tfrobust import keras as robust
from tfrobust.evaluation import calibration

GENERATOR = np.random.default_rng(4)
LOGITS = GENERATOR.normal(scale=2.0, size=(103, 5)).astype("float32")
LABELS = GENERATOR.integers(0, 5, 103)


def streamed(metric, labels, predictions, weights=None, batch=10):
    for start in range(0, len(labels), batch):
        rows = slice(start, start + batch)
        metric.update_state(labels[rows], predictions[rows], None if weights is None else weights[rows])
    return float(metric.result())


def evaluated(logits, labels, bins=15):
    confidence = np.exp(calibration.log_probabilities(logits).max(axis=-1))
    return calibration.expected_calibration_error(confidence, logits.argmax(-1) == labels, bins)


@pytest.mark.parametrize("bins", [1, 10, 15])
@pytest.mark.parametrize("shape", ["ids", "column", "floats", "one_hot"])
def test_calibration_error_in_batches_is_that_of_a_report(bins, shape):
    labels = {
        "ids": LABELS,
        "column": LABELS[:, None],
        "floats": LABELS.astype("float32"),
        "one_hot": np.eye(5)[LABELS],
    }
    metric = robust.metrics.ExpectedCalibrationError(bins=bins)
    assert streamed(metric, labels[shape], LOGITS) == pytest.approx(evaluated(LOGITS, LABELS, bins), abs=1e-6)


def test_bins_are_open_below_and_closed_above():
    """Confidences on the edges of 10 bins, by hand: 0.5 and 0.6 fall into different bins, 0.6 and 0.55 into one."""
    sure = np.array([0.5, 0.6, 0.55, 1.0])
    metric = robust.metrics.ExpectedCalibrationError(bins=10, from_logits=False)
    found = streamed(metric, np.array([0, 1, 0, 0]), np.stack([sure, 1 - sure], axis=1))
    assert found == pytest.approx((abs(1 - 0.5) + abs(1 - 0.6 - 0.55) + 0.0) / 4, abs=1e-6)


def test_weights_count_and_weight_zero_is_absence():
    weights = (np.arange(103) % 3 != 0).astype("float32")
    kept = weights > 0
    for metric, expected in (
        (robust.metrics.ExpectedCalibrationError(), evaluated(LOGITS[kept], LABELS[kept])),
        (robust.metrics.BrierScore(), np.mean(calibration.brier_scores(LOGITS[kept], LABELS[kept]))),
    ):
        assert streamed(metric, LABELS, LOGITS, weights) == pytest.approx(expected, abs=1e-6)
        assert streamed(metric, LABELS, LOGITS, 3 * weights) == pytest.approx(expected, abs=1e-6)
        metric.reset_state()
        assert float(metric.result()) == 0.0


def test_brier_score_is_that_of_a_report():
    expected = np.mean(calibration.brier_scores(LOGITS, LABELS))
    assert streamed(robust.metrics.BrierScore(), LABELS, LOGITS) == pytest.approx(expected, abs=1e-6)
    probabilities = np.exp(calibration.log_probabilities(LOGITS))
    metric = robust.metrics.BrierScore(from_logits=False)
    assert streamed(metric, LABELS, probabilities) == pytest.approx(expected, abs=1e-6)


def test_half_precision_predictions_and_bad_bins():
    metric = robust.metrics.ExpectedCalibrationError()
    assert np.isfinite(streamed(metric, LABELS, LOGITS.astype("float16")))
    for bins in (0, 2.5, True):
        with pytest.raises(ValueError, match="bins"):
            robust.metrics.ExpectedCalibrationError(bins=bins)
