"""Views of a comparison of reports: aligned text, Markdown, JSON, and one HTML page with overlaid curves."""

from __future__ import annotations

import json
import re
from functools import partial

from tfrobust.report import intervals, protocol, reading
from tfrobust.report.blocks import Figure, plots
from tfrobust.report.comparison.gap import gap_table
from tfrobust.report.comparison.reports import Comparison
from tfrobust.report.difference import INDEPENDENT, PAIRED, Difference
from tfrobust.report.renderers import html as page
from tfrobust.report.renderers import markdown as markup
from tfrobust.report.renderers.console import folded, terminal
from tfrobust.report.schema import Report, plain
from tfrobust.report.sections.base import accuracy_curves
from tfrobust.structs import Measurement

SCHEMA = "tfrobust/comparison/1"
_KINDS = {
    PAIRED: "p: paired over images",
    INDEPENDENT: "i: as for independent samples, wider than necessary if the images are the same",
}
_LEAD = "Below each number is its 95 % interval. If two intervals overlap widely, the order may be chance."
_SIDE_BY_SIDE = 6
Ends = tuple[str, str] | None


def table(comparison: Comparison, ends: Ends = None, width: int | None = None) -> str:
    """Format the console tables: the numbers, the differences from the reference, the gap closed.

    Args:
        comparison: the reports to show.
        ends: names of the two reports that define the gap which the others close; None for none.
        width: width of the terminal in characters, at which wider tables are folded; None for lines of any length.

    Returns:
        Aligned ASCII lines, "-" where a report lacks a number. Each heading with notes is followed by their numbers in
        brackets, and the notes come last.
    """
    lines = []
    for heading, rows, remarks in _tables(comparison):
        right = tuple(range(1, len(rows[0])))
        lines += [*(["", heading] if lines else []), *folded(rows, right, width), *remarks]
    if ends is not None:
        gap = gap_table(comparison.named, *ends)
        lines += ["", *folded([gap.header, *gap.rows], tuple(range(1, len(gap.header))), width)]
    return "\n".join(map(terminal, lines))


def markdown(comparison: Comparison, ends: Ends = None) -> str:
    """Format the same tables in Markdown, with every text from a report escaped."""
    parts = []
    for heading, rows, remarks in _tables(comparison):
        parts += [*([f"## {markup.safe(heading)}"] if parts else []), markup.table(rows, tuple(range(1, len(rows[0]))))]
        parts += [markup.listing(remarks)] if remarks else []
    if ends is not None:
        parts += ["## Gap closed", *markup.write(gap_table(comparison.named, *ends))]
    return "\n\n".join(parts)


def as_json(comparison: Comparison) -> str:
    """Return the comparison as JSON: the columns with their notes, and one row of numbers per report."""
    columns = [{"id": identity, "label": label} for identity, label in comparison.columns.items()]
    document = {
        "schema": SCHEMA,
        "columns": columns,
        "notes": [{"text": text, "columns": ids} for text, ids in comparison.notes.items()],
        "reference": comparison.reference,
        "rows": [_json_row(comparison, *row) for row in zip(comparison.named, comparison.files, strict=True)],
    }
    return json.dumps(plain(document), indent=1, ensure_ascii=False)


def html(comparison: Comparison, ends: Ends = None) -> str:
    """Render one self-contained page: the tables, the notes on comparability, and the curves overlaid.

    Args:
        comparison: the reports to show.
        ends: names of the two reports that define the gap which the others close; None for none.
    """
    body = ['<p class="eyebrow">tfrobust</p><h1>Robustness compared</h1>']
    for place, note in enumerate(comparison.notes, 1):
        body.append(f'<p class="note">[{place}] {page.text(note)}</p>')
    for number, (heading, rows, remarks) in enumerate(_tables(comparison)):
        remarks = "".join(f'<p class="key">{page.text(one)}</p>' for one in remarks if not one.startswith("["))
        body.append(
            page.section(("table", "differences")[number], heading, "" if number else _LEAD, _markup(rows) + remarks)
        )
    if ends is not None:
        lead = f"The share of the difference in relative drop between {ends[0]} and {ends[1]} that the others close."
        body.append(page.section("gap", "Gap closed", lead, page.write([gap_table(comparison.named, *ends)])))
    curves = _curves(comparison)
    if curves:
        lead = "One curve per model. Bands are 95 % intervals."
        body.append(page.section("curves", "Accuracy against epsilon", lead, curves))
    rows = [
        [page.text(name), page.text(file)] for (name, _), file in zip(comparison.named, comparison.files, strict=True)
    ]
    body.append(page.section("files", "Reports", "", page.table(["Model", "File"], rows)))
    return page.page("Robustness compared", "\n".join(body))


