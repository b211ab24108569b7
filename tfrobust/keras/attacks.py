"""Attacks on any Keras model or function `images -> logits`, their threat models and their objectives."""

from tfrobust.attacks.apgd import APGDDLR, APGDCrossEntropy, APGDTargeted
from tfrobust.attacks.ddn import DDN
from tfrobust.attacks.ensemble import AutoAttack, Ensemble, standard_member
from tfrobust.attacks.fab import FAB, FABUntargeted
from tfrobust.attacks.fmn import FMN
from tfrobust.attacks.gradient import FGSM, PGD, MomentumPGD, MultiTargetedPGD
from tfrobust.attacks.hop_skip_jump import HopSkipJump
from tfrobust.attacks.malt import MALT
from tfrobust.attacks.mixed_precision import MixedPrecisionPGD
from tfrobust.attacks.msd import MSD
from tfrobust.attacks.noise import GaussianNoise, UniformNoise
from tfrobust.attacks.pma import PMA
from tfrobust.attacks.prox_log_barrier import ProxLogBarrier
from tfrobust.attacks.shared import objectives
from tfrobust.attacks.shared.modes import video_predict
from tfrobust.attacks.shared.runner import run_attack
from tfrobust.attacks.shared.threat import ThreatModel, threat_of
from tfrobust.attacks.square import Square
from tfrobust.attacks.transfer import Transfer

__all__ = [
    "APGDCrossEntropy",
    "APGDDLR",
    "APGDTargeted",
    "AutoAttack",
    "DDN",
    "Ensemble",
    "FAB",
    "FABUntargeted",
    "FGSM",
    "FMN",
    "GaussianNoise",
    "HopSkipJump",
    "MALT",
    "MSD",
    "MixedPrecisionPGD",
    "MomentumPGD",
    "MultiTargetedPGD",
    "PGD",
    "PMA",
    "ProxLogBarrier",
    "Square",
    "ThreatModel",
    "Transfer",
    "UniformNoise",
    "objectives",
    "run_attack",
    "standard_member",
    "threat_of",
    "video_predict",
]
