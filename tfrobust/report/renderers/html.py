"""The HTML page of a report. All user-written text goes through `text`; only these functions write markup."""

import dataclasses
import html
import itertools
import re

from tfrobust.report import attack_table, formats, intervals, parts, reading, sections
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
from tfrobust.report.blocks.plots import BAND, BAR, Key
from tfrobust.report.blocks.svg import prefix
from tfrobust.report.opening import Opening, main_attack, opening, reference_name, reference_of, some_corruptions
from tfrobust.report.renderers.style import NESTED_STYLE, STYLE
from tfrobust.report.schema import Report
from tfrobust.report.sections.attacks import Attacks
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
    BAR: '<path d="M7 1h12v8h-12z" {paint}/>',
    BAND: '<path d="M2 0h22v10h-22z" opacity=".25" {paint}/>',
}
_DASH_ARRAYS = ("", "6 2", "1.6 2", "6 2 1.6 2")
# Per cent of the color for a value of 1, chosen so that text stays readable in light and dark mode.
_DEEPEST = 60
_KEY_STEPS = 5
# Larger tables are not repeated below their plots.
_MOST_ROWS, _MOST_COLUMNS = 120, 12
# Blocks that stand side by side.
_BESIDE = (Figure, Grid, Numbers)
# A number up to its decimal point, and the rest: ("<= 12", ".5 %"), ("3", " s").
_NUMBER = re.compile(r"((?:[<>]= )?[-+]?[\d ]*\d)((?:\.\d+)?(?:[ e].*)?)")


def render(report: Report) -> str:
    """Render one self-contained page: inline style and SVG, no scripts, no external resources."""
    report_sections = sections.build(report)
    kind = [part for part in (reading.version(report), reading.file_kind(report)) if part]
    small = f" <small>{text(', '.join(kind))}</small>" if kind else ""
    head = [
        f'<p class="eyebrow">Robustness report &middot; {text(report.data["name"])}</p>',
        f"<h1>{text(report.model['name'])}{small}</h1>",
        _opening(opening(report)),
        _tiles(report),
        f'<p class="summary">{text(_summary(report))}</p>',
        *(f'<p class="lead">{text(line[:1].upper() + line[1:])}.</p>' for line in reading.not_measured_lines(report)),
    ]
    body = [
        f'<div class="report"><header>{"".join(head)}</header>',
        _contents(report_sections),
        "<div>",
        *(
            section(entry.anchor, entry.heading, entry.introduction, write(entry.content), entry.sentence)
            for entry in report_sections
        ),
        f"<footer>{text(reading.footer(report))}</footer></div></div>",
    ]
    return page(f"{reading.title(report)}: robustness report", "\n".join(body))


def fragment(report: Report) -> str:
    """Render the opening of a report, its main numbers and the plot of its attacks, for the output of a notebook."""
    attacks = Attacks(report).content
    headlines = reading.main_measurements(report)
    blocks = [*attacks[:1], *([Numbers(headlines)] if headlines else [])]
    body = f"{_opening(opening(report))}{_tiles(report)}<section>{write(blocks)}</section>"
    return f'<style>{NESTED_STYLE}</style><div class="tfrobust">{body}</div>'


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


def section(identity: str, heading: str, lead: str, body: str, sentence: str = "") -> str:
    """Render a card with a heading, a finding and a lead, one plain-text paragraph on how to read it."""
    opening = f'<p class="finding">{text(sentence)}</p>' if sentence else ""
    opening += f'<p class="lead">{text(lead)}</p>' if lead else ""
    return f'<section id="{identity}"><h2>{text(heading)}</h2>{opening}{body}</section>\n'


