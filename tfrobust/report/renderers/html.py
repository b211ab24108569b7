"""The HTML page of a report. All user-written text goes through `text`; only these functions write markup."""

import html
import itertools
import re

from tfrobust.report import intervals, reading, sections
from tfrobust.report.blocks import (
    Badge,
    Block,
    Code,
    Figure,
    Grid,
    Heat,
    Listing,
    Noted,
    Numbers,
    Paragraph,
    Table,
    Words,
)
from tfrobust.report.blocks import plain as plain_cell
from tfrobust.report.blocks.plots import Key, prefix
from tfrobust.report.renderers.style import STYLE
from tfrobust.report.schema import Report
from tfrobust.report.threat import summary_sentence
from tfrobust.structs import Measurement

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
# Per cent of the color for a value of 1, chosen so that text stays readable in light and dark mode.
_DEEPEST = 60
_KEY_STEPS = 5
# Larger tables are not repeated below their plots.
_MOST_ROWS, _MOST_COLUMNS = 120, 12
_WORST = {"fail": "at least one failed", "warn": "at least one warning", "pass": "nothing found"}


def render(report: Report) -> str:
    """Render one self-contained page: inline style and SVG, no scripts, no external resources."""
    found = sections.build(report)
    version = report.model.get("version")
    version = f" <small>version {text(version)}</small>" if version is not None else ""
    body = [
        f'<p class="eyebrow">Robustness report &middot; {text(report.data["name"])}</p>',
        f"<h1>{text(report.model['name'])}{version}</h1>",
        f'<p class="summary">{text(summary_sentence(report))}</p>',
        _tiles(report),
        _glance(found),
        *(section(one.anchor, one.heading, one.lead, write(one.content)) for one in found),
        f"<footer>{text(reading.footer(report))}</footer>",
    ]
    return page(f"{reading.title(report)}: robustness report", "\n".join(body))


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
    """Render a card with a heading and a lead, one plain-text paragraph on how to read it."""
    opening = f'<p class="lead">{text(lead)}</p>' if lead else ""
    return f'<section id="{identity}"><h2>{text(heading)}</h2>{opening}{body}</section>\n'


def write(blocks: list[Block]) -> str:
    """Render blocks; neighboring figures and grids stand side by side if there is room."""
    parts = []
    for _, run in itertools.groupby(blocks, key=lambda block: isinstance(block, (Figure, Grid)) or type(block)):
        run = list(run)
        body = "".join(map(_block, run))
        body = _WORDS_KEY + body if isinstance(run[0], Words) else body
        parts.append(f'<div class="figures">{body}</div>' if any(isinstance(one, Figure) for one in run) else body)
    return "".join(parts)


def _block(block: Block) -> str:
    match block:
        case Paragraph():
            return f"<p>{text(block.text)}</p>"
        case Listing():
            return "<ul>" + "".join(f"<li>{text(item)}</li>" for item in block.items) + "</ul>"
        case Code():
            return _details(block.title, f"<pre>{text(block.text)}</pre>", on_paper=True)
        case Numbers():
            return _numbers(block)
        case Grid():
            note = f'<p class="key">{text(block.note)}</p>' if block.note else ""
            return f'<div class="dense">{_titled(block, note + _table(block))}</div>'
        case Table():
            return _titled(block, _table(block))
        case Figure():
            return figure(block)
        case Words():
            return _words(block)


def _titled(block: Table, body: str) -> str:
    if block.collapsed:
        return _details(block.title, body, on_paper=True)
    return f"<h3>{text(block.title)}</h3>{body}" if block.title else body


def _table(block: Table) -> str:
    """Render a table; a column with bars becomes two, the bar and the number."""
    columns = [
        (place, bar) for place in range(len(block.header)) for bar in (True, False) if place in block.bars or not bar
    ]
    heads = ["" if bar else block.header[place] for place, bar in columns]
    rows = [[_bar_of(row[place]) if bar else _cell(row[place]) for place, bar in columns] for row in block.rows]
    numeric = tuple(i for i, (place, bar) in enumerate(columns) if place >= block.texts and not bar)
    body = table(heads, rows, numeric, stack=any(heads) and not isinstance(block, Grid))
    return f'<div class="bars">{body}</div>' if block.bars else body


