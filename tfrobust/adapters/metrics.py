"""Streaming metrics for `compile(metrics=...)` of a classifier.

Accuracy under attack needs the model itself, so it is a callback: `callbacks.RobustAccuracy`.
"""

import keras
import numpy as np
import tensorflow as tf

from tfrobust.common.settings import require_whole
from tfrobust.errors import InputError
from tfrobust.evaluation.evaluators.calibration import check_adaptive_bins
from tfrobust.ops import batch_checks

__all__ = ["AURRA", "BrierScore", "ExpectedCalibrationError", "NegativeLogLikelihood", "RMSCalibrationError"]

# Cells of confidence of equal width in log-odds, because the confidences of networks are concentrated below 1. The ends
# are those of 22,000 classes and of float64.
_CELLS = np.linspace(-10.0, 37.0, 2048 + 1)


class _ProbabilityMetric(keras.metrics.Metric):
    """Base of the metrics: sums in float64, so that a long epoch loses no precision.

    `update_state` raises ValueError for predictions that are not [n, k] with k >= 2, for labels that are neither ids
    nor one-hot, and for labels of classes that the predictions do not have.
    """

    def __init__(self, *, from_logits: bool = True, name: str | None = None, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.from_logits = from_logits

    def get_config(self):
        """Return the configuration of the metric."""
        return {**super().get_config(), "from_logits": self.from_logits}

    def _sum(self, name: str, shape: tuple = ()):
        return self.add_variable(shape, "zeros", dtype="float64", name=name)

    def _read(self, y_true, y_pred, sample_weight):
        """Convert a batch to class ids, int32 [n], predictions, float64 [n, k], and weights, float64 [n]."""
        values = tf.cast(y_pred, tf.float64)
        if values.shape.rank != 2 or values.shape[1] == 1:
            raise InputError(
                f"{self.name} needs predictions [n, k] of k >= 2 classes, not {values.shape}; of one logit z give "
                "[0, z]."
            )
        if sample_weight is not None:
            sample_weight = tf.reshape(tf.cast(sample_weight, tf.float64), [-1])
            sample_weight = tf.broadcast_to(sample_weight, tf.shape(values)[:1])
        labels = batch_checks.class_ids(self._weighted_labels(y_true, sample_weight), self.name)
        labels = batch_checks.known_classes(labels, values.shape[1] or tf.shape(values)[1], self.name)
        if sample_weight is None:
            return labels, values, tf.ones(tf.shape(labels), tf.float64)
        return labels, values, sample_weight

    @staticmethod
    def _weighted_labels(y_true, weight):
        """Return the labels, with 0 wherever the sample weight is 0.

        A label that is ignored, such as -1, need not be a class.
        """
        y_true = tf.convert_to_tensor(y_true)
        if weight is None or (y_true.shape.rank == 2 and y_true.shape[1] != 1):
            return y_true
        y_true = tf.reshape(y_true, [-1])
        return tf.where(tf.equal(weight, 0), tf.zeros_like(y_true), y_true)

    def _probabilities(self, values: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(values) if self.from_logits else values


class _BinnedMetric(_ProbabilityMetric):
    """Base of metrics that sum examples by their confidence; a subclass defines `_cells`."""

    def _make_sums(self, count: int):
        self.weight, self.confidence, self.correct = (
            self._sum(name, (count,)) for name in ("weight", "confidence", "correct")
        )

    def _cells(self, confidence):
        """Return the cell of each example, int32 [n], from its confidence, float64 [n]."""
        raise NotImplementedError

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Add a batch.

        Args:
            y_true: class ids [n] or [n, 1], or one-hot rows [n, k].
            y_pred: float [n, k], k >= 2.
            sample_weight: [n], one number for all, or None.
        """
        labels, values, weight = self._read(y_true, y_pred, sample_weight)
        probabilities = self._probabilities(values)
        correct = tf.cast(tf.argmax(probabilities, axis=-1, output_type=tf.int32) == labels, tf.float64)
        confidence = tf.reduce_max(probabilities, axis=-1)
        # A NaN prediction makes the result NaN; outside all cells it would be ignored.
        unknown = tf.math.is_nan(confidence)
        # A rounded softmax exceeds 1, whose log-odds are no number.
        cell = self._cells(tf.where(unknown, tf.zeros_like(confidence), tf.minimum(confidence, 1.0)))
        correct = tf.where(unknown, confidence, correct)
        for total, part in (
            (self.weight, weight),
            (self.confidence, tf.math.multiply_no_nan(confidence, weight)),
            (self.correct, tf.math.multiply_no_nan(correct, weight)),
        ):
            total.assign_add(tf.math.unsorted_segment_sum(part, cell, total.shape[0]))


@keras.saving.register_keras_serializable(package="tfrobust")
class ExpectedCalibrationError(_BinnedMetric):
    """Difference of confidence and accuracy: sum_j (n_j / n) |accuracy_j - confidence_j| over B bins of equal width.

    Bin j holds the confidences (largest probabilities) in (j/B, (j+1)/B], the first also 0. The sums of the bins are
    accumulated: the result over many batches is that over all examples at once, and equals `calibration.ece` of a
    report.

    Example:
        >>> from tfrobust import keras as robust
        >>> metric = robust.metrics.ExpectedCalibrationError(from_logits=False)
        >>> metric.update_state([0, 1], [[0.9, 0.1], [0.9, 0.1]])  # confidence 90 %, accuracy 50 %
        >>> round(float(metric.result()), 3)
        0.4

    Args:
        bins: B >= 1.
        from_logits: True for logits, False for probabilities.
        name, dtype: as in `keras.metrics.Metric`.

    Raises:
        ValueError: bins below 1.

    Source:
        Guo et al. 2017, https://arxiv.org/abs/1706.04599, section 2.
    """

    def __init__(
        self, *, bins: int = 15, from_logits: bool = True, name: str = "expected_calibration_error", dtype=None
    ):
        super().__init__(from_logits=from_logits, name=name, dtype=dtype)
        self.bins = require_whole(bins, "ExpectedCalibrationError.bins")
        self._make_sums(self.bins)

    def _cells(self, confidence):
        cell = tf.searchsorted(np.linspace(0.0, 1.0, self.bins + 1), confidence, side="left") - 1
        return tf.clip_by_value(cell, 0, self.bins - 1)

    def result(self):
        """Return a scalar in [0, 1]; 0 before the first example."""
        gaps = tf.abs(tf.convert_to_tensor(self.correct) - tf.convert_to_tensor(self.confidence))
        total = tf.reduce_sum(tf.convert_to_tensor(self.weight))
        return tf.cast(tf.math.divide_no_nan(tf.reduce_sum(gaps), total), self.dtype)

    def get_config(self):
        """Return the configuration of the metric."""
        return {**super().get_config(), "bins": self.bins}


class _ScoreMetric(_ProbabilityMetric):
    """Base of metrics that are the weighted mean of a score of each example."""

    def __init__(self, *, from_logits: bool = True, name: str | None = None, dtype=None):
        super().__init__(from_logits=from_logits, name=name, dtype=dtype)
        self.weight = self._sum("weight")
        self.total = self._sum("total")

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Add a batch.

        Args:
            y_true: class ids [n] or [n, 1], or one-hot rows [n, k].
            y_pred: float [n, k], k >= 2.
            sample_weight: [n], one number for all, or None.
        """
        labels, values, weight = self._read(y_true, y_pred, sample_weight)
        self.weight.assign_add(tf.reduce_sum(weight))
        # The score of an ignored label may be infinite, and 0 times infinity is NaN.
        self.total.assign_add(tf.reduce_sum(tf.math.multiply_no_nan(self._scores(labels, values), weight)))

    def result(self):
        """Return a scalar; 0 before the first example."""
        mean = tf.math.divide_no_nan(tf.convert_to_tensor(self.total), tf.convert_to_tensor(self.weight))
        return tf.cast(mean, self.dtype)


@keras.saving.register_keras_serializable(package="tfrobust")
class BrierScore(_ScoreMetric):
    """Mean over examples of sum_k (p_k - [k = y])^2, in [0, 2]; equals `calibration.brier` of a report.

    Example:
        >>> from tfrobust import keras as robust
        >>> metric = robust.metrics.BrierScore(from_logits=False)
        >>> metric.update_state([0, 1], [[1.0, 0.0], [1.0, 0.0]])  # best and worst possible score
        >>> float(metric.result())
        1.0

    Args:
        from_logits: True for logits, False for probabilities.
        name, dtype: as in `keras.metrics.Metric`.

    Source:
        Brier 1950, Monthly Weather Review 78, eq. (2).
    """

    def __init__(self, *, from_logits: bool = True, name: str = "brier_score", dtype=None):
        super().__init__(from_logits=from_logits, name=name, dtype=dtype)

    def _scores(self, labels, values):
        probabilities = self._probabilities(values)
        truth = tf.one_hot(labels, tf.shape(probabilities)[-1], dtype=tf.float64)
        return tf.reduce_sum(tf.square(probabilities - truth), axis=-1)


@keras.saving.register_keras_serializable(package="tfrobust")
class NegativeLogLikelihood(_ScoreMetric):
    """Mean over examples of -log p_y in nats; equals `calibration.nll` of a report.

    Example:
        >>> from tfrobust import keras as robust
        >>> metric = robust.metrics.NegativeLogLikelihood()
        >>> metric.update_state([0, 1], [[0.0, 0.0], [0.0, 0.0]])  # equal probabilities of two classes
        >>> round(float(metric.result()), 3)
        0.693

    Args:
        from_logits: True for logits, False for probabilities.
        name, dtype: as in `keras.metrics.Metric`.
    """

    def __init__(self, *, from_logits: bool = True, name: str = "negative_log_likelihood", dtype=None):
        super().__init__(from_logits=from_logits, name=name, dtype=dtype)

    def _scores(self, labels, values):
        logarithms = tf.nn.log_softmax(values) if self.from_logits else tf.math.log(values)
        return -tf.gather(logarithms, labels, batch_dims=1)


class _RankingMetric(_BinnedMetric):
    """Base of metrics that sort examples by confidence; a histogram replaces the list of examples."""

    def __init__(self, *, from_logits: bool = True, name: str | None = None, dtype=None):
        super().__init__(from_logits=from_logits, name=name, dtype=dtype)
        self._make_sums(len(_CELLS) - 1)

    def _cells(self, confidence):
        log_odds = tf.math.log(confidence) - tf.math.log1p(-confidence)
        share = (tf.clip_by_value(log_odds, _CELLS[0], _CELLS[-1]) - _CELLS[0]) / (_CELLS[-1] - _CELLS[0])
        return tf.minimum(tf.cast(share * (len(_CELLS) - 1), tf.int32), len(_CELLS) - 2)


@keras.saving.register_keras_serializable(package="tfrobust")
class RMSCalibrationError(_RankingMetric):
    """RMS calibration error: sqrt(sum_j (n_j / n) (accuracy_j - confidence_j)^2) over bins of equal size.

    A bin holds `bin_size` consecutive confidences. The state is bounded: it is not a list of all examples, but the sums
    over the examples in each of 2,048 cells of confidence, equally wide in log-odds. If a bin ends inside a cell, it
    takes its share of the cell. The result thus equals `calibration.rms` of a report except for the order within a
    cell, a difference below 0.001 on 10,000 examples and up to 0.0035 on fewer. If there would be more than 2,048 bins,
    the bins are larger.

    Example:
        >>> from tfrobust import keras as robust
        >>> metric = robust.metrics.RMSCalibrationError(bin_size=2, from_logits=False)
        >>> metric.update_state([0, 1, 0, 0], [[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.6, 0.4]])
        >>> round(float(metric.result()), 3)  # gaps of 0.4 in both bins
        0.4

    Args:
        bin_size: examples in a bin, >= 1; the last and most confident bin has the remainder in addition.
        bins: "paper": all bins. "code": without the last bin, as the released code sums; 0 for a single bin.
        from_logits: True for logits, False for probabilities.
        name, dtype: as in `keras.metrics.Metric`.

    Raises:
        ValueError: a `bin_size` below 1, or unknown `bins`.

    Source:
        Hendrycks et al. 2019, https://arxiv.org/abs/1812.04606.
    """

    def __init__(
        self,
        *,
        bin_size: int = 100,
        bins: str = "paper",
        from_logits: bool = True,
        name: str = "rms_calibration_error",
        dtype=None,
    ):
        check_adaptive_bins(bin_size, bins)
        super().__init__(from_logits=from_logits, name=name, dtype=dtype)
        self.bin_size = bin_size
        self.bins = bins

    def result(self):
        """Return a scalar in [0, 1]; 0 before the first example."""
        weight, gap = tf.convert_to_tensor(self.weight), self.confidence - self.correct
        cells = len(_CELLS) - 1
        ends, gaps = (tf.concat([[0.0], tf.cumsum(tf.cast(part, tf.float64))], axis=0) for part in (weight, gap))
        total = ends[-1]
        size = tf.maximum(tf.cast(self.bin_size, tf.float64), total / cells)
        count = tf.maximum(tf.floor(total / size), 1.0)
        # The largest possible number of edges, so that shapes are static; bins beyond the last have width 0.
        number = tf.range(cells + 1, dtype=tf.float64)
        edges = tf.where(number < count, number * size, total)
        cell = tf.minimum(tf.searchsorted(ends, edges, side="right") - 1, cells - 1)
        inside = tf.math.divide_no_nan(edges - tf.gather(ends, cell), tf.gather(weight, cell))
        summed = tf.gather(gaps, cell) + inside * tf.gather(gap, cell)
        squares = tf.math.divide_no_nan((summed[1:] - summed[:-1]) ** 2, (edges[1:] - edges[:-1]) * total)
        if self.bins == "code":
            squares = tf.where(number[:-1] < count - 1, squares, 0.0)
        return tf.cast(tf.sqrt(tf.reduce_sum(squares)), self.dtype)

    def get_config(self):
        """Return the configuration of the metric."""
        return {**super().get_config(), "bin_size": self.bin_size, "bins": self.bins}


@keras.saving.register_keras_serializable(package="tfrobust")
class AURRA(_RankingMetric):
    """Area under the response rate accuracy curve: the mean over i of the accuracy of the i most confident examples.

    The state is bounded, as that of `RMSCalibrationError`. Equally confident examples, here those of one cell, have
    their mean accuracy. The result equals `calibration.aurra` of a report up to 0.001 on 10,000 examples and up to
    0.0035 on fewer. A weight of 2 is equivalent to two copies of the example.

    Example:
        >>> from tfrobust import keras as robust
        >>> metric = robust.metrics.AURRA(from_logits=False)
        >>> metric.update_state([0, 1], [[0.9, 0.1], [0.6, 0.4]])  # the more confident prediction is correct
        >>> round(float(metric.result()), 3)
        0.75

    Args:
        from_logits: True for logits, False for probabilities.
        name, dtype: as in `keras.metrics.Metric`.

    Source:
        Hendrycks et al. 2021, https://arxiv.org/abs/1907.07174.
    """

    def __init__(self, *, from_logits: bool = True, name: str = "aurra", dtype=None):
        super().__init__(from_logits=from_logits, name=name, dtype=dtype)

    def result(self):
        """Return a scalar in [0, 1]; 0 before the first example."""
        weight, correct = (tf.reverse(tf.convert_to_tensor(part), [0]) for part in (self.weight, self.correct))
        before, correct_before = (tf.cumsum(part, exclusive=True) for part in (weight, correct))
        accuracy = tf.math.divide_no_nan(correct, weight)
        # The sum over i = 1 .. w of (correct_before + i accuracy) / (before + i), in closed form.
        harmonic = tf.math.digamma(before + weight + 1) - tf.math.digamma(before + 1)
        area = accuracy * weight + (correct_before - accuracy * before) * harmonic
        return tf.cast(tf.math.divide_no_nan(tf.reduce_sum(area), tf.reduce_sum(weight)), self.dtype)