def write(blocks: list[Block]) -> str:
    """Render blocks; neighboring figures, grids and numbers stand side by side if there is room."""
    parts = []
    for _, run in itertools.groupby(blocks, key=lambda block: isinstance(block, _BESIDE) or type(block)):
        run = list(run)
        cells = list(map(_block, run))
        last = run[-1]
        if len(run) % 2 and isinstance(last, Figure) and _has_table(last):
            # The numbers of a plot without a neighbor fill the place beside it.
            cells[-1:] = [
                _block(dataclasses.replace(last, numbers=None)),
                f'<div class="dense">{_table(last.numbers)}</div>',
            ]
        body = "".join(cells)
        body = _WORDS_KEY + body if isinstance(last, Words) else body
        parts.append(f'<div class="figures">{body}</div>' if any(isinstance(item, Figure) for item in run) else body)
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
            return f'<div class="dense">{_numbers(block)}</div>'
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
    """Render a table, with the bars of its columns in one column of their own, and a legend of these above."""
    columns = [list(column) for column in zip(*block.rows, strict=True)]
    cells = [
        _numeric(column) if number >= block.texts else list(map(_cell, column)) for number, column in enumerate(columns)
    ]
    heads, numeric = list(block.header), set(range(block.texts, len(block.header)))
    if not block.bars:
        rows = [list(row) for row in zip(*cells, strict=True)]
        return table(heads, rows, tuple(numeric), stack=any(heads) and not isinstance(block, Grid))
    first = block.bars[0][0]
    cells.insert(first, ["".join(_bar_of(row[i], role) for i, role in block.bars) for row in block.rows])
    heads.insert(first, "")
    numeric = tuple(number + (number >= first) for number in numeric)
    keys = [Key(block.header[i], role, -1, BAR) for i, role in block.bars]
    body = table(heads, [list(row) for row in zip(*cells, strict=True)], numeric)
    return f'<div class="bars">{_legend([*keys, Key("95 % interval", "strong", -1, BAND)])}{body}</div>'


def _numeric(column: list) -> list[str]:
    """Render the cells of a column of numbers with their decimal points, units and intervals below each other."""
    margins = [formats.interval(cell) if isinstance(cell, Measurement) else "" for cell in column]
    special = [_cell(cell) if isinstance(cell, (Heat, Badge, Noted)) else "" for cell in column]
    texts = [formats.number(cell) if isinstance(cell, Measurement) else plain_cell(cell) for cell in column]
    texts = [other or number for other, number in zip(special, aligned(texts), strict=True)]
    return _with_margins(texts, margins)


def _with_margins(texts: list[str], margins: list[str]) -> list[str]:
    """Append intervals of one width, so that the numbers before them stay below each other."""
    width = max(map(len, margins), default=0)
    if not width:
        return texts
    return [
        f'{cell}<small style="min-width:{width - 2}ch">{text(margin)}</small>'
        for cell, margin in zip(texts, margins, strict=True)
    ]


def aligned(texts: list[str]) -> list[str]:
    """Render numbers, some with units, such that right-aligned cells have their decimal points below each other."""
    parts = [_NUMBER.fullmatch(cell) or re.fullmatch("(.*)()", cell, re.DOTALL) for cell in texts]
    widths = {len(m[2]) for m in parts if m[1] != "-"}
    if len(widths) < 2:
        return list(map(text, texts))
    style = f' style="min-width:{max(widths) - 0.5}ch"'
    return [f'{text(m[1])}<i class="rest"{style}>{text(m[2])}</i>' for m in parts]


def _cell(cell) -> str:
    match cell:
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
    names, values = zip(*map(reading.named_number, block.measurements), strict=True)
    margins = [formats.interval(m) for m in block.measurements]
    numbers = _with_margins(aligned(list(values)), margins)
    counts = [text("-" if m.n is None else m.n) for m in block.measurements]
    rows = [list(row) for row in zip(map(text, names), numbers, counts, strict=True)]
    return table(["Measurement", "Value", "n"], rows, numeric=(1, 2))


def _bar_of(m: Measurement | None, role: str) -> str:
    """Render a fraction as a filled bar in the color of a series, with its interval as a darker band."""
    if m is None or m.value is None:
        return ""
    share = 100 * min(1.0, max(0.0, m.value))
    band = ""
    if m.low is not None and m.high is not None:
        start, end = (100 * min(1.0, max(0.0, bound)) for bound in (m.low, m.high))
        band = f'<s style="left:{start:.1f}%;width:{end - start:.1f}%"></s>'
    filled = f'<u style="width:{share:.1f}%;background:var(--{role})"></u>'
    return f'<span class="bar" aria-hidden="true">{filled}{band}</span>'


def _shade(share: float) -> str:
    """Return a color whose intensity is proportional to the share."""
    return f"color-mix(in srgb,var(--series-2) {_DEEPEST * min(1.0, max(0.0, share)):.0f}%,transparent)"


def figure(block: Figure) -> str:
    """Render a plot with its caption, its legend and, if they are few, its numbers in a collapsible table."""
    plot = block.draw(block.identity)
    legend = _legend(plot.legend) if plot.legend else ""
    if _has_table(block):
        legend += _details("The numbers of this plot", f'<div class="dense">{_table(block.numbers)}</div>')
    heading = f'<figcaption id="{prefix(block.identity)}-caption">{text(block.caption)}</figcaption>'
    return f"<figure>{heading}{plot.svg}{legend}</figure>"


