"""The section on calibration: reliability diagrams, accuracy by response rate, and the calibration errors."""

import dataclasses
import functools
from functools import partial

from tfrobust.report import attack_table, catalog, formats
from tfrobust.report.blocks import Block, Figure, Grid, Table, plots
from tfrobust.report.blocks.plots import Line
from tfrobust.report.catalog.outputs import (
    ATTACKED_CALIBRATION,
    ATTACKED_RELIABILITY,
    ATTACKED_RESPONSE_RATE,
    CALIBRATION,
)
from tfrobust.report.catalog.record import Record
from tfrobust.report.catalog.spelling import attack_caption
from tfrobust.report.parts import has_numbers
from tfrobust.report.sections.base import Section, ends, joined
from tfrobust.structs import Measurement, Series

_RELIABILITY, _RATES = "reliability", "response_rate"
_ATTACKED = (ATTACKED_CALIBRATION, ATTACKED_RELIABILITY, ATTACKED_RESPONSE_RATE)


class Calibration(Section):
    """Reliability diagrams and the calibration measurements, clean and under attack."""

    anchor = "calibration"
    heading = "Calibration"

    @functools.cached_property
    def diagrams(self) -> list[Series]:
        """The series of the reliability diagrams."""
        candidates = [series for series in self.report.series if _is_curve(series, ATTACKED_RELIABILITY, _RELIABILITY)]
        return [
            series for series in candidates if has_numbers(series, "confidence", "accuracy", "count", *ends(series))
        ]

    @property
    def lead(self) -> str:
        """Instructions for reading the diagrams, and the numbers that have an interval."""
        lines = ""
        attacked = {_attack(m): m.settings for m in self._of_last_points()}
        efforts = [f"{attack}: {attack_table.effort(settings)}" for attack, settings in attacked.items()]
        if efforts:
            lines += (
                f" Under attack, the predictions are those for the last point of each {self.example}"
                f" ({'; '.join(efforts)})."
            )
            lines += " More of them can be correct than of the points that accuracies under attack count."
        return (
            "If the confidence is 80 %, are 80 % correct? The closer to the diagonal, the better. Diagrams leave out"
            f" bins of a single {self.example}. Calibration errors have no interval and are biased upwards in small"
            " samples." + lines
        )

    @property
    def sentence(self) -> str:
        """The direction of miscalibration."""
        parts = []
        for series in self.diagrams:
            when = f"under {_attack(series)}" if _attack(series) else "clean"
            gap = _confidence_gap(series)
            if gap is not None:
                kind = "over" if gap > 0 else "under"
                parts.append(f"{when}, the model is {kind}-confident by {formats.per_cent(abs(gap))} points on average")
        return joined(parts)

    def blocks(self) -> list[Block]:
        """Return the diagrams and, below them, the numbers."""
        if not self.diagrams:
            return []
        return [*(_diagram(series, self.examples) for series in self.diagrams), *self._rates(), *self._numbers()]

    def _numbers(self) -> list[Block]:
        """Return a grid of the numbers, one column for clean images and one per attack."""
        columns: dict[str, dict[str, Measurement]] = {}
        for m in self.measured(CALIBRATION.family.name):
            name = catalog.read(m).quantity.label or m.id
            columns.setdefault(f"Under {_attack(m)}" if _attack(m) else "Clean", {})[name] = m
        rows = []
        for name in dict.fromkeys(name for column in columns.values() for name in column):
            cells = [column.get(name) for column in columns.values()]
            units = {m.unit for m in cells if m and not m.unit.startswith("fraction")}
            header = name + "".join(f" ({unit})" for unit in units)
            rows.append([header, *(dataclasses.replace(m, unit="1") if m and units else m for m in cells)])
        counts = [next(iter(column.values())).n for column in columns.values()]
        return [Grid(["Measurement", *columns], [*rows, [self.examples.capitalize(), *counts]])] if rows else []

    def _of_last_points(self) -> list[Measurement]:
        measurements = self.measured(CALIBRATION.family.name)
        return [
            m for m in measurements if _attack(m) and m.settings.get("answers") == "to the last points of all images"
        ]

    def _rates(self) -> list[Figure]:
        """Return the error rate among the most confident predictions, clean and under each attack."""
        lines = []
        for series in self.report.series:
            is_curve = _is_curve(series, ATTACKED_RESPONSE_RATE, _RATES)
            if is_curve and has_numbers(series, "response_rate", "accuracy"):
                wrong = [None if value is None else 1 - value for value in series.columns["accuracy"]]
                name = f"under {_attack(series)}" if _attack(series) else "clean"
                lines.append(Line(name, series.columns["response_rate"], wrong))
        axes = {"x_label": "response rate, most confident first", "y_label": "error rate"}
        draw = partial(plots.curves, lines=lines, percent=True, full_axis=False, percent_x=True, **axes)
        caption = "Error rate when only confident predictions count (AURRA)"
        return [Figure("calibration-rates", caption, draw)] if lines else []


def _attack(item: Measurement | Series) -> str:
    """Return the caption of the attack; "" for clean images."""
    entry = catalog.read(item)
    return attack_caption(entry.settings) if entry.record in _ATTACKED else ""


def _is_curve(series: Series, attacked: Record, name: str) -> bool:
    entry = catalog.read(series)
    return entry.record is attacked or (entry.record is CALIBRATION and entry.name == name)


def _diagram(series: Series, examples: str) -> Figure:
    columns, empty = series.columns, [None] * len(series.columns["count"])
    names = ("confidence", "accuracy", "count", "low", "high")
    by_name = {name: columns.get(name, empty) for name in names}
    rows = [
        [
            None if confidence is None else formats.quantity(confidence, "fraction"),
            Measurement("", accuracy, "fraction", count, *interval, series.settings),
            count,
        ]
        for confidence, accuracy, count, *interval in zip(*by_name.values(), strict=True)
        if count and count > 1
    ]
    attack = _attack(series)
    caption = f"Reliability under {attack}" if attack else series.title or "Reliability"
    numbers = Table(["Confidence", "Accuracy", examples.capitalize()], rows, texts=0)
    return Figure(
        series.id,
        caption,
        partial(plots.reliability, **by_name, role="attacked" if attack else "clean", examples=examples),
        numbers,
    )


def _confidence_gap(series: Series) -> float | None:
    """Compute mean confidence minus accuracy; positive if the model is over-confident."""
    rows = zip(*(series.columns[name] for name in ("confidence", "accuracy", "count")), strict=True)
    bins = [row for row in rows if None not in row and row[2]]
    total = sum(count for *_, count in bins)
    return sum((confidence - accuracy) * count for confidence, accuracy, count in bins) / total if total else None
