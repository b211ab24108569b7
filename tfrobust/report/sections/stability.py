"""The section on stability: flip probabilities along perturbation sequences, as HTML bars and as a table."""

import re

from tfrobust.report import intervals, reading
from tfrobust.report.blocks import html as page
from tfrobust.report.blocks import plots
from tfrobust.report.blocks.html import text
from tfrobust.report.schema import Report
from tfrobust.report.sections import results as section_results
from tfrobust.structs import Measurement

_CELL_ID = re.compile(r"^stability\.(?!mean\.)(?P<name>[a-z_]+)\.(?P<what>flip_probability|flip_rate)$")

# Number of leading text columns of the table; the others are numbers.
TEXT_COLUMNS = 2


def is_cell(measurement: Measurement) -> bool:
    """Return True if a measurement belongs to the table of sequences."""
    return _CELL_ID.match(measurement.id) is not None


def cells(report: Report) -> dict[str, dict[str, Measurement]]:
    """Return sequence -> "flip_probability", "flip_rate" -> measurement, in the order measured."""
    found: dict[str, dict[str, Measurement]] = {}
    for measurement in report.measurements:
        match = _CELL_ID.match(measurement.id)
        if match:
            found.setdefault(match["name"], {})[match["what"]] = measurement
    return found


def table(report: Report) -> tuple[list[str], list[list[str]]] | None:
    """Return header and rows: sequence, reference frame, flip probability, interval, and flip rate if measured."""
    found = cells(report)
    if not found:
        return None
    with_rates = any("flip_rate" in row for row in found.values())
    rows = []
    for name, row in found.items():
        flips = row.get("flip_probability")
        reference = flips.settings.get("reference", "-") if flips else "-"
        cell = [
            reading.nice(name),
            str(reference).removesuffix(" frame"),
            reading.number(flips),
            reading.interval(flips) or "-",
        ]
        rows.append([*cell, *([reading.number(row.get("flip_rate"))] if with_rates else [])])
    header = ["Sequence", "Reference", "Flip probability", "95 % interval", *(["Flip rate"] if with_rates else [])]
    return header, rows


def stability(report: Report) -> tuple[str, str] | None:
    """Render the bars, the table, and the means below them."""
    found = table(report)
    means = [m for m in report.measurements if m.id.startswith("stability.") and not is_cell(m)]
    lead = "How often the prediction changes while an image changes a little from frame to frame"
    if found is None:
        return (f"{lead}.", section_results.measurement_table(means)) if means else None
    header, rows = found
    numeric = tuple(range(TEXT_COLUMNS, len(header)))
    body = f'<div class="dense">{page.table(header, [list(map(text, row)) for row in rows], numeric)}</div>'
    measured = {name: row["flip_probability"] for name, row in cells(report).items() if "flip_probability" in row}
    if measured:
        names, shown = list(map(reading.nice, measured)), list(measured.values())
        columns = [[getattr(m, bound) for m in shown] for bound in ("value", "low", "high")]
        plot = plots.bars("stability-flips", names, *columns, x_label="flip probability")
        body = page.figures([page.figure("stability-flips", "Flip probability", plot), body])
    if means:
        body += section_results.measurement_table(means)
    kinds = intervals.kinds(m for row in cells(report).values() for m in row.values())
    said = f" Lines are 95 % intervals ({kinds})." if kinds else ""
    return f"{lead}; the lower, the steadier.{said} {origin(report)}".strip(), body


def origin(report: Report) -> str:
    """Return the origin of the sequences and the baselines that the flip rates are relative to."""
    found = [m for row in cells(report).values() for m in row.values()]
    baselines = sorted({str(m.settings["baseline"]) for m in found if "baseline" in m.settings})
    relative = f"Flip rates are relative to {' and '.join(baselines)}." if baselines else ""
    return f"{reading.origin(found)} {relative}".strip()
