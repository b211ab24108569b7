"""Streaming metrics for `compile(metrics=...)` of a classifier.

Accuracy under attack needs the model itself, so it is a callback: `callbacks.RobustAccuracy`.
"""

from tfrobust.adapters.metrics import (
    AURRA,
    BrierScore,
    ExpectedCalibrationError,
    NegativeLogLikelihood,
    RMSCalibrationError,
)

__all__ = ["AURRA", "BrierScore", "ExpectedCalibrationError", "NegativeLogLikelihood", "RMSCalibrationError"]
