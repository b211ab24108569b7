import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust import keras as robust
from tfrobust.evaluation.evaluators import calibration

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


@pytest.mark.parametrize(("shape", "bins"), [("ids", 1), ("column", 10), ("floats", 15), ("one_hot", 15)])
def test_calibration_error_in_batches_is_that_of_a_report(shape, bins):
    labels = {
        "ids": LABELS,
        "column": LABELS[:, None],
        "floats": LABELS.astype("float32"),
        "one_hot": np.eye(5)[LABELS],
    }
    metric = robust.metrics.ExpectedCalibrationError(bins=bins)
    assert streamed(metric, labels[shape], LOGITS) == pytest.approx(evaluated(LOGITS, LABELS, bins), abs=1e-6)


METRICS = ("AURRA", "BrierScore", "ExpectedCalibrationError", "NegativeLogLikelihood", "RMSCalibrationError")


@pytest.mark.parametrize("name", METRICS)
def test_what_a_metric_cannot_judge_is_refused(name):
    for labels, predictions, message in stored.table(globals(), "what_a_metric_cannot_judge_is_refused"):
        with pytest.raises(ValueError, match=message):
            getattr(robust.metrics, name)().update_state(labels, predictions)


def test_one_hot_rows_are_read_where_no_shape_is_known():
    metric, expected = robust.metrics.BrierScore(), robust.metrics.BrierScore()
    unknown = tf.TensorSpec([None, None], tf.float32)
    tf.function(metric.update_state, input_signature=[unknown, unknown])(np.eye(5)[LABELS].astype("float32"), LOGITS)
    expected.update_state(LABELS, LOGITS)
    assert float(metric.result()) == float(expected.result())


def test_bins_are_open_below_and_closed_above():
    """Confidences on the edges of 10 bins, by hand: 0.5 and 0.6 fall into different bins, 0.6 and 0.55 into one."""
    sure = np.array([0.5, 0.6, 0.55, 1.0])
    metric = robust.metrics.ExpectedCalibrationError(bins=10, from_logits=False)
    calibration_error = streamed(metric, np.array([0, 1, 0, 0]), np.stack([sure, 1 - sure], axis=1))
    assert calibration_error == pytest.approx((abs(1 - 0.5) + abs(1 - 0.6 - 0.55) + 0.0) / 4, abs=1e-6)


def test_weights_count_and_weight_zero_is_absence():
    weights = (np.arange(103) % 3 != 0).astype("float32")
    counted = weights > 0
    for metric, expected in (
        (robust.metrics.ExpectedCalibrationError(), evaluated(LOGITS[counted], LABELS[counted])),
        (robust.metrics.BrierScore(), np.mean(calibration.brier_scores(LOGITS[counted], LABELS[counted]))),
    ):
        assert streamed(metric, LABELS, LOGITS, weights) == pytest.approx(expected, abs=1e-6)
        assert streamed(metric, LABELS, LOGITS, 3 * weights) == pytest.approx(expected, abs=1e-6)
        ignored = np.where(counted, LABELS, -1)  # what does not count need not be a class
        assert streamed(metric, ignored, LOGITS, weights) == pytest.approx(expected, abs=1e-6)
        metric.reset_state()
        assert float(metric.result()) == 0.0


@pytest.mark.parametrize("name", METRICS)
def test_a_number_is_the_weight_of_every_example(name):
    metric, expected = (getattr(robust.metrics, name)() for _ in range(2))
    metric.update_state(LABELS, LOGITS, sample_weight=0.5)
    expected.update_state(LABELS, LOGITS, sample_weight=np.full(103, 0.5))
    assert float(metric.result()) == float(expected.result())


@pytest.mark.parametrize("ignored", [(0.0, 1.0), (np.nan, np.nan)])
@pytest.mark.parametrize("name", METRICS)
def test_an_example_of_weight_zero_may_have_any_score(name, ignored):
    """The label -1 is read as class 0, which has probability 0 in the first of the predictions."""
    metric, expected = (getattr(robust.metrics, name)(from_logits=False) for _ in range(2))
    metric.update_state([0, -1], [(0.75, 0.25), ignored], sample_weight=[1, 0])
    expected.update_state([0], [(0.75, 0.25)])
    assert float(metric.result()) == float(expected.result())


@pytest.mark.parametrize("metric, of_report", stored.rows(globals(), "a_proper_score_is_that_of_a_report"))
def test_a_proper_score_is_that_of_a_report(metric, of_report):
    expected = pytest.approx(np.mean(of_report(LOGITS, LABELS)), abs=1e-6)
    assert streamed(metric(), LABELS, LOGITS) == expected
    probabilities = np.exp(calibration.log_probabilities(LOGITS))
    assert streamed(metric(from_logits=False), LABELS, probabilities) == expected


