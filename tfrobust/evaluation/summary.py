"""Evaluation of one model by one function call."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfrobust.attacks.gradient import FGSM, PGD
from tfrobust.attacks.shared.attack import Attack, facts_of
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.attacks.square import Square
from tfrobust.common import arrays, files
from tfrobust.common.console import in_notebook
from tfrobust.common.kinds import CLIPS, TEXT
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.evaluation.doctor.evaluator import Doctor
from tfrobust.evaluation.doctor.pixels import refuse_other_range
from tfrobust.evaluation.engine import loading
from tfrobust.evaluation.engine import predictor as predictors
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.engine.predictor import Predictor
from tfrobust.evaluation.evaluators.accuracy import CleanAccuracy
from tfrobust.evaluation.evaluators.adversarial import AttackAccuracy
from tfrobust.evaluation.evaluators.calibration import Calibration
from tfrobust.evaluation.progress import ConsoleProgress
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.ops import finite
from tfrobust.report import assembly, catalog
from tfrobust.report.catalog.spelling import attack_label
from tfrobust.report.catalog.under_attack import ATTACK, CLEAN
from tfrobust.report.renderers import console, html
from tfrobust.report.schema import Report
from tfrobust.serving import hub
from tfrobust.structs import Measurement

_DOCTOR_STEPS = 10
# Queries of Square in place of a step of PGD, for a model without gradients.
_QUERIES = 50
_DOCTOR_LIMIT = 256
_SELECTED_ON = ("", "last", "validation", "test")


def _is_accuracy_under(attack: str, measurement: Measurement) -> bool:
    entry = catalog.read(measurement)
    return entry.record is ATTACK and entry.name == "accuracy" and attack_label(entry.settings) == attack


@dataclasses.dataclass(repr=False)
class Evaluation(Outcome):
    """The outcome of `evaluate`, with its report.

    Printed, it is the table of `summary`. A notebook shows the opening of the report, its plot of attacks, and a table.

    Attributes:
        report: the same results as a `Report`.
    """

    report: Report = None

    def __getitem__(self, name: str) -> Measurement:
        """Return a measurement by its id, or an accuracy by its short name: "clean", or the name of an attack, "pgd".

        Raises:
            KeyError: there is no such measurement, or several.
        """
        by_id = {measurement.id: measurement for measurement in self.measurements}
        names = {name, f"{CLEAN.family.name}.{name}"}
        fitting = [m.id for m in self.measurements if m.id in names or _is_accuracy_under(name, m)]
        if len(fitting) != 1:
            fault = "matches several of" if fitting else "is none of"
            raise KeyError(f"{name!r} {fault} the measurements: {', '.join(fitting or by_id)}")
        return by_id[fitting[0]]

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return html.fragment(self.report)

    def summary(self) -> str:
        """Return the main numbers with their intervals, and the doctor's warnings, as an aligned table of text."""
        return console.console_table(self.report, short=True)

    def to_json(self) -> str:
        """Return the report as JSON text, in the format of the files that the commands write."""
        return self.report.to_json()

    def save_html(self, path: str | os.PathLike) -> None:
        """Write the report as one self-contained HTML page, as the commands do.

        Args:
            path: the file; one of the same name is replaced.
        """
        files.write_atomically(path, html.render(self.report))


