"""The section on corruptions: accuracy by corruption and severity, as an HTML heat map or a Markdown table."""

import re

from tfrobust.report import intervals, reading
from tfrobust.report.blocks import html as page
from tfrobust.report.blocks.html import text
from tfrobust.report.schema import Report
from tfrobust.report.sections import results as section_results
from tfrobust.structs import Measurement

_CELL_ID = re.compile(r"^corruption\.(?P<name>[a-z_]+)\.(?P<severity>[1-9])\.(?P<what>accuracy|drop)$")

# Number of leading text columns of the table; the others are numbers.
TEXT_COLUMNS = 1
# Per cent of the color for an accuracy of 1, chosen so that the number stays readable in light and dark mode.
_DEEPEST = 60


def is_cell(measurement: Measurement) -> bool:
    """Return True if a measurement belongs to the heat map: the accuracy of a cell, or its drop."""
    return _CELL_ID.match(measurement.id) is not None


def cells(report: Report, what: str = "accuracy") -> dict[str, dict[int, Measurement]]:
    """Return corruption -> severity -> accuracy (or "drop"), in the order measured."""
    found: dict[str, dict[int, Measurement]] = {}
    for measurement in report.measurements:
        match = _CELL_ID.match(measurement.id)
        if match and match["what"] == what:
            found.setdefault(match["name"], {})[int(match["severity"])] = measurement
    return found


def table(report: Report) -> tuple[list[str], list[list[float | str | None]]] | None:
    """Return header and rows: corruption, accuracy at each severity, their mean, the mean of its relative drops.

    Returns None without corruptions. The last column is omitted without drops.
    """
    found, drops = cells(report), cells(report, "drop")
    if not found:
        return None
    severities = sorted({severity for row in found.values() for severity in row})
    rows = []
    for name, row in found.items():
        values = [row[severity].value if severity in row else None for severity in severities]
        fallen = [_mean(m.value for m in drops.get(name, {}).values())] if drops else []
        rows.append([reading.nice(name), *values, _mean(values), *fallen])
    header = ["Corruption", *(f"severity {severity}" for severity in severities), "mean"]
    return [*header, *(["relative drop"] if drops else [])], rows


def _mean(values) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def corruptions(report: Report) -> tuple[str, str] | None:
    """Render the heat map, and below it the means and summary errors."""
    found = table(report)
    others = [m for m in report.measurements if m.id.startswith("corruption.") and not is_cell(m)]
    if found is None:
        return ("Accuracy on corrupted test images.", section_results.measurement_table(others)) if others else None
    header, rows = found
    accuracies = header.index("mean") + 1
    shown = [[text(r[0]), *map(_heat, r[1:accuracies]), *map(reading.per_cent, r[accuracies:])] for r in rows]
    # Short headers, so that the map fits on a phone.
    heads = [name.removeprefix("severity ").removeprefix("relative ") for name in header]
    body = f'<div class="dense">{page.table(heads, shown, numeric=tuple(range(TEXT_COLUMNS, len(heads))))}</div>'
    if others:
        body += section_results.measurement_table(others)
    return lead(report, header), body


def lead(report: Report, header: list[str]) -> str:
    """Return the lead: the content of the map, the interval width of its cells and the origin of the images."""
    said = "Accuracy in per cent on corrupted test images, by severity: the deeper the colour, the more stay right."
    if "relative drop" in header:
        said += " Drop: how much of the clean accuracy is lost, in per cent of it, on average."
    widths = [(m.high - m.low) / 2 for row in cells(report).values() for m in row.values() if intervals.kind(m)]
    if widths:
        kinds = intervals.kinds(m for row in cells(report).values() for m in row.values())
        widest = reading.per_cent(max(widths))
        said += f" Each cell's 95 % interval ({kinds}) reaches up to {widest} points to either side."
    return f"{said} {origin(report)}".strip()


def origin(report: Report) -> str:
    """Return the origin of the corrupted images."""
    return reading.origin(m for row in cells(report).values() for m in row.values())


def _heat(value: float | None) -> str:
    """Render one accuracy over a color whose intensity is proportional to it."""
    if value is None:
        return reading.per_cent(value)
    colour = f"color-mix(in srgb,var(--series-0) {_DEEPEST * min(1.0, max(0.0, value)):.0f}%,transparent)"
    return f'<span class="heat" style="background:{colour}">{reading.per_cent(value)}</span>'
