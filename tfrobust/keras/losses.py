"""Losses for `compile(loss=...)`, and the per-example functions of which they and the methods consist."""

from tfrobust.adapters.losses import LogitsKLDivergence, SupervisedContrastiveLoss
from tfrobust.losses.classification import cross_entropy, margin
from tfrobust.losses.clustering import swapped_prediction
from tfrobust.losses.consistency import jensen_shannon, mixture_consistency, mixture_cross_entropy
from tfrobust.losses.contrastive import masked_contrastive
from tfrobust.losses.feature_margin import feature_margin
from tfrobust.losses.gradient_alignment import GradAlign
from tfrobust.losses.gradient_penalty import LayerWiseTikhonov, Tikhonov
from tfrobust.losses.mixed import mixed_cross_entropy, softmax_binary_cross_entropy
from tfrobust.losses.robust import boosted_cross_entropy, misclassification_aware_kl, trades_kl, virtual_adversarial
from tfrobust.losses.temporal import global_local, local_local, paired_instances
from tfrobust.structs import PairMasks

__all__ = [
    "GradAlign",
    "LayerWiseTikhonov",
    "LogitsKLDivergence",
    "PairMasks",
    "SupervisedContrastiveLoss",
    "Tikhonov",
    "boosted_cross_entropy",
    "cross_entropy",
    "feature_margin",
    "global_local",
    "jensen_shannon",
    "local_local",
    "margin",
    "masked_contrastive",
    "misclassification_aware_kl",
    "mixed_cross_entropy",
    "mixture_consistency",
    "mixture_cross_entropy",
    "paired_instances",
    "softmax_binary_cross_entropy",
    "swapped_prediction",
    "trades_kl",
    "virtual_adversarial",
]
