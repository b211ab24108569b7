"""The section on classes: accuracy by class, clean and under the strongest attack."""

import dataclasses
import functools

from tfrobust.report import reading
from tfrobust.report.blocks import Block, Grid
from tfrobust.report.reading import AttackRow
from tfrobust.report.sections.base import Section, class_name, has_numbers
from tfrobust.structs import Measurement, Series

# Maximum number of classes shown; of more classes, those with the lowest accuracy.
_SHOWN = 30


class Classes(Section):
    """The accuracies by class as bars and numbers, clean and under the strongest attack that has them."""

    anchor = "classes"
    heading = "Accuracy by class"

    @property
    def lead(self) -> str:
        """The classes shown, and a caveat."""
        total = len(self._labels)
        which = f" Shown are the {_SHOWN} of {total} classes with the lowest accuracy." if total > _SHOWN else ""
        examples = self.examples
        return (
            f"A mean accuracy hides the weakest class.{which} n is the number of test {examples} of a class. The lowest"
            " of many measured accuracies is biased downwards, since it was selected for being the lowest."
        )

    @property
    def sentence(self) -> str:
        """The class with the lowest accuracy, clean and attacked."""
        parts = []
        for heading, column in self.columns.items():
            label = min(column, key=lambda one: column[one].value)
            when = "clean" if heading == "Clean" else f"under {heading}"
            parts.append(f"{when}, {class_name(self.report, label)}")
        return f"Lowest accuracy: {'; '.join(parts)}."

    def blocks(self) -> list[Block]:
        """Return the table of classes."""
        rows, labels = [], self._labels
        if len(labels) > _SHOWN:
            *_, weakest = self.columns.values()
            labels = sorted(labels, key=lambda label: weakest[label].value if label in weakest else 2.0)[:_SHOWN]
        for label in labels:
            cells = [column.get(label) for column in self.columns.values()]
            count = next((m.n for m in cells if m is not None), None)
            rows.append([class_name(self.report, label), count, *cells])
        header = ["Class", "n", *self.columns]
        return [Grid(header, rows, bars=tuple(range(2, len(header))))] if rows else []

    @functools.cached_property
    def columns(self) -> dict[str, dict[int, Measurement]]:
        """Heading -> label -> accuracy, of what was measured."""
        rows = reading.attack_rows(self.report.measurements)
        attack = reading.strongest([row for row in rows if _accuracies(self._series_of(row))])
        attacked = _accuracies(self._series_of(attack)) if attack else {}
        if attack and attack.is_upper_bound:
            for label, m in attacked.items():
                attacked[label] = dataclasses.replace(m, settings={**m.settings, "bound": "upper"})
        found = {"Clean": _accuracies(self.report.get_series("accuracy.classes"))}
        found |= {attack.title: attacked} if attack else {}
        return {heading: column for heading, column in found.items() if column}

    @property
    def _labels(self) -> list[int]:
        return sorted({label for column in self.columns.values() for label in column})

    def _series_of(self, row: AttackRow) -> Series | None:
        return self.report.get_series(f"{row.accuracy.id.removesuffix('.accuracy')}.classes")


def _accuracies(series: Series | None) -> dict[int, Measurement]:
    """Return label -> accuracy, with n and interval; {} if a column is missing."""
    names = ("label", "accuracy", "n", "low", "high")
    if not has_numbers(series, *names):
        return {}
    rows = zip(*(series.columns[name] for name in names), strict=True)
    return {
        label: Measurement("", value, "fraction", n, low, high, series.settings)
        for label, value, n, low, high in rows
        if isinstance(label, int) and value is not None
    }
