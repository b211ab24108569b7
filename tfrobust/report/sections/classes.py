"""The section on classes: accuracy by class, clean and under the strongest attack."""

import dataclasses

from tfrobust.report import intervals, reading
from tfrobust.report.blocks import html as page
from tfrobust.report.blocks.html import text
from tfrobust.report.reading import AttackRow
from tfrobust.report.schema import Report
from tfrobust.report.sections.results import has_numbers
from tfrobust.report.sections.sensitivity import class_name
from tfrobust.structs import Measurement, Series

# Maximum number of classes shown; of more classes, those with the lowest accuracy.
_SHOWN = 30
_LONGEST_NAME = 60


@dataclasses.dataclass(frozen=True)
class Classes:
    """The accuracies by label.

    Attributes:
        clean: label -> clean accuracy.
        attacked: label -> accuracy under `attack`.
        attack: the strongest attack with accuracies by class; None if no attack was run.
        labels: the labels shown.
        total: number of classes.
    """

    clean: dict[int, Measurement]
    attacked: dict[int, Measurement]
    attack: AttackRow | None
    labels: list[int]
    total: int

    @property
    def columns(self) -> list[tuple[str, dict[int, Measurement]]]:
        """(heading, accuracies) of what was measured."""
        found = [("Clean", self.clean)] if self.clean else []
        under = f"{self.attack.attack}, {self.attack.budget}" if self.attack else ""
        return [*found, *([(under, self.attacked)] if self.attacked else [])]


def classes(report: Report) -> Classes | None:
    """Return the accuracies by class; None if the report has none."""
    clean = _accuracies(report.get_series("accuracy.classes"))
    rows = reading.attack_rows(report.measurements)
    attack = reading.strongest([row for row in rows if _accuracies(_series_of(report, row))])
    attacked = _accuracies(_series_of(report, attack)) if attack else {}
    if attack and attack.is_upper_bound:
        attacked = {
            label: dataclasses.replace(m, settings={**m.settings, "bound": "upper"}) for label, m in attacked.items()
        }
    if not clean and not attacked:
        return None
    labels = sorted({*clean, *attacked})
    total = len(labels)
    if total > _SHOWN:
        weak = attacked or clean
        labels = sorted(labels, key=lambda label: weak[label].value if label in weak else 2.0)[:_SHOWN]
    return Classes(clean, attacked, attack, labels, total)


def worst(report: Report, accuracies: dict[int, Measurement]) -> tuple[str, Measurement]:
    """Return name and accuracy of the class with the lowest accuracy."""
    label = min(accuracies, key=lambda one: accuracies[one].value)
    return class_name(report, label, _LONGEST_NAME), accuracies[label]


def lead(found: Classes) -> str:
    """Return the lead: the content of the table, the kinds of intervals and a caveat."""
    shown = [m for _, column in found.columns for m in column.values()]
    which = f" Shown are the {_SHOWN} of {found.total} that are right least often." if found.total > _SHOWN else ""
    return (
        f"The mean hides the class that fares worst.{which} Below each accuracy its 95 % interval"
        f" ({intervals.kinds(shown)}); the worst of many classes looks worse than it is, since it was picked for it."
    )


def table(report: Report, found: Classes) -> tuple[list[str], list[list]]:
    """Return header and rows: name of the class, number of images, and one accuracy per column of `found`."""
    rows = []
    for label in found.labels:
        cells = [column.get(label) for _, column in found.columns]
        count = next((m.n for m in cells if m is not None), None)
        rows.append([class_name(report, label, _LONGEST_NAME), "-" if count is None else count, *cells])
    return ["Class", "n", *(heading for heading, _ in found.columns)], rows


def section(report: Report) -> tuple[str, str] | None:
    """Render the table, each accuracy as a bar and a number."""
    found = classes(report)
    if found is None:
        return None
    header, rows = table(report, found)
    cells = [[text(name), text(count), *(part for m in own for part in _cells(m))] for name, count, *own in rows]
    heads = ["Class", "n", *(part for heading in header[2:] for part in ("", heading))]
    numeric = (1, *range(3, len(heads), 2))
    return lead(found), f'<div class="bars">{page.table(heads, cells, numeric, stack=True)}</div>'


def _cells(m: Measurement | None) -> tuple[str, str]:
    if m is None:
        return "", "-"
    return page.bar(m.value, m.low, m.high), f"{text(reading.number(m))}<small>{text(reading.interval(m))}</small>"


def _series_of(report: Report, row: AttackRow) -> Series | None:
    return report.get_series(f"{row.accuracy.id.removesuffix('.accuracy')}.classes")


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
