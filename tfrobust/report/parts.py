"""Accuracies of parts of the test set: of its classes, and of groups such as hospitals or kinds of light.

The series `accuracy.classes`, `accuracy.groups`, `attack.<...>.classes` and `attack.<...>.groups` hold them. A number
of a part has the id `accuracy.class.<name>` or `attack.<...>.group.<name>`, in which the name is written by `word`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tfrobust.report.schema import Report
from tfrobust.structs import Measurement, Series

CLASSES, GROUPS = "classes", "groups"
_SINGULAR = {CLASSES: "class", GROUPS: "group"}
_COLUMNS = ("accuracy", "n", "low", "high")
_ID = re.compile(r"((?:accuracy|attack\..+))\.(class|group)\.([^.]+)")
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
    prefix = "accuracy" if identity == "accuracy.clean" else identity.removesuffix(".accuracy")
    series, column = report.get_series(f"{prefix}.{kind}"), "label" if kind == CLASSES else "group"
    if not has_numbers(series, *_COLUMNS) or column not in series.columns:
        return []
    total = report.get(identity)
    bound = {"bound": total.settings["bound"]} if total and "bound" in total.settings else {}
    members = []
    for key, value, *rest in zip(*(series.columns[name] for name in (column, *_COLUMNS)), strict=True):
        if value is None or not isinstance(key, int if kind == CLASSES else str):
            continue
        name = class_name(report, key) if kind == CLASSES else key[:_LONGEST_NAME]
        member = f"{prefix}.{_SINGULAR[kind]}.{word(name.removeprefix('class '))}"
        members.append(Part(key, name, Measurement(member, value, "fraction", *rest, series.settings | bound)))
    return members


def find(report: Report, identity: str) -> list[Measurement]:
    """Return the measurements of parts that an id means: by name, or a class by its number; several share a word."""
    match = _ID.fullmatch(identity)
    if not match:
        return []
    prefix, noun, name = match.groups()
    kind = next(kind for kind, singular in _SINGULAR.items() if singular == noun)
    members = of(report, "accuracy.clean" if prefix == "accuracy" else f"{prefix}.accuracy", kind)
    named = [part.accuracy for part in members if part.accuracy.id == f"{prefix}.{noun}.{word(name)}"]
    return named or [part.accuracy for part in members if str(part.key) == name]


def total_of(identity: str) -> str:
    """Return the id of the accuracy over all examples that a class or a group belongs to; other ids as they are."""
    match = _ID.fullmatch(identity)
    return identity if match is None else "accuracy.clean" if match[1] == "accuracy" else f"{match[1]}.accuracy"


def is_part(identity: str) -> bool:
    """Return True for the id of a class or a group."""
    return _ID.fullmatch(identity) is not None


def ids(report: Report) -> list[str]:
    """Return the ids of all parts that the series of a report have."""
    totals = [m.id for m in report.measurements if m.id == "accuracy.clean" or m.id.startswith("attack.")]
    return [part.accuracy.id for total in totals for kind in _SINGULAR for part in of(report, total, kind)]


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
