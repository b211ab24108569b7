"""Callbacks for `fit` of any Keras classifier that returns logits."""

from tfrobust.training.callbacks import (
    AveragedWeights,
    BestWeights,
    CollapseWarning,
    NegativesWarning,
    OverfittingWarning,
    RobustAccuracy,
)

__all__ = [
    "AveragedWeights",
    "BestWeights",
    "CollapseWarning",
    "NegativesWarning",
    "OverfittingWarning",
    "RobustAccuracy",
]
