"""Selections of positives and negatives for contrastive losses, and detectors of false negatives.

The methods that take them are in `methods`, which offers them too.
"""

from tfrobust.pairs.false_negatives import FNC, IFND, AdaptiveFNC
from tfrobust.pairs.selection import GlobalSelection, HardSelection, LeakedSelection, SoftSelection

__all__ = ["AdaptiveFNC", "FNC", "GlobalSelection", "HardSelection", "IFND", "LeakedSelection", "SoftSelection"]
