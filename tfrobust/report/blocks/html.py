"""HTML building blocks. All user-written text goes through `text`; only these functions write markup."""

import html
import re

from tfrobust.report.blocks.plots import Key, Plot
from tfrobust.report.blocks.style import STYLE

# The page loads no external resources and runs no scripts; this policy makes the browser enforce it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SHAPES = {
    0: '<circle cx="13" cy="5" r="3.2" {paint}/>',
    1: '<path d="M10 2h6v6h-6z" {paint}/>',
    2: '<path d="M13 1l4 7.5h-8z" {paint}/>',
    3: '<path d="M13 1l4 4-4 4-4-4z" {paint}/>',
    4: '<path d="M13 9l4-7.5h-8z" {paint}/>',
}
_DASH_ARRAYS = ("", "6 2", "1.6 2", "6 2 1.6 2")


def text(value) -> str:
    """Escape any value as HTML text or attribute value, without control characters."""
    return html.escape(_CONTROL.sub("", str(value)), quote=True)


def page(title: str, body: str) -> str:
    """Return a complete HTML document around a body."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{text(title)}</title><style>{STYLE}</style></head>\n<body><main>\n{body}\n</main></body></html>\n"
    )


def section(identity: str, heading: str, lead: str, body: str) -> str:
    """Render a card with a heading and a lead, one plain-text sentence on what it shows."""
    opening = f'<p class="lead">{text(lead)}</p>' if lead else ""
    return f'<section id="{identity}"><h2>{text(heading)}</h2>{opening}{body}</section>\n'


def table(header: list[str], rows: list[list[str]], numeric: tuple[int, ...] = (), stack: bool = False) -> str:
    """Render a table of HTML cells under plain-text headers.

    Args:
        header: column names.
        rows: cells, already HTML.
        numeric: columns aligned to the right with tabular digits.
        stack: True to show each row as a block on a phone, with every cell named by its header.
    """

    def cell(tag: str, column: int, content: str) -> str:
        kind = ' class="number"' if column in numeric else (' class="name"' if column == 0 else "")
        named = f' data-head="{text(header[column])}"' if tag == "td" and stack and column and header[column] else ""
        return f"<{tag}{kind}{named}>{content}</{tag}>"

    head = "".join(cell("th", column, text(name)) for column, name in enumerate(header))
    body = "".join(
        "<tr>" + "".join(cell("td", column, content) for column, content in enumerate(row)) + "</tr>" for row in rows
    )
    kind = ' class="stack"' if stack else ""
    return f'<div class="scroll"><table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def pairs_table(rows: list[tuple[str, str]]) -> str:
    """Render a table of (plain-text name, plain-text value); hashes may break at any character."""
    cells = []
    for name, value in rows:
        kind = ' class="hash"' if re.fullmatch(r"[0-9a-f]{32,}", value) else ""
        cells.append(f'<tr><td class="name">{text(name)}</td><td{kind}>{text(value)}</td></tr>')
    return f'<div class="scroll"><table><tbody>{"".join(cells)}</tbody></table></div>'


def bar(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """Render a fraction as a filled bar, with its interval as a darker band."""
    if value is None:
        return ""
    share = 100 * min(1.0, max(0.0, value))
    band = ""
    if low is not None and high is not None:
        left, right = (100 * min(1.0, max(0.0, bound)) for bound in (low, high))
        band = f'<s style="left:{left:.1f}%;width:{right - left:.1f}%"></s>'
    return f'<span class="bar" aria-hidden="true"><u style="width:{share:.1f}%"></u>{band}</span>'


def figure(identity: str, caption: str, plot: Plot, columns: dict | None = None) -> str:
    """Render a plot with its caption, its legend and, if they are few, its numbers in a collapsible table."""
    prefix = re.sub(r"[^A-Za-z0-9]+", "-", identity).strip("-")
    legend = ""
    if plot.legend:
        legend = f'<ul class="legend">{"".join(_legend_entry(key) for key in plot.legend)}</ul>'
    numbers = _numbers(columns) if columns else ""
    heading = f'<figcaption id="{prefix}-caption">{text(caption)}</figcaption>'
    return f"<figure>{heading}{plot.svg}{legend}{numbers}</figure>"


def figures(items: list[str]) -> str:
    """Arrange figures side by side if there is room."""
    return f'<div class="figures">{"".join(items)}</div>'


def details(heading: str, body: str, on_paper: bool = False) -> str:
    """Render a collapsible block; on paper it is left out, or printed in full if `on_paper`."""
    kind = ' class="whole"' if on_paper else ""
    return f"<details{kind}><summary>{text(heading)}</summary>{body}</details>"


def listing(items) -> str:
    """Render plain-text sentences as a list."""
    return "<ul>" + "".join(f"<li>{text(item)}</li>" for item in items) + "</ul>"


def _legend_entry(key: Key) -> str:
    colour = f"var(--{key.role})"
    line = ""
    if key.dash >= 0:
        dashes = _DASH_ARRAYS[key.dash]
        dashes = f' stroke-dasharray="{dashes}"' if dashes else ""
        line = f'<path d="M0 5h26" style="stroke:{colour};stroke-width:2;fill:none"{dashes}/>'
    shape = _SHAPES.get(key.marker, "").format(paint=f'style="fill:{colour}"')
    drawing = f'<svg width="26" height="10" viewBox="0 0 26 10" aria-hidden="true">{line}{shape}</svg>'
    return f"<li>{drawing}{text(key.text)}</li>"


def _numbers(columns: dict) -> str:
    count = max((len(values) for values in columns.values()), default=0)
    if not 0 < count <= 120 or len(columns) > 12:
        return ""
    names = list(columns)
    rows = [[text(_short(columns[name][row])) for name in names] for row in range(count)]
    return details("The numbers behind this plot", table(names, rows, numeric=tuple(range(len(names)))))


def _short(value) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
