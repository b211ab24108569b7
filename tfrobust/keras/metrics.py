"""Streaming metrics for `compile(metrics=...)` of a classifier. (Accuracy under attack needs the model itself:
it is a callback, `callbacks.RobustAccuracy`.)"""

import keras
import numpy as np
import tensorflow as tf

__all__ = ["BrierScore", "ExpectedCalibrationError"]


class _ProbabilityMetric(keras.metrics.Metric):
    """What both share: sums in float64, so that a long epoch loses nothing."""

    def __init__(self, *, from_logits: bool = True, name: str | None = None, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.from_logits = from_logits

    def get_config(self):
        return {**super().get_config(), "from_logits": self.from_logits}

    def _sum(self, name: str, shape: tuple = ()):
        return self.add_variable(shape, "zeros", dtype="float64", name=name)

    def _read(self, y_true, y_pred, sample_weight):
        """Class ids int32 [n], probabilities and weights, float64 [n, k] and [n]."""
        probabilities = tf.cast(y_pred, tf.float64)
        if self.from_logits:
            probabilities = tf.nn.softmax(probabilities)
        labels = tf.convert_to_tensor(y_true)
        if labels.shape.rank == 2 and labels.shape[1] not in (1, None):
            labels = tf.argmax(labels, axis=-1)
        # Keras may hand ids over as floats.
        labels = tf.cast(tf.reshape(labels, [-1]), tf.int32)
        if sample_weight is None:
            return labels, probabilities, tf.ones(tf.shape(labels), tf.float64)
        return labels, probabilities, tf.reshape(tf.cast(sample_weight, tf.float64), [-1])


@keras.saving.register_keras_serializable(package="tfrobust")
class ExpectedCalibrationError(_ProbabilityMetric):
    """How far confidence is from accuracy: sum_j (n_j / n) |accuracy_j - confidence_j| over B bins of equal width.

    Bin j holds the confidences (largest probabilities) in (j/B, (j+1)/B], the first also 0. The bins stream: the
    result over many batches is that over all examples at once, and equals `calibration.ece` of a report.

    Example:
        >>> from tfrobust import keras as robust
        >>> metric = robust.metrics.ExpectedCalibrationError(from_logits=False)
        >>> metric.update_state([0, 1], [[0.9, 0.1], [0.9, 0.1]])  # 90 % sure, half of them right
        >>> round(float(metric.result()), 3)
        0.4

    Args:
        bins: B >= 1.
        from_logits: whether predictions are logits; False for probabilities.
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
        if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
            raise ValueError(f"ExpectedCalibrationError.bins is {bins!r}; it is an integer >= 1.")
        self.bins = bins
        self.weight = self._sum("weight", (bins,))
        self.confidence = self._sum("confidence", (bins,))
        self.correct = self._sum("correct", (bins,))

    def update_state(self, y_true, y_pred, sample_weight=None):
        """y_true: ids [n] or [n, 1], or one-hot [n, k]. y_pred: float [n, k]. sample_weight: [n] or None."""
        labels, probabilities, weight = self._read(y_true, y_pred, sample_weight)
        confidence = tf.reduce_max(probabilities, axis=-1)
        correct = tf.argmax(probabilities, axis=-1, output_type=tf.int32) == labels
        place = tf.searchsorted(np.linspace(0.0, 1.0, self.bins + 1), confidence, side="left") - 1
        shares = tf.one_hot(tf.clip_by_value(place, 0, self.bins - 1), self.bins, dtype=tf.float64) * weight[:, None]
        self.weight.assign_add(tf.reduce_sum(shares, axis=0))
        self.confidence.assign_add(tf.linalg.matvec(shares, confidence, transpose_a=True))
        self.correct.assign_add(tf.linalg.matvec(shares, tf.cast(correct, tf.float64), transpose_a=True))

    def result(self):
        """A scalar in [0, 1]; 0 before the first example."""
        gaps = tf.abs(tf.convert_to_tensor(self.correct) - tf.convert_to_tensor(self.confidence))
        total = tf.reduce_sum(tf.convert_to_tensor(self.weight))
        return tf.cast(tf.math.divide_no_nan(tf.reduce_sum(gaps), total), self.dtype)

    def get_config(self):
        return {**super().get_config(), "bins": self.bins}


@keras.saving.register_keras_serializable(package="tfrobust")
class BrierScore(_ProbabilityMetric):
    """The mean over examples of sum_k (p_k - [k = y])^2, in [0, 2]; equals `calibration.brier` of a report.

    Example:
        >>> from tfrobust import keras as robust
        >>> metric = robust.metrics.BrierScore(from_logits=False)
        >>> metric.update_state([0, 1], [[1.0, 0.0], [1.0, 0.0]])  # one perfect, one as wrong as can be
        >>> float(metric.result())
        1.0

    Args:
        from_logits: whether predictions are logits; False for probabilities.
        name, dtype: as in `keras.metrics.Metric`.

    Source:
        Brier 1950, Monthly Weather Review 78, eq. (2).
    """

    def __init__(self, *, from_logits: bool = True, name: str = "brier_score", dtype=None):
        super().__init__(from_logits=from_logits, name=name, dtype=dtype)
        self.weight = self._sum("weight")
        self.total = self._sum("total")

    def update_state(self, y_true, y_pred, sample_weight=None):
        """y_true: ids [n] or [n, 1], or one-hot [n, k]. y_pred: float [n, k]. sample_weight: [n] or None."""
        labels, probabilities, weight = self._read(y_true, y_pred, sample_weight)
        truth = tf.one_hot(labels, tf.shape(probabilities)[-1], dtype=tf.float64)
        scores = tf.reduce_sum(tf.square(probabilities - truth), axis=-1)
        self.weight.assign_add(tf.reduce_sum(weight))
        self.total.assign_add(tf.reduce_sum(weight * scores))

    def result(self):
        """A scalar in [0, 2]; 0 before the first example."""
        mean = tf.math.divide_no_nan(tf.convert_to_tensor(self.total), tf.convert_to_tensor(self.weight))
        return tf.cast(mean, self.dtype)
