"""The blocks that sections are made of. HTML, Markdown and the console write these kinds and nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tfrobust.report import formats
from tfrobust.structs import Measurement

if TYPE_CHECKING:
    from tfrobust.report.blocks.plots import Plot


@dataclasses.dataclass(frozen=True)
class Noted:
    """A cell of a table: text with a note in small print."""

    text: str
    note: str


@dataclasses.dataclass(frozen=True)
class Heat:
    """A cell of a table: a fraction, shaded in proportion to its value."""

    value: float | None


@dataclasses.dataclass(frozen=True)
class Badge:
    """A cell of a table: the verdict of a check."""

    verdict: str


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """Running text."""

    text: str


@dataclasses.dataclass(frozen=True)
class Listing:
    """Sentences as a list."""

    items: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Code:
    """Preformatted text."""

    title: str
    text: str


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Measurements with value, interval and count."""

    measurements: list[Measurement]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of text and numbers.

    Attributes:
        header: column names; all are "" for pairs of name and value.
        rows: cells: text, numbers, None, measurements (shown with their intervals), `Noted`, `Heat` or `Badge`.
        texts: number of leading columns that hold text; the others hold numbers.
        title: heading of its own; may be "".
        bars: (column, role of its color) of the fractions that are also drawn, as bars in a column of their own before
            the first of them.
        collapsed: True to show only the title until a reader opens the table, where that is possible.
    """

    header: list[str]
    rows: list[list]
    texts: int = 1
    title: str = ""
    bars: tuple[tuple[int, str], ...] = ()
    collapsed: bool = False


@dataclasses.dataclass(frozen=True)
class Grid(Table):
    """A compact table of similar numbers. The console shows it in place of its measurements.

    Attributes:
        measurements: those that its numbers are computed from.
        note: text below the title; may be "".
    """

    measurements: tuple[Measurement, ...] = ()
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Figure:
    """A plot.

    Attributes:
        identity: unique in the page.
        caption: title.
        draw: function from `identity` to the plot; called only by renderers that show plots.
        numbers: the plotted numbers; None if they are too many or in another block.
    """

    identity: str
    caption: str
    draw: Callable[[str], Plot]
    numbers: Table | None = None


@dataclasses.dataclass(frozen=True)
class Words:
    """A sentence, shown once per kind of value, with each word shaded by its share of the largest value.

    Attributes:
        caption: title.
        lines: kind of value -> (word, value) in order; None for an unknown value.
    """

    caption: str
    lines: dict[str, list[tuple[str, float | None]]]


Block = Paragraph | Listing | Code | Numbers | Table | Figure | Words


def measurements_of(blocks: Iterable[Block]) -> list[Measurement]:
    """Return the measurements that the blocks show, and those that curves and bins are made of (with the id "")."""
    measurements = []
    for block in blocks:
        measurements += block.measurements if isinstance(block, (Numbers, Grid)) else []
        table = block.numbers if isinstance(block, Figure) else block
        if isinstance(table, Table):
            measurements += [cell for row in table.rows for cell in row if isinstance(cell, Measurement)]
    return measurements


def shown(blocks: Iterable[Block]) -> set[str]:
    """Return the ids of the measurements that the blocks show."""
    return {m.id for m in measurements_of(blocks)}


def plain(cell) -> str:
    """Return a cell of a table as text without markup: a measurement as "63.1 % (57.9 to 68.0)"."""
    match cell:
        case Measurement():
            margin = formats.interval(cell)
            return formats.number(cell) + (f" ({margin})" if margin else "")
        case Noted():
            return f"{cell.text} ({cell.note})" if cell.note else cell.text
        case Heat():
            return formats.per_cent(cell.value)
        case Badge():
            return cell.verdict
    return formats.words(cell)


def pairs(rows: Iterable[tuple[str, str]], title: str = "", collapsed: bool = False) -> Table:
    """Return a table of names and values without column names."""
    return Table(["", ""], [list(row) for row in rows], texts=2, title=title, collapsed=collapsed)


def columns_table(columns: dict, names: Iterable[str]) -> Table:
    """Return some columns of a series as a table: accuracies in per cent, other numbers with 4 digits."""
    names = list(names)
    cells = [[_value(name, value) for value in columns[name]] for name in names]
    return Table([formats.nice(name) for name in names], [list(row) for row in zip(*cells, strict=True)], texts=0)


def _value(name: str, value):
    if not isinstance(value, float):
        return value
    return formats.quantity(value, "fraction") if "accuracy" in name else float(f"{value:.4g}")
