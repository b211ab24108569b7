"""Accuracies of parts of the test set: of its classes, and of groups such as hospitals or kinds of light.

The series `accuracy.classes`, `accuracy.groups`, `attack.<...>.classes` and `attack.<...>.groups` hold them. A number
of a part has the id `accuracy.class.<name>` or `attack.<...>.group.<name>`, in which the name is written by `word`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tfrobust.report import catalog
from tfrobust.report.catalog.under_attack import ATTACK, CLEAN
from tfrobust.report.schema import Report
from tfrobust.structs import Measurement, Series

CLASSES, GROUPS = "classes", "groups"
_SINGULAR = {CLASSES: "class", GROUPS: "group"}
_COLUMNS = ("accuracy", "n", "low", "high")
_CLEAN = CLEAN.id("clean")
_LONGEST_NAME = 80


class Part(NamedTuple):
    """A class or a group, and its accuracy.

    Attributes:
        key: label of the class, or name of the group.
        name: for display.
        accuracy: a measurement whose id is that of the part.
    """

    key: int | str
    name: str
    accuracy: Measurement


def of(report: Report, identity: str, kind: str) -> list[Part]:
    """Return the accuracies of all parts of one kind, in the order of the series; [] if they were not measured.

    Args:
        report: any.
        identity: id of an accuracy over all examples: "accuracy.clean", or that of an attack.
        kind: `CLASSES` or `GROUPS`.
    """
    prefix = _prefix(identity)
    series, column = report.get_series(f"{prefix}.{kind}"), "label" if kind == CLASSES else "group"
    if not has_numbers(series, *_COLUMNS) or column not in series.columns:
        return []
    total = report.get(identity)
    # Those of the protocol, and whether a time budget made it a bound; the interval is the series' own.
    settings = {name: value for name, value in (total.settings if total else {}).items() if name != "interval"}
    settings |= series.settings
    members = []
    for key, value, *rest in zip(*(series.columns[name] for name in (column, *_COLUMNS)), strict=True):
        if value is None or not isinstance(key, int if kind == CLASSES else str):
            continue
        name = class_name(report, key) if kind == CLASSES else key[:_LONGEST_NAME]
        member = _beginning(identity, kind) + word(name.removeprefix("class "))
        members.append(Part(key, name, Measurement(member, value, "fraction", *rest, settings)))
    return members


def unmeasured(report: Report, identity: str, kind: str) -> list[str]:
    """Return the names of the classes or groups that the data or the clean accuracy have, and an accuracy lacks.

    Args:
        report: any.
        identity: as in `of`.
        kind: `CLASSES` or `GROUPS`.
    """
    keys = list(range(len(report.data.get("class_names") or []))) if kind == CLASSES else []
    for prefix in (_prefix(identity), CLEAN.family.name):
        series = report.get_series(f"{prefix}.{kind}")
        keys += series.columns.get("label" if kind == CLASSES else "group", []) if series else []
    measured = {part.key for part in of(report, identity, kind)}
    return [
        class_name(report, key) if kind == CLASSES else str(key) for key in dict.fromkeys(keys) if key not in measured
    ]


def total_of(report: Report, identity: str) -> str:
    """Return the id of the accuracy over all examples that a class or a group belongs to; of others the id itself."""
    return next((total for total in _totals(report) if is_part_of(identity, total)), identity)


def find(report: Report, identity: str) -> list[Measurement]:
    """Return the measurements of parts that an id means: by name, or a class by its number; several share a word."""
    for total in _totals(report):
        for kind in _SINGULAR:
            name = _name_in(identity, total, kind)
            if name:
                members = of(report, total, kind)
                ids = _beginning(total, kind) + word(name)
                return [part.accuracy for part in members if part.accuracy.id == ids or str(part.key) == name]
    return []


def is_part_of(identity: str, total: str) -> bool:
    """Return True for the id of a class or a group whose accuracy over all examples has the id `total`."""
    has_parts = total == _CLEAN or total.startswith(f"{ATTACK.family.name}.")
    return has_parts and any(_name_in(identity, total, kind) for kind in _SINGULAR)


def ids(report: Report) -> list[str]:
    """Return the ids of all parts that the series of a report have."""
    return [part.accuracy.id for total in _totals(report) for kind in _SINGULAR for part in of(report, total, kind)]


def _totals(report: Report) -> list[str]:
    """Return the ids of the accuracies over all examples, clean and under attack."""
    totals = [m.id for m in report.measurements if catalog.read(m).record is ATTACK]
    return [_CLEAN, *totals]


def _prefix(total: str) -> str:
    """Return the beginning that the id of an accuracy over all examples shares with those of its parts."""
    return CLEAN.family.name if total == _CLEAN else total.removesuffix(".accuracy")


def _beginning(total: str, kind: str) -> str:
    return f"{_prefix(total)}.{_SINGULAR[kind]}."


def _name_in(identity: str, total: str, kind: str) -> str:
    """Return the name of the class or group that an id means; "" unless it is one of this accuracy."""
    beginning = _beginning(total, kind)
    name = identity.removeprefix(beginning)
    return name if identity.startswith(beginning) and "." not in name else ""


def worst(parts: list[Part]) -> Part | None:
    """Return the part with the lowest accuracy; None without parts."""
    return min(parts, key=lambda part: part.accuracy.value, default=None)


def word(name: str) -> str:
    """Return a name as a part of an id: "t_shirt_top" for "T-shirt/top"."""
    return re.sub(r"\W+", "_", name.lower()).strip("_")


def class_name(report: Report, label) -> str:
    """Return the display name of a class: its name, or "class 3" for a number; of a very long name, its beginning."""
    classes = report.data.get("class_names") or []
    is_named = isinstance(label, int) and 0 <= label < len(classes)
    name = str(classes[label] if is_named else label)
    return (f"class {name}" if name.isdecimal() else name)[:_LONGEST_NAME]


def has_numbers(series: Series | None, *names: str) -> bool:
    """Return True if a series has these columns with only numbers and None: other programs may have written it."""
    has_columns = series is not None and set(names) <= series.columns.keys()
    return has_columns and all(
        value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
        for name in names
        for value in series.columns[name]
    )
