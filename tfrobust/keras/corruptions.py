"""Natural corruptions and perturbation sequences as functions of images and keys.

`layers.Corrupt` converts a corruption to a Keras layer.
"""

from tfrobust.corruptions import corrupt
from tfrobust.corruptions.sequences import sequence

__all__ = ["corrupt", "sequence"]
