"""Evaluators: what `evaluate(evaluators=...)` and the EVALUATORS of a gin file measure, and the doctor's checks."""

from tfrobust.evaluation.doctor.evaluator import Doctor
from tfrobust.evaluation.doctor.fast import FastAccuracy
from tfrobust.evaluation.doctor.full import FullDoctor
from tfrobust.evaluation.engine.base import Evaluator
from tfrobust.evaluation.evaluators.accuracy import CleanAccuracy
from tfrobust.evaluation.evaluators.adversarial import AccuracyCurve, AttackAccuracy
from tfrobust.evaluation.evaluators.calibration import Calibration
from tfrobust.evaluation.evaluators.certified import CertifiedAccuracy
from tfrobust.evaluation.evaluators.clip_corruption import ClipCorruptionAccuracy
from tfrobust.evaluation.evaluators.corruption import CorruptionAccuracy
from tfrobust.evaluation.evaluators.embedding import EmbeddingGeometry
from tfrobust.evaluation.evaluators.examples import AdversarialExamples
from tfrobust.evaluation.evaluators.expected_robustness import ExpectedRobustness
from tfrobust.evaluation.evaluators.geometry import Divergence, FeatureMap
from tfrobust.evaluation.evaluators.out_of_distribution import OutOfDistribution
from tfrobust.evaluation.evaluators.prediction_sets import PredictionSets
from tfrobust.evaluation.evaluators.reference import ReferenceAccuracies
from tfrobust.evaluation.evaluators.replaced_pixels import ReplacedPixels
from tfrobust.evaluation.evaluators.sensitivity import Sensitivity
from tfrobust.evaluation.evaluators.shift import ShiftAccuracy
from tfrobust.evaluation.evaluators.smoothing import Smoothing
from tfrobust.evaluation.evaluators.stability import Stability
from tfrobust.evaluation.evaluators.token_sensitivity import TokenSensitivity
from tfrobust.evaluation.evaluators.union import Union
from tfrobust.evaluation.evaluators.video import VideoAccuracy, VideoAttackAccuracy

__all__ = [
    "AccuracyCurve",
    "AdversarialExamples",
    "AttackAccuracy",
    "Calibration",
    "CertifiedAccuracy",
    "CleanAccuracy",
    "ClipCorruptionAccuracy",
    "CorruptionAccuracy",
    "Divergence",
    "Doctor",
    "EmbeddingGeometry",
    "Evaluator",
    "ExpectedRobustness",
    "FastAccuracy",
    "FeatureMap",
    "FullDoctor",
    "OutOfDistribution",
    "PredictionSets",
    "ReferenceAccuracies",
    "ReplacedPixels",
    "Sensitivity",
    "ShiftAccuracy",
    "Smoothing",
    "Stability",
    "TokenSensitivity",
    "Union",
    "VideoAccuracy",
    "VideoAttackAccuracy",
]