def _has_table(block: Figure) -> bool:
    numbers = block.numbers
    return numbers is not None and 0 < len(numbers.rows) <= _MOST_ROWS and len(numbers.header) <= _MOST_COLUMNS


def _legend(keys) -> str:
    return f'<ul class="legend">{"".join(map(_legend_entry, keys))}</ul>'


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


def _contents(report_sections: list[sections.Section]) -> str:
    """Render links to the sections: a list at the side, or one line where the page is narrow."""
    links = "".join(f'<li><a href="#{entry.anchor}">{text(entry.heading)}</a></li>' for entry in report_sections)
    return f'<nav aria-label="Sections"><ul class="contents">{links}</ul></nav>'


def _opening(first: Opening) -> str:
    """Render what the report says in plain words, next to a picture of what an attacker may change."""
    kind = f' class="checks {first.verdict}"' if first.verdict else ""
    answer = re.sub(r"\(\d+ to \d+\)", r"<span>\g<0></span>", text(first.answer))
    lines = [f'<p class="answer">{answer}</p>', f"<p>{text(' '.join(first.details))}</p>"]
    lines += [f'<p class="untried">{text(first.untried)}</p>'] if first.untried else []
    lines.append(f"<p{kind}>{text(first.checks)}</p>")
    pair = f'<div class="pair">{figure(first.pair)}</div>' if first.pair else ""
    return f'<div class="opening"><div>{"".join(lines)}</div>{pair}</div>'


def _summary(report: Report) -> str:
    """State the training, the examples, the kind of the intervals, and the limit of every attack."""
    size, examples = report.data.get("test_size"), reading.examples_of(report.data)
    method, attacked = report.training.get("method"), bool(attack_table.attack_rows(report.measurements))
    trained = f"Trained by {method}, evaluated" if isinstance(method, str) else "Evaluated"
    sentences = [
        f"{trained} on {f'{size} ' if size else ''}test {examples} of {report.data['name']}.",
        intervals.statement(report),
        "A stronger attack may find more errors." if attacked else "",
    ]
    return " ".join(filter(None, sentences))


def _tiles(report: Report) -> str:
    """Render the headline accuracies: clean, attacked, that of a reference, of the worst class, of corruptions."""
    cells, attack = [], main_attack(report)
    clean, mean = report.get("accuracy.clean"), report.get("corruption.mean.accuracy")
    if clean is not None:
        cells.append(_tile("Correct without attack", clean, "clean"))
    if attack is not None:
        subset = (
            f", {attack.accuracy.n} {reading.examples_of(report.data)}"
            if clean and clean.n != attack.accuracy.n
            else ""
        )
        # Spaces inside "\u03b5 = 0.2" do not break.
        note = (attack.title + subset).replace("\u03b5 = ", "\u03b5\u00a0=\u00a0")
        cells.append(_tile("Correct under attack", attack.accuracy, "attacked", note))
        reference = reference_of(report, attack.accuracy)
        if reference is not None:
            name = f"{reference_name(reference)}, same attack"
            kind = "undefended model" if reference.settings.get("undefended") else "other model"
            cells.append(_tile(f"Correct, {kind}", reference, "attacked", name))
    lowest = parts.worst(parts.of(report, attack.accuracy.id if attack else "accuracy.clean", parts.CLASSES))
    if lowest is not None:
        when = "under attack" if attack else "without attack"
        cells.append(
            _tile(
                f"Correct in worst class: {lowest.name.removeprefix('class ')}",
                lowest.accuracy,
                "attacked" if attack else "clean",
                when,
            )
        )
    if mean is not None:
        note = some_corruptions(mean) or "noise, blur, weather, digital"
        cells.append(_tile("Correct when corrupted", mean, "clean", note))
    return f'<div class="tiles">{"".join(cells)}</div>' if cells else ""


def _tile(heading: str, measurement: Measurement, role: str, note: str = "") -> str:
    lines = "".join(f"<i>{text(line)}</i>" for line in (formats.interval(measurement), note) if line)
    number = f"<b>{text(formats.number(measurement))}</b>{_bar_of(measurement, role)}"
    return f'<div class="tile"><i>{text(heading)}</i>{number}{lines}</div>'