def test_the_negative_log_likelihood_of_a_certain_error_is_finite():
    sure = robust.metrics.NegativeLogLikelihood()
    assert streamed(sure, np.array([1]), np.array([[1e4, 0.0]])) == pytest.approx(1e4)


RANKINGS = stored.table(globals(), "rankings")


@pytest.mark.parametrize("name", RANKINGS)
@pytest.mark.parametrize("scale", [0.3, 2.0, 20.0])
def test_a_histogram_of_confidence_ranks_like_the_list(name, scale):
    """10,000 examples of a network that is unsure, plausible, or sure of almost everything."""
    generator = np.random.default_rng(7)
    logits = generator.normal(scale=scale, size=(10_000, 5))
    labels = np.where(generator.random(10_000) < 0.8, logits.argmax(-1), generator.integers(0, 5, 10_000))
    confidence = np.exp(calibration.log_probabilities(logits).max(axis=-1))
    metric, exact = RANKINGS[name]
    metric.reset_state()
    value = streamed(metric, labels, logits, batch=1000)
    assert value == pytest.approx(exact(confidence, logits.argmax(-1) == labels), abs=1e-3)


@pytest.mark.parametrize("name", RANKINGS)
def test_rankings_of_equal_confidences_are_exact_and_count_weights(name):
    """Examples of one cell are equally confident here, so nothing is lost; a weight of 2 is two examples."""
    confidence, correct = np.repeat([0.55, 0.7, 0.9], 110), np.arange(330) % 4 != 0
    predictions, labels = np.stack([confidence, 1 - confidence], axis=1), np.where(correct, 0, 1)
    metric, exact = RANKINGS[name]
    metric = type(metric).from_config({**metric.get_config(), "from_logits": False})
    assert float(metric.result()) == 0.0
    assert streamed(metric, labels, predictions) == pytest.approx(exact(confidence, correct), abs=1e-6)
    metric.reset_state()
    weights = 1.0 + (np.arange(330) % 3 == 0) - (np.arange(330) % 5 == 0)
    count = weights.astype(int)
    expected = exact(np.repeat(confidence, count), np.repeat(correct, count))
    assert streamed(metric, labels, predictions, weights) == pytest.approx(expected, abs=1e-6)


def test_rankings_compile():
    """As a step compiled by XLA asks for them, with certain answers among the rest."""
    logits = np.concatenate([LOGITS, np.full([1, 5], -1e4, "float32") + 2e4 * np.eye(5, dtype="float32")[:1]])
    labels = np.append(LABELS, 0)
    for metric in (robust.metrics.RMSCalibrationError(bin_size=10), robust.metrics.AURRA()):
        streamed(metric, labels, logits)
        compiled = float(tf.function(metric.result, jit_compile=True)())
        assert 0.0 < compiled < 1.0 and compiled == pytest.approx(float(metric.result()), abs=1e-6)


def test_half_precision_predictions_and_bad_bins():
    metric = robust.metrics.ExpectedCalibrationError()
    assert np.isfinite(streamed(metric, LABELS, LOGITS.astype("float16")))
    for bins in (0, 2.5, True):
        with pytest.raises(ValueError, match="bins"):
            robust.metrics.ExpectedCalibrationError(bins=bins)
        with pytest.raises(ValueError, match="bin size"):
            robust.metrics.RMSCalibrationError(bin_size=bins)
    with pytest.raises(ValueError, match="paper"):
        robust.metrics.RMSCalibrationError(bins="all")


@pytest.mark.parametrize("name", ["AURRA", "RMSCalibrationError", "ExpectedCalibrationError"])
def test_a_confidence_that_rounding_puts_above_1_counts(name):
    metric = getattr(robust.metrics, name)(from_logits=False)
    metric.update_state([0, 0, 1], [[np.float32(1.0000001), 0.0], [1.0, 0.0], [0.3, 0.7]])
    rounded = streamed(
        getattr(robust.metrics, name)(from_logits=False), [0, 0, 1], [[1.0, 0.0], [1.0, 0.0], [0.3, 0.7]]
    )
    assert np.sum(metric.weight) == 3.0
    assert float(metric.result()) == pytest.approx(rounded, abs=1e-6)


@pytest.mark.parametrize("name", ["AURRA", "RMSCalibrationError", "ExpectedCalibrationError", "BrierScore"])
def test_an_answer_of_nan_is_not_left_out(name):
    metric = getattr(robust.metrics, name)(from_logits=False)
    metric.update_state([0, 1, 0], [[0.9, 0.1], [np.nan, np.nan], [0.6, 0.4]])
    assert np.isnan(float(metric.result()))
