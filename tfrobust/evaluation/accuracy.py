"""Accuracy on the images as they are."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from tfrobust.evaluation import statistics
from tfrobust.evaluation.base import Evaluator, Outcome, Setting
from tfrobust.structs import Measurement, Series


def accuracy(identifier: str, correct: np.ndarray, settings: dict, examples: str = "images") -> Measurement:
    """The measurement of a share of rightly classified images, with Wilson's interval over images.

    Args:
        identifier: the measurement's id.
        correct: bool [n], n >= 1.
        settings: what produced it.
        examples: what they are called, "images" or "sentences".
    """
    low, high = statistics.wilson_interval(int(correct.sum()), len(correct))
    return Measurement(
        id=identifier,
        value=float(correct.mean()),
        n=len(correct),
        low=low,
        high=high,
        settings={**settings, "interval": f"95 % over {examples}, Wilson"},
    )


def by_class(identifier: str, correct: np.ndarray, labels: np.ndarray, examples: str = "images") -> Series:
    """The series `<identifier>.classes`: the accuracy of each class that occurs, with Wilson's interval.

    Args:
        identifier: what the accuracy over all classes is called, without its last part.
        correct: bool [n], which examples are rightly classified.
        labels: integer [n].
        examples: what they are called, "images" or "sentences".

    Returns:
        Columns label, n, accuracy, low, high, a row per class.
    """
    columns = {"label": [], "n": [], "accuracy": [], "low": [], "high": []}
    for label in np.unique(labels):
        own = correct[labels == label]
        row = (int(label), len(own), float(own.mean()), *statistics.wilson_interval(int(own.sum()), len(own)))
        for name, value in zip(columns, row, strict=True):
            columns[name].append(value)
    settings = {"interval": f"95 % over {examples} of the class, Wilson"}
    return Series(f"{identifier}.classes", "Accuracy of each class", columns, settings)


def class_measurements(classes: Series, settings: dict) -> list[Measurement]:
    """The rows of a `by_class` as measurements: `<identifier>.class.<label>` each.

    Args:
        classes: the series.
        settings: what produced it.
    """
    prefix, settings = classes.id.removesuffix("es"), {**settings, **classes.settings}
    rows = zip(*(classes.columns[name] for name in ("label", "accuracy", "n", "low", "high")), strict=True)
    return [
        Measurement(f"{prefix}.{label}", value, "fraction", n, low, high, settings)
        for label, value, n, low, high in rows
    ]


def outcomes(identifier: str, correct: np.ndarray) -> Series:
    """The series `outcomes.<id>`: which examples an accuracy counts as right, so that two reports can be paired.

    Args:
        identifier: the measurement's id.
        correct: bool [n], in the order of the test split.

    Returns:
        One row, whose column `right` holds a "1" or a "0" for each example.
    """
    row = "".join("01"[int(right)] for right in correct)
    return Series(f"outcomes.{identifier}", "Right (1) or wrong (0), one by one", {"right": [row]})


@dataclasses.dataclass(frozen=True, kw_only=True)
class CleanAccuracy(Evaluator):
    """`accuracy.clean`: the share of test images whose largest logit is the label's; the series `accuracy.classes`.

    Attributes:
        per_class: also measure `accuracy.class.<label>` of every class, for a gate to ask; the series has the same
            numbers.
    """

    per_class: bool = False

    judges_text: ClassVar[bool] = True

    def run(self, setting: Setting) -> Outcome:
        classes = by_class("accuracy", setting.clean_correct, setting.labels, setting.examples)
        found = class_measurements(classes, {}) if self.per_class else []
        series = [classes, outcomes("accuracy.clean", setting.clean_correct)]
        return Outcome([accuracy("accuracy.clean", setting.clean_correct, {}, setting.examples), *found], series)

    def ids(self) -> tuple[str, ...]:
        return ("accuracy.clean",)
