"""Attacks on any Keras model or function `images -> logits`: where, how, and what is maximised (`objectives`)."""

from tfrobust.attacks import objectives
from tfrobust.attacks.gradient import FGSM, PGD, MultiTargetedPGD
from tfrobust.attacks.runner import run_attack
from tfrobust.attacks.threat import ThreatModel

__all__ = ["FGSM", "MultiTargetedPGD", "PGD", "ThreatModel", "objectives", "run_attack"]
