"""Training methods, which are Keras models to compile and fit, and the objects that configure them."""

from tfrobust.augment.mixing import FeatureNoise, Mixing
from tfrobust.augment.puzzlemix import Puzzle
from tfrobust.losses.gradient_alignment import GradAlign
from tfrobust.losses.gradient_penalty import LayerWiseTikhonov, Tikhonov
from tfrobust.methods.acl import ACL
from tfrobust.methods.adr import ADR
from tfrobust.methods.adversarial_training import AdversarialTraining
from tfrobust.methods.ascl import ASCL, TwoTransforms
from tfrobust.methods.augmix import AugMixTraining
from tfrobust.methods.byol import BYOL
from tfrobust.methods.cl_gaussian import CLGaussian
from tfrobust.methods.crown_ibp import CROWNIBP
from tfrobust.methods.cutmix import CutMix
from tfrobust.methods.cvrl import CVRL
from tfrobust.methods.dino import DINO
from tfrobust.methods.fare import FARE
from tfrobust.methods.fcl import FCL
from tfrobust.methods.free_adversarial_training import FreeAdversarialTraining
from tfrobust.methods.hat import HAT
from tfrobust.methods.ibp import IBP
from tfrobust.methods.layer_wise import LayerWiseContrastive
from tfrobust.methods.manifold_mixup import ManifoldMixup
from tfrobust.methods.mart import MART
from tfrobust.methods.mixup import Mixup
from tfrobust.methods.moco_v3 import MoCoV3
from tfrobust.methods.mtl_ibp import MTLIBP
from tfrobust.methods.multi_norm_training import MultiNormTraining
from tfrobust.methods.nfm import NFM
from tfrobust.methods.noise_consistency import NoiseConsistency
from tfrobust.methods.noisymix import Branches, NoisyMix
from tfrobust.methods.puzzlemix import PuzzleMix
from tfrobust.methods.relu_stability import ReLUStability
from tfrobust.methods.rocl import RoCL
from tfrobust.methods.shared.adversary import Adversary
from tfrobust.methods.shared.batch_contrast import Contrast
from tfrobust.methods.shared.fast_adversary import FastAdversary
from tfrobust.methods.shared.feature_objectives import FeatureContrast, FeatureMargin
from tfrobust.methods.shared.instance_adversary import InstanceAdversary
from tfrobust.methods.shared.method import Method
from tfrobust.methods.shared.teacher import TeacherLogits, TeacherUtility
from tfrobust.methods.shared.weight_perturbation import WeightPerturbation
from tfrobust.methods.simclr import SimCLR
from tfrobust.methods.smooth_adv import SmoothAdv
from tfrobust.methods.supcon import SupCon
from tfrobust.methods.supervised import Supervised
from tfrobust.methods.supervised_contrastive import SupervisedContrastive
from tfrobust.methods.swav import SwAV
from tfrobust.methods.tclr import TCLR
from tfrobust.methods.trades import TRADES
from tfrobust.pairs.false_negatives import FNC, IFND, AdaptiveFNC
from tfrobust.pairs.selection import GlobalSelection, HardSelection, LeakedSelection, SoftSelection

__all__ = [
    "ACL",
    "ADR",
    "ASCL",
    "AdaptiveFNC",
    "AdversarialTraining",
    "Adversary",
    "AugMixTraining",
    "BYOL",
    "Branches",
    "CLGaussian",
    "CROWNIBP",
    "CVRL",
    "Contrast",
    "CutMix",
    "DINO",
    "FARE",
    "FCL",
    "FNC",
    "FastAdversary",
    "FeatureContrast",
    "FeatureMargin",
    "FeatureNoise",
    "FreeAdversarialTraining",
    "GlobalSelection",
    "GradAlign",
    "HAT",
    "HardSelection",
    "IBP",
    "IFND",
    "InstanceAdversary",
    "LayerWiseContrastive",
    "LayerWiseTikhonov",
    "LeakedSelection",
    "MART",
    "MTLIBP",
    "ManifoldMixup",
    "Method",
    "Mixing",
    "Mixup",
    "MoCoV3",
    "MultiNormTraining",
    "NFM",
    "NoiseConsistency",
    "NoisyMix",
    "Puzzle",
    "PuzzleMix",
    "ReLUStability",
    "RoCL",
    "SimCLR",
    "SmoothAdv",
    "SoftSelection",
    "SupCon",
    "Supervised",
    "SupervisedContrastive",
    "SwAV",
    "TCLR",
    "TRADES",
    "TeacherLogits",
    "TeacherUtility",
    "Tikhonov",
    "TwoTransforms",
    "WeightPerturbation",
]
