"""Clean accuracy, and accuracies with Wilson's interval as measurements and series."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from tfrobust.common.kinds import ANY
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.report.catalog.under_attack import ATTACK_CLASS, CLEAN, CLEAN_CLASS
from tfrobust.structs import Measurement, Series


def accuracy(identifier: str, correct: np.ndarray, settings: dict, examples: str = "images") -> Measurement:
    """Return an accuracy as a measurement, with Wilson's interval over examples.

    Args:
        identifier: the measurement's id.
        correct: bool [n], True for correctly classified examples; n >= 1.
        settings: the settings that produced it.
        examples: name of the examples, "images" or "sentences".
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
    """Return the accuracy of each class that occurs, with Wilson's interval, as the series `<identifier>.classes`.

    Args:
        identifier: id of the accuracy over all classes, without its last part.
        correct: bool [n], True for correctly classified examples.
        labels: integer [n].
        examples: name of the examples, "images" or "sentences".

    Returns:
        Columns label, n, accuracy, low, high, one row per class.
    """
    columns = _columns("label", correct, labels)
    settings = {"interval": f"95 % over {examples} of the class, Wilson"}
    return Series(f"{identifier}.classes", "Accuracy of each class", columns, settings)


def by_group(identifier: str, correct: np.ndarray, groups: np.ndarray | None, examples: str = "images") -> list[Series]:
    """Return the accuracy of each group, with Wilson's interval, as the series `<identifier>.groups`.

    Args:
        identifier: id of the accuracy over all groups, without its last part.
        correct: bool [n], True for correctly classified examples.
        groups: str [n]; None without groups.
        examples: name of the examples.

    Returns:
        One series with columns group, n, accuracy, low, high; [] without groups.
    """
    if groups is None:
        return []
    settings = {"interval": f"95 % over {examples} of the group, Wilson"}
    columns = _columns("group", correct, groups)
    return [Series(f"{identifier}.groups", "Accuracy of each group", columns, settings)]


def _columns(name: str, correct: np.ndarray, keys: np.ndarray) -> dict[str, list]:
    """Return the columns of the accuracies of all examples that share a key."""
    columns = {name: [], "n": [], "accuracy": [], "low": [], "high": []}
    for key in np.unique(keys):
        hits = correct[keys == key]
        row = (key.item(), len(hits), float(hits.mean()), *statistics.wilson_interval(int(hits.sum()), len(hits)))
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return columns


def class_measurements(classes: Series, settings: dict) -> list[Measurement]:
    """Return the rows of a `by_class` series as measurements `<identifier>.class.<label>`."""
    record = ATTACK_CLASS if "attack" in settings else CLEAN_CLASS
    rows = zip(*(classes.columns[name] for name in ("label", "accuracy", "n", "low", "high")), strict=True)
    measurements = []
    for label, value, n, low, high in rows:
        of_class = {**settings, **classes.settings, "class": label}
        measurements.append(Measurement(record.id("", of_class), value, "fraction", n, low, high, of_class))
    return measurements


def outcomes(identifier: str, correct: np.ndarray, images: np.ndarray | None = None) -> Series:
    """Return which examples are correctly classified as the series `outcomes.<id>`, for paired comparison of reports.

    Args:
        identifier: the measurement's id.
        correct: bool [n], in the order of the test split.
        images: bool [m], which examples of the test split these are; None: the first n.

    Returns:
        One row, whose column `right` holds a "1" or a "0" for each example, and `images` one for each of the test
        split.
    """
    rows = {"right": correct} | ({} if images is None else {"images": images})
    columns = {name: ["".join("01"[int(digit)] for digit in row)] for name, row in rows.items()}
    return Series(f"outcomes.{identifier}", "Correct (1) or wrong (0), per example", columns)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CleanAccuracy(Evaluator):
    """Clean accuracy, `accuracy.clean`: the share of test examples whose largest logit is the label's.

    The series `accuracy.classes` has the accuracy of each class, and `accuracy.groups` that of each group, if the data
    have groups.

    Attributes:
        per_class: True: also measure `accuracy.class.<label>` for every class, for use in a gate; the series has the
            same numbers.
    """

    per_class: bool = False

    kinds: ClassVar[tuple[str, ...]] = ANY

    def run(self, setting: Setting) -> Outcome:
        """Measure the clean accuracy."""
        classes = by_class("accuracy", setting.clean_correct, setting.labels, setting.examples)
        class_accuracies = class_measurements(classes, setting.vote_settings) if self.per_class else []
        groups = by_group("accuracy", setting.clean_correct, setting.group_names, setting.examples)
        identity = CLEAN.id("clean")
        series = [classes, *groups, outcomes(identity, setting.clean_correct)]
        clean = accuracy(identity, setting.clean_correct, setting.vote_settings, setting.examples)
        return Outcome([clean, *class_accuracies], series)

    def ids(self) -> tuple[str, ...]:
        """Return ("accuracy.clean",)."""
        return (CLEAN.id("clean"),)
