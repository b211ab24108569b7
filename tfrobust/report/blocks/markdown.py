"""Markdown building blocks. All user-written text goes through `safe`; only these functions write markup."""

import re


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
    return re.sub(r"^(\d+)([.)])", r"\1\\\2", re.sub(r"^([#+=-])", r"\\\1", text))


def listing(items) -> str:
    """Format plain-text sentences as a list."""
    return "\n".join(f"- {paragraph(item)}" for item in items)


def table(rows: list[list], right: tuple[int, ...] = ()) -> str:
    """Format rows of plain text as a table, aligned in the source too.

    Args:
        rows: cells, the first row is the header.
        right: columns aligned to the right.
    """
    cells = [[safe(cell) for cell in row] for row in rows]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(cells[0]))]
    rule = ["-" * (w - 1) + ":" if i in right else "-" * w for i, w in enumerate(widths)]
    lines = []
    for row in [cells[0], rule, *cells[1:]]:
        written = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
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
