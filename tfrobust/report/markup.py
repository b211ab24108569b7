"""Markdown building blocks. Everything a user wrote goes through `safe`; only these functions write markup."""

import re


def safe(value) -> str:
    """One line of Markdown text that means what it says: no markup, no HTML, no table cell break."""
    one_line = " ".join(printable(str(value)).split())
    escaped = re.sub(r"([\\`*\[\]|~])", r"\\\1", one_line)
    # Between letters an underscore is one; elsewhere it would slant the text.
    escaped = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", escaped)
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def paragraph(value) -> str:
    """`safe` text that may stand at the beginning of a line."""
    text = safe(value)
    return re.sub(r"^(\d+)([.)])", r"\1\\\2", re.sub(r"^([#+=-])", r"\\\1", text))


def listing(items) -> str:
    """A list of plain-text sentences."""
    return "\n".join(f"- {paragraph(item)}" for item in items)


def table(rows: list[list], right: tuple[int, ...] = ()) -> str:
    """Rows of plain text, the first as header, aligned in the source too; columns in `right` end together."""
    cells = [[safe(cell) for cell in row] for row in rows]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(cells[0]))]
    rule = ["-" * (w - 1) + ":" if i in right else "-" * w for i, w in enumerate(widths)]
    lines = []
    for row in [cells[0], rule, *cells[1:]]:
        written = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append(f"| {' | '.join(written)} |")
    return "\n".join(lines)


def code(text: str) -> str:
    """Fenced code, the fence longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def printable(text: str) -> str:
    """Without control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)
