"""The Markdown model card of a report. All user-written text goes through `safe`; only these functions write markup."""

import re

from tfrobust.report import formats, intervals, reading, sections
from tfrobust.report.blocks import Block, Code, Figure, Grid, Listing, Numbers, Paragraph, Table, Words, plain
from tfrobust.report.opening import opening
from tfrobust.report.schema import Report

# Of a plot with more points than this, the card shows the first and the last numbers.
_MOST_ROWS = 20


def render(report: Report) -> str:
    """Render a model card in Markdown, with the sections of the page; every text from the report is escaped."""
    parts = [f"# {safe(reading.title(report))}: robustness report", *opened(report)]
    parts += [paragraph(intervals.statement(report))] if intervals.statement(report) else []
    headlines = reading.main_measurements(report)
    parts += write(Numbers(headlines)) if headlines else []
    parts += unmeasured(report)
    for section in sections.build(report):
        parts += [f"## {section.heading}", *([f"**{safe(section.sentence)}**"] if section.sentence else [])]
        parts += [paragraph(section.introduction)] if section.introduction else []
        parts += [part for block in section.content for part in write(block)]
    parts.append(paragraph(reading.footer(report)))
    return "\n\n".join(parts) + "\n"


def opened(report: Report) -> list[str]:
    """Return the opening of a report as paragraphs of Markdown: the answer, its details, and the checks."""
    first = opening(report)
    return [
        f"**{safe(first.answer)}**",
        *map(paragraph, filter(None, (" ".join(first.details), first.untried, first.checks))),
    ]


def unmeasured(report: Report) -> list[str]:
    """Return a list of what was requested and not possible, with the reasons, as at most one block of Markdown."""
    lines = reading.not_measured_lines(report)
    return [listing([f"{line[:1].upper()}{line[1:]}." for line in lines])] if lines else []


def write(block: Block) -> list[str]:
    """Return a block as paragraphs of Markdown."""
    match block:
        case Paragraph():
            return [paragraph(block.text)]
        case Listing():
            return [listing(block.items)]
        case Code():
            return [code(printable(block.text))]
        case Numbers():
            return [_numbers(block)]
        case Table():
            note = [paragraph(block.note)] if isinstance(block, Grid) and block.note else []
            return [*_heading(block.title), *note, _table(block)]
        case Figure() if block.numbers is None:
            return [paragraph(f"{block.caption}: drawn in robustness_report.html.")]
        case Figure():
            return [*_heading(block.caption), _table(_shortened(block.numbers))]
        case Words():
            lines = [f"{meaning}: {', '.join(map(_word, words))}" for meaning, words in block.lines.items()]
            return [*_heading(block.caption), listing(lines)]


def _heading(title: str) -> list[str]:
    return [f"### {safe(title)}"] if title else []


def _table(block: Table) -> str:
    rows = [block.header, *([plain(cell) for cell in row] for row in block.rows)]
    return table(rows, tuple(range(block.texts, len(block.header))))


def _shortened(numbers: Table) -> Table:
    """Return the first and the last known value of each column if there are many rows."""
    if len(numbers.rows) <= _MOST_ROWS:
        return numbers
    rows = []
    for name, *values in zip(numbers.header, *numbers.rows, strict=True):
        filled = [value for value in values if value is not None]
        rows.append([name, *(filled[:1] + filled[-1:] or [None, None])])
    return Table(["", "first", "last"], rows)


def _numbers(block: Numbers) -> str:
    rows = [["Measurement", "Value", "95 % interval", "n"]]
    for m in block.measurements:
        rows.append([*reading.named_number(m), formats.interval(m) or "none", "-" if m.n is None else m.n])
    return table(rows, right_columns=(1, 2, 3))


def _word(pair: tuple[str, float | None]) -> str:
    word, value = pair
    return f"{word} ({'unknown' if value is None else f'{value:.3g}'})"


def safe(value) -> str:
    """Escape text to one line of Markdown without markup, HTML or table cell breaks."""
    one_line = " ".join(printable(str(value)).split())
    escaped = re.sub(r"([\\`*\[\]|~])", r"\\\1", one_line)
    # An underscore between letters or digits is literal; elsewhere it would start emphasis.
    escaped = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", escaped)
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def paragraph(value) -> str:
    """Escape text as `safe` does, and also what would be markup at the beginning of a line."""
    text = safe(value)
    return re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", re.sub(r"^([#+=-])", r"\\\1", text))


def listing(items) -> str:
    """Format plain-text sentences as a list."""
    return "\n".join(f"- {paragraph(item)}" for item in items)


def table(rows: list[list], right_columns: tuple[int, ...] = ()) -> str:
    """Format rows of plain text as a table, aligned in the source too."""
    cells = [[safe(cell) for cell in row] for row in rows]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(cells[0]))]
    rule = ["-" * (w - 1) + ":" if i in right_columns else "-" * w for i, w in enumerate(widths)]
    lines = []
    for row in [cells[0], rule, *cells[1:]]:
        written = [
            c.rjust(w) if i in right_columns else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"| {' | '.join(written)} |")
    return "\n".join(lines)


def code(text: str) -> str:
    """Return a fenced code block whose fence is longer than any run of backticks in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def printable(text: str) -> str:
    """Replace control characters, which a terminal would interpret, by spaces."""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)
