"""Callbacks for `fit` of any Keras classifier that returns logits."""

from tfrobust.training.callbacks.averaged_weights import AveragedWeights
from tfrobust.training.callbacks.best_weights import BestWeights
from tfrobust.training.callbacks.collapse_warning import CollapseWarning
from tfrobust.training.callbacks.negatives_warning import NegativesWarning
from tfrobust.training.callbacks.overfitting_warning import OverfittingWarning
from tfrobust.training.callbacks.robust_accuracy import RobustAccuracy

__all__ = [
    "AveragedWeights",
    "BestWeights",
    "CollapseWarning",
    "NegativesWarning",
    "OverfittingWarning",
    "RobustAccuracy",
]
