"""Natural corruptions and perturbation sequences as functions of images and keys.

`layers.Corrupt` makes a Keras layer of a corruption.
"""

from tfrobust.corruptions import corrupt, sequence

__all__ = ["corrupt", "sequence"]
