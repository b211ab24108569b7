"""The console table of a report, and plain-text tables that fit a terminal."""

from __future__ import annotations

import textwrap

from tfrobust.report import catalog, formats, intervals, reading, sections
from tfrobust.report.attack_table import attack_rows
from tfrobust.report.blocks import Grid, plain, shown
from tfrobust.report.renderers.markdown import printable
from tfrobust.report.schema import Report
from tfrobust.structs import Measurement

_PASSES = "forward + backward passes"
_NARROWEST = 10  # characters of a wrapped heading
# A terminal may lack these symbols of the page.
_SYMBOLS = {ord("\u221e"): "inf", ord("\u03b5"): "eps", ord("\u03c3"): "sigma"}


def console_table(report: Report, *, short: bool = False) -> str:
    """Format the numbers in their usual order, the grids of the sections, and the doctor's verdict.

    Args:
        report: any.
        short: True for only the numbers that models are compared by, and the verdict.

    Returns:
        Aligned lines without a trailing line break; relative drops, and the mean passes per image if they were counted,
        are on the line of their accuracies. Below the numbers, a line for each that was requested and not possible,
        with its reason.
    """
    blocks = [] if short else [block for section in sections.build(report) for block in section.content]
    grids = [block for block in blocks if isinstance(block, Grid) and block.measurements]
    apart = shown(grids)
    listed = reading.main_measurements(report) if short else reading.in_order(report)
    listed = [m for m in listed if m.id not in apart]
    lines = [f"{reading.title(report)}, evaluated on {report.data['name']}", *_numbers(report, listed)]
    lines += reading.not_measured_lines(report)
    for grid in grids:
        rows = [grid.header, *([plain(cell) for cell in row] for row in grid.rows)]
        lines += ["", f"{grid.title}. {grid.note}".strip(), *align(rows, tuple(range(grid.texts, len(grid.header))))]
    if report.doctor:
        counts = reading.doctor_counts(report)
        lines.append("doctor: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
        for finding in report.doctor:
            if finding.verdict != "pass":
                lines.append(f"  {finding.verdict}: {finding.check}: {finding.evidence}")
    return "\n".join(map(terminal, lines))


def _numbers(report: Report, listed: list[Measurement]) -> list[str]:
    """Return the lines of the list of measurements, and one on the kinds of their intervals."""
    drops = {m.id: report.get(_drop_of(m)) for m in listed if _drop_of(m)}
    listed = [m for m in listed if m not in drops.values()]
    passes = {row.accuracy.id: row.passes for row in attack_rows(listed, members=True) if row.passes}
    optional = {"drop": {name: formats.number(drop) for name, drop in drops.items() if drop}, _PASSES: passes}
    optional = {heading: cells for heading, cells in optional.items() if cells}
    rows = [["", "result", "95 % interval", *optional, "n"]]
    for m in listed:
        cells = [cells.get(m.id, "") for cells in optional.values()]
        rows.append([*reading.named_number(m), formats.interval(m), *cells, "" if m.n is None else str(m.n)])
    kinds = intervals.of_each(listed)
    return [*align(rows, tuple(range(1, len(rows[0])))), *([f"95 % intervals {kinds}"] if kinds else [])]


def _drop_of(measurement: Measurement) -> str:
    """Return the id of an accuracy's relative drop; "" for any other measurement."""
    entry = catalog.read(measurement)
    return entry.sibling("drop") if entry.measure == "accuracy" else ""


def terminal(text: str) -> str:
    """Write the symbols of the page in letters, and replace characters that a terminal interprets by spaces."""
    return printable(text.translate(_SYMBOLS))


def align(rows: list[list[str]], right_columns: tuple[int, ...] = ()) -> list[str]:
    """Align rows of text in columns, two spaces apart; the columns in `right_columns` are right-aligned."""
    rows = [list(map(terminal, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            c.rjust(w) if i in right_columns else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _headings_wrapped(rows: list[list[str]]) -> list[list[str]]:
    """Break the header into several rows, no wider than the cells below it or than its longest word."""
    header, *body = rows
    stacks = []
    for column, heading in enumerate(header):
        heading = heading.replace(" = ", "\xa0=\xa0")  # no break in "eps = 0.2"
        room = max(_NARROWEST, *(len(row[column]) for row in body), *map(len, heading.split(" ")))
        lines = textwrap.wrap(heading, room, break_on_hyphens=False) or [""]
        stacks.append([line.replace("\xa0", " ") for line in lines])
    height = max(map(len, stacks))
    return [list(row) for row in zip(*([""] * (height - len(stack)) + stack for stack in stacks), strict=True)] + body


def folded(rows: list[list[str]], right_columns: tuple[int, ...], width: int | None) -> list[str]:
    """Align rows as `align` does; split tables wider than the terminal into stacked blocks of columns.

    Args:
        rows: rows with the same number of cells, the header first.
        right_columns: columns aligned to the right.
        width: characters per line, for which the headings are wrapped; None for lines of any length.

    Returns:
        Lines. Each block repeats the first column and has at least one more.
    """
    rows = [list(map(terminal, row)) for row in rows]
    rows = rows if width is None else _headings_wrapped(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    blocks: list[list[int]] = [[]]
    for column in range(1, len(widths)):
        taken = widths[0] + sum(2 + widths[other] for other in [*blocks[-1], column])
        if width is not None and blocks[-1] and taken > width:
            blocks.append([])
        blocks[-1].append(column)
    lines: list[str] = []
    for block in blocks:
        chosen = [0, *block]
        cells = [[row[column] for column in chosen] for row in rows]
        cells = cells[next(number for number, row in enumerate(cells) if any(row)) :]  # headings of other blocks
        lines += [
            *([""] if lines else []),
            *align(cells, tuple(i for i, source in enumerate(chosen) if source in right_columns)),
        ]
    return lines
