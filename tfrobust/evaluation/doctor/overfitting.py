"""The check of the doctor for catastrophic overfitting, of models that were trained against a single step."""

import numpy as np
import tensorflow as tf

from tfrobust.attacks.gradient import FGSM, PGD
from tfrobust.attacks.shared import objectives
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.evaluation.doctor.limits import graded
from tfrobust.evaluation.doctor.strength import trained_threat
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.searching import search
from tfrobust.ops import gradients, overfitting, randomness
from tfrobust.structs import Finding

_IMAGES = 256


def check_overfitting(setting: Setting) -> Finding | None:
    """Compare FGSM with PGD-10 at the epsilon of the training; None unless the training took single steps."""
    trained = setting.training_attack
    if trained is None or trained["steps"] != 1:
        return None
    threat = trained_threat(trained)
    positions = setting.subset(_IMAGES)
    single, several = (
        float(np.mean(~search(setting, attack, positions).success)) for attack in (FGSM(threat), PGD(threat, steps=10))
    )
    cosine = _mean_cosine(setting, threat, positions)
    evidence = (
        f"At the epsilon of the training, {trained['norm']} {trained['epsilon']:.6g}, FGSM leaves {single:.1%} and "
        f"PGD-10 {several:.1%} of {len(positions)} {setting.examples}; the cosine of gradients within the ball is "
        f"{cosine:.2f}."
    )
    remedy = (
        "The model has overfitted to single steps (catastrophic overfitting): train it with GradAlign, N-FGSM, a "
        "smaller step, or PGD, and keep the weights of an epoch before the fall."
    )
    return graded("overfitting", evidence, remedy, "fail" if overfitting.signs(single, several, cosine) else "pass")


def _mean_cosine(setting: Setting, threat: ThreatModel, positions: np.ndarray) -> float:
    """Return the mean cosine of gradients at images and at random points near them; 1 if all gradients are 0."""
    cosines = []
    for start in range(0, len(positions), setting.batch_size):
        chosen = positions[start : start + setting.batch_size]
        images, labels = tf.constant(setting.images[chosen]), tf.constant(setting.labels[chosen])
        keys = randomness.example_keys(randomness.make_key(setting.seed, "evaluation", "cosine"), tf.constant(chosen))
        near = threat.random_start(images, keys)
        cosines.append(gradients.cosines(objectives.cross_entropy(setting.predictor.logits, labels), images, near))
    values = np.concatenate(cosines)
    return float(np.nanmean(values)) if np.isfinite(values).any() else 1.0
