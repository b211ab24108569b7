"""Plain-text tables that fit a terminal."""

from __future__ import annotations

from tfrobust.report.renderers.console import align


def folded(rows: list[list[str]], right: tuple[int, ...], width: int | None) -> list[str]:
    """Align rows as `render.align` does; split tables wider than the terminal into stacked blocks of columns.

    Args:
        rows: rows with the same number of cells, the header first.
        right: columns aligned to the right.
        width: characters per line; None for lines of any length.

    Returns:
        Lines. Each block repeats the first column and has at least one more.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    blocks: list[list[int]] = [[]]
    for column in range(1, len(widths)):
        taken = widths[0] + sum(2 + widths[one] for one in [*blocks[-1], column])
        if width is not None and blocks[-1] and taken > width:
            blocks.append([])
        blocks[-1].append(column)
    lines: list[str] = []
    for block in blocks:
        chosen = [0, *block]
        cells = [[row[column] for column in chosen] for row in rows]
        lines += [*([""] if lines else []), *align(cells, tuple(i for i, one in enumerate(chosen) if one in right))]
    return lines