def _cell(cell) -> str:
    match cell:
        case Measurement():
            return f"{text(reading.number(cell))}<small>{text(reading.interval(cell))}</small>"
        case Noted():
            return text(cell.text) + (f"<small>{text(cell.note)}</small>" if cell.note else "")
        case Heat() if cell.value is not None:
            return f'<span class="heat" style="background:{_shade(cell.value)}">{text(plain_cell(cell))}</span>'
        case Badge():
            return f'<span class="badge {text(cell.verdict)}">{text(cell.verdict)}</span>'
    return text(plain_cell(cell))


def table(header: list[str], rows: list[list[str]], numeric: tuple[int, ...] = (), stack: bool = False) -> str:
    """Render a table of HTML cells under plain-text headers; without a head if all of them are empty.

    Args:
        header: column names.
        rows: cells, already HTML; hashes may break at any character.
        numeric: columns aligned to the right with tabular digits.
        stack: True to show each row as a block on a phone, with every cell named by its header.
    """

    def cell(tag: str, column: int, content: str) -> str:
        kind = "number" if column in numeric else "name" if column == 0 else ""
        kind = "hash" if re.fullmatch(r"[0-9a-f]{32,}", content) else kind
        kind = f' class="{kind}"' if kind else ""
        named = f' data-head="{text(header[column])}"' if tag == "td" and stack and column and header[column] else ""
        return f"<{tag}{kind}{named}>{content}</{tag}>"

    head = "".join(cell("th", column, text(name)) for column, name in enumerate(header))
    head = f"<thead><tr>{head}</tr></thead>" if any(header) else ""
    body = "".join(
        "<tr>" + "".join(cell("td", column, content) for column, content in enumerate(row)) + "</tr>" for row in rows
    )
    kind = ' class="stack"' if stack else ""
    return f'<div class="scroll"><table{kind}>{head}<tbody>{body}</tbody></table></div>'


def _numbers(block: Numbers) -> str:
    rows = []
    for m in block.measurements:
        name, margin = reading.label(m), reading.interval(m)
        identity = "" if name == m.id else f"<small><code>{text(m.id)}</code></small>"
        margin = f"{text(margin)}<small>{text(intervals.kind(m))}</small>" if margin else "none"
        rows.append([text(name) + identity, text(reading.number(m)), margin, text("-" if m.n is None else m.n)])
    return table(["Measurement", "Value", "95 % interval", "n"], rows, numeric=(1, 2, 3), stack=True)


def _bar_of(m: Measurement | None) -> str:
    """Render a fraction as a filled bar, with its interval as a darker band."""
    if m is None or m.value is None:
        return ""
    share = 100 * min(1.0, max(0.0, m.value))
    band = ""
    if m.low is not None and m.high is not None:
        left, right = (100 * min(1.0, max(0.0, bound)) for bound in (m.low, m.high))
        band = f'<s style="left:{left:.1f}%;width:{right - left:.1f}%"></s>'
    return f'<span class="bar" aria-hidden="true"><u style="width:{share:.1f}%"></u>{band}</span>'


def _shade(share: float) -> str:
    """Return a color whose intensity is proportional to the share."""
    return f"color-mix(in srgb,var(--series-0) {_DEEPEST * min(1.0, max(0.0, share)):.0f}%,transparent)"


def figure(block: Figure) -> str:
    """Render a plot with its caption, its legend and, if they are few, its numbers in a collapsible table."""
    plot, numbers = block.draw(block.identity), block.numbers
    legend = ""
    if plot.legend:
        legend = f'<ul class="legend">{"".join(map(_legend_entry, plot.legend))}</ul>'
    if numbers is not None and len(numbers.rows) <= _MOST_ROWS and len(numbers.header) <= _MOST_COLUMNS:
        legend += _details("The numbers of this plot", _table(numbers))
    heading = f'<figcaption id="{prefix(block.identity)}-caption">{text(block.caption)}</figcaption>'
    return f"<figure>{heading}{plot.svg}{legend}</figure>"


