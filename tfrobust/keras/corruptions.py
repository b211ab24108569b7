"""Natural corruptions and perturbation sequences as functions of images and keys.

`layers.Corrupt` converts a corruption to a Keras layer.
"""

from tfrobust.corruptions import corrupt, corrupt_clips
from tfrobust.corruptions.sequences import sequence

__all__ = ["corrupt", "corrupt_clips", "sequence"]