def _markup(rows: list[list[str]]) -> str:
    """Render header and rows as an HTML table, transposed for few models: that is narrower and fits on paper."""
    rows = [["Model", *rows[0][1:]], *rows[1:]]
    if len(rows) <= _SIDE_BY_SIDE + 1:
        rows = [list(column) for column in zip(*rows, strict=True)]
        rows[0][0] = "Measurement"
    # "63.1 % [57.9 to 68.0]": the interval goes below its number.
    cells = [
        [page.text(name), *(re.sub(r" \[(.*)\](.*)$", r"<small>\1\2</small>", page.text(cell)) for cell in found)]
        for name, *found in rows[1:]
    ]
    return page.table(rows[0], cells, numeric=tuple(range(1, len(rows[0]))), stack=True)


def _tables(comparison: Comparison) -> list[tuple[str, list[list[str]], list[str]]]:
    """Return (heading, header and rows, remarks below) of the numbers and, with a reference, of the differences."""
    headings = [label + comparison.marks(identity) for identity, label in comparison.columns.items()]
    rows = [["model", *headings]]
    shown = []
    for name, report in comparison.named:
        numbers = [report.get(identity) for identity in comparison.columns]
        rows.append([name, *map(_cell, numbers)])
        shown += filter(None, numbers)
    kinds = intervals.of_each(shown)
    remarks = [f"95 % intervals {kinds}"] if kinds else []
    remarks += [f"[{place}] {note}" for place, note in enumerate(comparison.notes, 1)]
    found = [("Measurements", rows, remarks)]
    if comparison.reference is not None:
        found.append(_differences(comparison, headings))
    return found


def _differences(comparison: Comparison, headings: list[str]) -> tuple[str, list[list[str]], list[str]]:
    rows, kinds = [["model", *headings]], set()
    for name, report in comparison.named:
        if name == comparison.reference:
            continue
        found = comparison.differences(report)
        rows.append([name, *(_signed(one, report.get(identity)) for identity, one in found.items())])
        kinds |= {one.kind for one in found.values() if one is not None}
    remarks = [f"95 % intervals, {text}" for kind, text in _KINDS.items() if kind in kinds]
    heading = f"Differences from {comparison.reference}, accuracies in points"
    return heading, rows, [*remarks, "*: the interval does not contain 0"] if remarks else []


def _cell(measurement: Measurement | None) -> str:
    margin = reading.interval(measurement)
    return f"{reading.number(measurement)} [{margin}]" if margin else reading.number(measurement)


def _signed(one: Difference | None, measurement: Measurement | None) -> str:
    """Format a difference as "+3.1 [+1.2 to +5.0] p*": fractions in points, other numbers in their own unit."""
    if one is None:
        return "-"
    numbers = [one.value, one.low, one.high] if one.kind else [one.value]
    fraction = measurement.unit.startswith("fraction")
    value, *ends = reading.per_cents(*numbers, sign="+") if fraction else [format(number, "+.3g") for number in numbers]
    if not ends:
        return value
    low, high = ends
    return f"{value} [{low} to {high}] {one.kind[0]}{'*' if one.low > 0 or one.high < 0 else ''}"


def _json_row(comparison: Comparison, named: tuple[str, Report], file) -> dict:
    name, report = named
    found = comparison.differences(report) if comparison.reference not in (None, name) else {}
    numbers = {}
    for identity in comparison.columns:
        m = report.get(identity)
        if m is None:
            continue
        numbers[identity] = {key: getattr(m, key) for key in ("value", "low", "high", "unit", "n", "settings")}
        if found.get(identity) is not None:
            numbers[identity]["difference"] = found[identity]._asdict()
    data = {key: report.data.get(key) for key in ("name", "fingerprint")}
    return {"name": name, "file": str(file), "model": report.model, "data": data, "measurements": numbers}


def _curves(comparison: Comparison) -> str:
    """Render one figure per attack, with one curve per report and the notes on it; "" without curves."""
    lines: dict[str, list[plots.Line]] = {}
    for place, (name, report) in enumerate(comparison.named):
        for key, columns in accuracy_curves(report):
            ends = columns.get("low"), columns.get("high")
            lines.setdefault(key, []).append(plots.Line(name, columns["epsilon"], columns["accuracy"], *ends, place))
    items = []
    axes = {"x_label": "epsilon (pixels in [0, 1])", "y_label": "accuracy", "percent": True, "height": 3.4}
    for key, found in lines.items():
        caption = f"Accuracy under {reading.attack_caption(key)}"
        figure = Figure(f"compare-{key}", caption, partial(plots.curves, lines=found, **axes))
        notes = protocol.curve_notes(comparison.named, f"attack.{key}.curve")
        said = "".join(f'<p class="note">{page.text(note)}</p>' for note in notes)
        items.append(f"<div>{page.figure(figure)}{said}</div>")
    return f'<div class="figures">{"".join(items)}</div>' if items else ""
