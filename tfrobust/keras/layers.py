"""Layers for functional and subclassed models: heads, projections, normalization, augmentation.

The random layers (`Augment`, `AugMix`, `Corrupt`, `UtilityPerturbation`) also work inside `Dataset.map`, on batches
and, except the last, on single images: `dataset.map(lambda image, label: (layer(image, training=True), label))`.
"""

from tfrobust.adapters.layers import Augment, AugMix, Corrupt, UtilityPerturbation
from tfrobust.models.heads.fitted import KNearestNeighbours, LogisticRegression
from tfrobust.models.heads.linear import LinearHead, LinearProjection, MLPHead, MLPProjection
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.models.heads.prototypes import Prototypes
from tfrobust.models.shared.group_sort import GroupSort
from tfrobust.models.shared.normalization import BranchedBatchNormalization

__all__ = [
    "AugMix",
    "Augment",
    "BranchedBatchNormalization",
    "Corrupt",
    "GroupSort",
    "KNearestNeighbours",
    "LinearHead",
    "LinearProjection",
    "LogisticRegression",
    "MLPHead",
    "MLPProjection",
    "ProjectionHead",
    "Prototypes",
    "UtilityPerturbation",
]