def evaluate(
    model,
    images,
    labels=None,
    *,
    epsilon: float | None = None,
    norm: str = "linf",
    threat: ThreatModel | None = None,
    bounds: tuple[float, float] | None = None,
    steps: int = 20,
    evaluators: tuple[Evaluator, ...] | None = None,
    validation: tuple[np.ndarray, np.ndarray] | None = None,
    groups=None,
    selected_on: str = "",
    seed: int = 0,
    batch_size: int = 128,
    votes: tuple[int, int] = (10, 5),
    progress: Callable | bool | None = None,
) -> Evaluation:
    """Measure clean accuracy, accuracy under FGSM and PGD, and calibration, and run the doctor's checks.

    One call evaluates a model, so that all its options are arguments, hence their number.

    Example:
        >>> import keras, numpy as np
        >>> from tfrobust import keras as robust
        >>> model = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(4)])
        >>> images, labels = np.random.rand(16, 8, 8, 1), np.arange(16) % 4
        >>> outcome = robust.evaluate(model, images, labels, epsilon=0.1, steps=2)
        >>> outcome["pgd"].id, outcome["clean"].n
        ('attack.pgd_linf_0.1.accuracy', 16)

    Args:
        model: a built Keras model; the path of a SavedModel, a `.keras` or a LiteRT file, or `hf://owner/name` of the
            Hugging Face Hub; a function `images -> logits`; or a `Predictor`. A function that computes outside
            TensorFlow, such as scikit-learn's `predict_proba`, is a black box without gradients; `with_gradient` adds
            its own.
            Logits are best; probabilities are detected and converted to logits: log(p) of a softmax, log(p / (1 - p))
            of sigmoids.
        images: float [n, h, w, c] within `bounds`; or clips [n, t, h, w, c]; or, without `labels`, a finite
            `tf.data.Dataset` or `keras.utils.PyDataset` of batches (images, labels).
        labels: integer [n] in [0, k), or one-hot [n, k].
        epsilon: radius of the attack in the pixels' units, > 0. In Linf and pixels of [0, 1], 8/255 is usual for
            photographs, 0.2 to 0.3 for gray digits.
        norm: 'linf', 'l2' or 'l1'.
        threat: a threat model in place of `epsilon` and `norm`.
        bounds: (low, high) of the pixels that the model takes, such as (0, 255); `images` and `epsilon` are in the same
            pixels. The report scales both to [0, 1]. None for the bounds of `threat`, which are by default (0, 1).
        steps: steps of PGD, of size 2.5 epsilon / steps each, from one random start. A model without input gradients is
            attacked by Square instead, with 50 queries for each step.
        evaluators: evaluators to run instead of the default ones, which alone read `epsilon`, `norm` and `steps`; their
            threat models are in pixels of [0, 1].
        validation: further images and labels, like `images` and `labels`, which training did not use; for evaluators
            that calibrate on them, such as PredictionSets.
        groups: names [n] of the group of each image, such as a hospital or a camera; their accuracies are then
            measured, clean and under attack. Or None.
        selected_on: the split on which the weights were selected, for the doctor: "last" (those of the last epoch),
            "validation" or "test"; "" if unknown, which it warns of.
        seed: seed of every random draw.
        batch_size: largest number of images in one graph call.
        votes: (draws, needed) for a stochastic model: an image counts as misclassified, clean or under attack, if at
            least `needed` of `draws` predictions are wrong. Models with equal outputs for equal images are predicted
            once.
        progress: True for a line per attack and, on a terminal or in a notebook, a bar; False for nothing; None for the
            bar alone, in notebooks only. Or a function, called as (task, done, total) with a text or an attack
            (`searching.AttackTask`).

    Returns:
        Measurements `accuracy.clean`, `attack.fgsm_...`, `attack.pgd_...`, `calibration. ...`, and findings. It prints
        as a table; `outcome["pgd"]` is the measurement of an attack.

    Raises:
        ValueError: data that do not fit the model, an invalid threat model, or a model that clearly expects pixels of
            another range than `bounds`.
    """
    started = time.monotonic()
    images, labels = finite.arrays_of(images, labels, "evaluate")
    if images.ndim == 2 and images.dtype.kind == "f":
        raise InputError(
            f"images are a table {list(images.shape)} of floats; evaluate takes images, clips or tokens (integers). "
            "For tables there is robust.attacks.run_attack."
        )
    low, high = bounds = _bounds(threat, bounds)
    predictor = as_predictor(model, images.shape[1:]).on_unit_pixels(low, high)
    if not predictor.is_text:
        images = _to_unit(images, low, high)
    held_out = {}
    if validation is not None:
        more, of_more = validation
        more = np.asarray(more) if predictor.is_text else _to_unit(np.asarray(more), low, high)
        held_out = {"validation_images": more, "validation_labels": of_more}
    unit = None if evaluators is not None else _scaled(_threat(epsilon, norm, threat, bounds))
    shown, training = _shown(progress), _training(model, bounds)
    setting = Setting(
        predictor=predictor,
        images=images,
        labels=labels,
        seed=seed,
        batch_size=batch_size,
        votes=votes,
        progress=shown,
        selected_on=require_choice(selected_on, "selected_on", _SELECTED_ON),
        training_attack=training and training | {"steps": training["attack_steps"]},
        groups=arrays.check_groups(groups, len(images)),
        **held_out,
    )
    if bounds == (0.0, 1.0):
        refuse_other_range(setting)
    if evaluators is None:
        evaluators = _evaluators(unit, steps, setting.predictor.differentiable)
    with shown if isinstance(shown, ConsoleProgress) else contextlib.nullcontext():
        outcome = run_evaluation(evaluators, setting)
    return Evaluation(**vars(outcome), report=_report(outcome, setting, training, time.monotonic() - started))


def _training(model, bounds: tuple[float, float]) -> dict | None:
    """Return the facts about the attack inside a method of this library, in pixels of [0, 1]; None for other models."""
    attack = getattr(getattr(model, "adversary", None), "attack", None)
    if not isinstance(attack, Attack):
        return None
    facts = {"method": type(model).__name__, **facts_of(attack)}
    if tuple(attack.threat.bounds) == bounds != (0.0, 1.0):
        del facts["bounds"]
        facts["epsilon"] = _scaled(attack.threat).epsilon
    return facts


