"""Evaluation of one model by one function call."""

from __future__ import annotations

import os
from collections.abc import Callable

import keras
import numpy as np

from tfrobust.attacks.gradient import FGSM, PGD
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.evaluation.doctor.evaluator import Doctor
from tfrobust.evaluation.engine import predictor as predictors
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.engine.predictor import Predictor
from tfrobust.evaluation.evaluators.accuracy import CleanAccuracy
from tfrobust.evaluation.evaluators.adversarial import AttackAccuracy
from tfrobust.evaluation.evaluators.calibration import Calibration
from tfrobust.evaluation.runner import run_evaluation

_DOCTOR_STEPS = 10
_DOCTOR_LIMIT = 256


def evaluate(
    model,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    epsilon: float,
    norm: str = "linf",
    steps: int = 20,
    evaluators: tuple[Evaluator, ...] | None = None,
    seed: int = 0,
    batch_size: int = 128,
    progress: Callable | None = None,
) -> Outcome:
    """Measure clean accuracy, accuracy under FGSM and PGD, and calibration, and run the doctor's checks.

    Example:
        >>> import keras, numpy as np
        >>> from tfrobust import keras as robust
        >>> model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(4)])
        >>> images, labels = np.random.rand(16, 8, 8, 1), np.arange(16) % 4
        >>> outcome = robust.evaluate(model, images, labels, epsilon=0.1, steps=2)
        >>> [measurement.id for measurement in outcome.measurements][:2]
        ['accuracy.clean', 'attack.fgsm_linf_0.1.accuracy']

    Args:
        model: a built Keras model, a path (SavedModel or `.keras`), a function `images -> logits`, or a `Predictor`.
            Logits are best; probabilities are detected and converted to logits: log(p) of a softmax, log(p / (1 - p))
            of sigmoids.
        images: float [n, h, w, c] in [0, 1].
        labels: integer [n] in [0, k), or one-hot [n, k].
        epsilon: radius of the attack in pixels of [0, 1], > 0.
        norm: 'linf', 'l2' or 'l1'.
        steps: steps of PGD, of size 2.5 epsilon / steps each, from one random start.
        evaluators: evaluators to run instead of the default ones.
        seed: seed of every random draw.
        batch_size: largest number of images in one graph call.
        progress: called as (task, done, total) with a text or an attack (`searching.AttackTask`), or None.

    Returns:
        Measurements `accuracy.clean`, `attack.fgsm_...`, `attack.pgd_...`, `calibration. ...`, and findings.

    Raises:
        ValueError: data that does not fit the model, or an invalid threat model.
    """
    images = np.asarray(images)
    setting = Setting(
        predictor=as_predictor(model, images.shape[1:]),
        images=images,
        labels=labels,
        seed=seed,
        batch_size=batch_size,
        progress=progress,
    )
    return run_evaluation(evaluators or _evaluators(ThreatModel(norm=norm, epsilon=epsilon), steps), setting)


def as_predictor(model, image_shape: tuple[int, ...]) -> Predictor:
    """Make a predictor from any kind of model that `evaluate` accepts.

    Raises:
        TypeError: another type.
    """
    if isinstance(model, Predictor):
        return model
    if isinstance(model, (str, os.PathLike)):
        return predictors.load(os.fspath(model))
    if isinstance(model, keras.Model):
        return predictors.from_keras(model)
    if callable(model):
        return predictors.from_function(model, image_shape=image_shape)
    raise TypeError(f"A model is a Keras model, a path, a function or a Predictor, not {type(model).__name__}.")


def _evaluators(threat: ThreatModel, steps: int) -> tuple[Evaluator, ...]:
    return (
        CleanAccuracy(),
        AttackAccuracy(attack=FGSM(threat=threat)),
        AttackAccuracy(attack=PGD(threat=threat, steps=steps)),
        Calibration(),
        Doctor(attack=PGD(threat=threat, steps=min(steps, _DOCTOR_STEPS)), limit=_DOCTOR_LIMIT),
    )