def _legend_entry(key: Key) -> str:
    color = f"var(--{key.role})"
    line = ""
    if key.dash >= 0:
        dashes = _DASH_ARRAYS[key.dash]
        dashes = f' stroke-dasharray="{dashes}"' if dashes else ""
        line = f'<path d="M0 5h26" style="stroke:{color};stroke-width:2;fill:none"{dashes}/>'
    shape = _SHAPES.get(key.marker, "").format(paint=f'style="fill:{color}"')
    drawing = f'<svg width="26" height="10" viewBox="0 0 26 10" aria-hidden="true">{line}{shape}</svg>'
    return f"<li>{drawing}{text(key.text)}</li>"


def _details(heading: str, body: str, on_paper: bool = False) -> str:
    """Render a collapsible block; on paper it is left out, or printed in full if `on_paper`."""
    kind = ' class="whole"' if on_paper else ""
    return f"<details{kind}><summary>{text(heading)}</summary>{body}</details>"


def _words(block: Words) -> str:
    """Render the lines of a sentence, and a collapsible table of their numbers."""
    lines = []
    for meaning, words in block.lines.items():
        largest = max((value for _, value in words if value is not None), default=0)
        shaded = []
        for word, value in words:
            color = _shade(value / largest if value and largest else 0.0)
            title = text(f"{word}: {meaning} {_value(value)}")
            shaded.append(f'<span class="heat" style="background:{color}" title="{title}">{text(word)}</span>')
        lines.append(f'<p class="tokens"><b>{text(meaning)}</b>{" ".join(shaded)}</p>')
    rows = [
        [text(words[0][0]), *(text(_value(value)) for _, value in words)]
        for words in zip(*block.lines.values(), strict=True)
    ]
    numbers = _details(
        "The numbers", table(["Word", *block.lines], rows, numeric=tuple(range(1, len(block.lines) + 1)))
    )
    caption = f"<figcaption>{text(block.caption)}</figcaption>"
    return f'<figure class="sentence">{caption}{"".join(lines)}{numbers}</figure>'


def _value(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


_WORDS_KEY = "".join(
    f'<span class="heat" style="background:{_shade(step / (_KEY_STEPS - 1))}">&emsp;</span>'
    for step in range(_KEY_STEPS)
)
_WORDS_KEY = f'<p class="tokens key">0 {_WORDS_KEY} largest of the line</p>'


def _glance(found: list[sections.Section]) -> str:
    """Render a link and, if it has one, a sentence per section."""
    lines = []
    for one in found:
        link = f'<a href="#{one.anchor}">{text(one.heading)}</a>'
        lines.append(f"<li>{link}{f'<span>{text(one.sentence)}</span>' if one.sentence else ''}</li>")
    return f'<nav aria-label="Sections"><ul class="glance">{"".join(lines)}</ul></nav>'


def _tiles(report: Report) -> str:
    """Render the headline numbers: clean, the strongest attack, corruptions, calibration, the doctor's verdict."""
    cells = []
    worst = reading.strongest(reading.attack_rows(report.measurements))
    clean = report.get("accuracy.clean")
    if clean is not None:
        cells.append(_tile("Clean accuracy", clean, ""))
    if worst is not None:
        cells.append(_tile("Robust accuracy", worst.accuracy, worst.title))
    for identity in ("corruption.mean.accuracy", "calibration.ece"):
        measurement = report.get(identity)
        if measurement is not None:
            cells.append(_tile(reading.label(measurement), measurement, ""))
    if report.doctor:
        counts = reading.doctor_counts(report)
        verdict = next(name for name in ("fail", "warn", "pass") if counts[name])
        number = f"{counts['pass']} of {len(report.doctor)}"
        badge = f'<em class="badge {verdict}">{_WORST[verdict]}</em>'
        cells.append(f'<div class="tile"><i>Evaluation checks passed</i><b>{number}</b>{badge}</div>')
    return f'<div class="tiles">{"".join(cells)}</div>' if cells else ""


def _tile(heading: str, measurement: Measurement, note: str) -> str:
    margin, is_fraction = reading.interval(measurement), measurement.unit.startswith("fraction")
    unit = " %" if is_fraction else ""
    margin = f"95 % interval {margin}{unit}, {intervals.kind(measurement)}" if margin else "no interval"
    lines = "".join(f"<i>{text(line)}</i>" for line in (note, margin) if line)
    track = _bar_of(measurement) if is_fraction else ""
    return f'<div class="tile"><i>{text(heading)}</i><b>{text(reading.number(measurement))}</b>{track}{lines}</div>'