def _shown(progress: Callable | bool | None) -> Callable | None:
    """Return the function that is called with the progress of an evaluation, or None."""
    if progress is None:
        return ConsoleProgress(lines=False) if in_notebook() else None
    if isinstance(progress, bool):
        return ConsoleProgress() if progress else None
    return progress


def as_predictor(model, image_shape: tuple[int, ...]) -> Predictor:
    """Make a predictor from any kind of model that `evaluate` accepts.

    Raises:
        InputError: another type.
    """
    if isinstance(model, Predictor):
        return model
    if isinstance(model, (str, os.PathLike)):
        return loading.load(hub.local(os.fspath(model)))
    if isinstance(model, keras.Model):
        return loading.from_keras(model)
    if callable(model):
        return predictors.from_function(model, image_shape=image_shape)
    raise InputError(
        f"The model, the first argument, is a {type(model).__name__}, not a Keras model, a path, a function or a "
        "Predictor."
    )


def _bounds(threat: ThreatModel | None, bounds: tuple[float, float] | None) -> tuple[float, float]:
    if bounds is None:
        return (0.0, 1.0) if threat is None else tuple(map(float, threat.bounds))
    bounds = tuple(map(float, ThreatModel(norm="l2", epsilon=1.0, bounds=tuple(bounds)).bounds))
    if threat is not None and threat.bounds not in (bounds, (0.0, 1.0)):
        raise InputError(f"bounds is {bounds}, but those of the threat model are {threat.bounds}; give one of them.")
    return bounds


def _threat(epsilon: float | None, norm: str, threat: ThreatModel | None, bounds: tuple[float, float]) -> ThreatModel:
    """Return the threat model in the pixels of `bounds`."""
    if threat is not None and (epsilon is not None or norm != "linf"):
        raise InputError("give either threat, or epsilon and norm, not both.")
    if threat is not None:
        return dataclasses.replace(threat, bounds=bounds)
    if epsilon is None:
        raise InputError(
            "epsilon has no default: usual in Linf, for pixels in [0, 1], are 8/255 = 0.0314 for photographs, 0.2 to "
            "0.3 for gray digits like MNIST."
        )
    return ThreatModel(norm=norm, epsilon=epsilon, bounds=bounds)


def _scaled(threat: ThreatModel) -> ThreatModel:
    """Return a threat model in pixels of [0, 1]."""
    low, high = threat.bounds
    factor = 1.0 if threat.norm == "l0" or (low, high) == (0.0, 1.0) else 1 / (high - low)
    return dataclasses.replace(threat, epsilon=threat.epsilon * factor, bounds=(0.0, 1.0))


def _to_unit(images: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return images in [0, 1] from those of pixels in [low, high]."""
    if (low, high) != (0.0, 1.0):
        if images.dtype.kind in "iu":
            images = images.astype(np.float32)
        images = arrays.check_pixels(images, "images", low, high)
        return (images - np.float32(low)) / np.float32(high - low)
    if images.ndim in (4, 5) and images.size and (images.dtype.kind in "iu" or images.max() > 2):
        raise InputError(
            f"images: pixels are {images.dtype} up to {images.max():g}. Divide them by 255 for a model that takes "
            "pixels in [0, 1]; pass bounds=(0, 255) for a model that takes them as they are."
        )
    return images


def _report(outcome: Outcome, setting: Setting, training: dict | None, seconds: float) -> Report:
    predictor, count = setting.predictor, len(setting.images)
    sha256 = setting.data_sha256
    held_out = len(setting.validation_images) if setting.has_validation else None
    sizes = {"train_size": None, "validation_size": held_out, "test_size": count}
    kind = {"kind": predictor.kind.name} if predictor.kind in (CLIPS, TEXT) else {}
    return assembly.make_report(
        measurements=outcome.measurements,
        series=outcome.series,
        findings=outcome.findings,
        model={
            "name": predictor.name,
            "version": None,
            "weights_sha256": predictor.weights_sha256,
            "parameters": predictor.parameters,
        },
        data={
            "name": f"{count} {setting.examples}",
            "fingerprint": sha256,
            "test_fingerprint": sha256,
            **sizes,
            **kind,
        },
        history={},
        devices=sorted({device.device_type for device in tf.config.list_physical_devices()}),
        training={**(training or {}), "evaluation_seed": setting.seed},
        cost={"evaluation_seconds": seconds},
    )


def _evaluators(threat: ThreatModel, steps: int, differentiable: bool) -> tuple[Evaluator, ...]:
    attacks = (FGSM(threat=threat), PGD(threat=threat, steps=steps))
    if not differentiable and threat.norm in Square.norms:
        attacks = (Square(threat=threat, steps=_QUERIES * steps),)
    return (
        CleanAccuracy(),
        *(AttackAccuracy(attack=attack) for attack in attacks),
        Calibration(),
        Doctor(attack=PGD(threat=threat, steps=min(steps, _DOCTOR_STEPS)), limit=_DOCTOR_LIMIT),
    )
