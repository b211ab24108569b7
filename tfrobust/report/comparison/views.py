"""Views of a comparison of reports: aligned text, Markdown, JSON, and one HTML page with overlaid curves."""

from __future__ import annotations

import json
import re
import textwrap
from functools import partial

from tfrobust.report import formats, intervals, protocol, reading
from tfrobust.report.attack_table import PASSES_HEADING, attack_rows
from tfrobust.report.blocks import Figure, plots
from tfrobust.report.blocks.palette import series
from tfrobust.report.blocks.scatter import Point, scatter
from tfrobust.report.catalog.spelling import curve_caption
from tfrobust.report.comparison.gap import gap_table
from tfrobust.report.comparison.groups import SEEDS, pairs
from tfrobust.report.comparison.reports import Comparison
from tfrobust.report.comparison.verdict import common_attack, verdict
from tfrobust.report.difference import INDEPENDENT, PAIRED, Difference
from tfrobust.report.renderers import html as page
from tfrobust.report.renderers import markdown as markup
from tfrobust.report.renderers.console import folded, terminal
from tfrobust.report.schema import Report, plain
from tfrobust.report.sections.base import accuracy_curves
from tfrobust.structs import Measurement

SCHEMA = "tfrobust/comparison/1"
_KINDS = {
    SEEDS: "s: paired over seeds, Student's t",
    PAIRED: "p: paired over {examples}",
    INDEPENDENT: "i: as for independent samples, wider than necessary if the {examples} are the same",
}
_LEAD = "Below each number is its 95 % interval. If two intervals overlap widely, the order may be chance."
_GROUP_LEAD = "Below each mean over seeds are its 95 % interval and the standard deviation (SD)."
_FARTHER_END = "± reaches to the farther end of the"
_CUT = " ... (all: in the page)"
_SIDE_BY_SIDE = 6
Ends = tuple[str, str] | None


def table(comparison: Comparison, ends: Ends = None, width: int | None = None) -> str:
    """Format the console tables: the numbers, the differences from the reference, the gap closed.

    Args:
        comparison: the reports to show.
        ends: names of the two reports that define the gap which the others close; None for none.
        width: width of the terminal in characters, at which wider tables are folded; None for lines of any length.

    Returns:
        Aligned lines, "-" where a report lacks a number. Each heading with warnings is followed by their numbers in
        brackets; one line, cut at the width, has all warnings.
    """
    lines = []
    for sentence in map(terminal, verdict(comparison)):
        lines += [sentence] if width is None else textwrap.wrap(sentence, max(width, 40))
    for heading, rows, remarks in _tables(comparison, short=True):
        right_columns = tuple(range(1, len(rows[0])))
        lines += [*(["", heading] if lines else []), *folded(rows, right_columns, width)]
        for remark in map(terminal, remarks):
            lines += [remark] if width is None else textwrap.wrap(remark, max(width, 40), subsequent_indent="  ")
    warnings = terminal(_one_line(comparison.notes))
    if warnings:
        lines.append(warnings if width is None else textwrap.shorten(warnings, max(width, 40), placeholder=_CUT))
    if ends is not None:
        gap = gap_table(comparison.named, *ends, comparison.groups)
        lines += ["", *folded([gap.header, *gap.rows], tuple(range(1, len(gap.header))), width)]
    return "\n".join(map(terminal, lines))


def markdown(comparison: Comparison, ends: Ends = None) -> str:
    """Format the same tables in Markdown, with every text from a report escaped."""
    answer, *details = verdict(comparison) or [""]
    parts = (
        [f"**{markup.safe(answer)}**", *([markup.paragraph(" ".join(details))] if details else [])] if answer else []
    )
    for number, (heading, rows, remarks) in enumerate(_tables(comparison)):
        parts += [
            *([f"## {markup.safe(heading)}"] if number else []),
            markup.table(rows, tuple(range(1, len(rows[0])))),
        ]
        parts += [markup.listing(remarks)] if remarks else []
    parts += [markup.listing(_numbered(comparison.notes))] if comparison.notes else []
    if ends is not None:
        parts += ["## Gap closed", *markup.write(gap_table(comparison.named, *ends, comparison.groups))]
    return "\n\n".join(parts)


def as_json(comparison: Comparison) -> str:
    """Return the comparison as JSON: the columns with their notes, and one row of numbers per report."""
    columns = [{"id": identity, "label": label} for identity, label in comparison.columns.items()]
    document = {
        "schema": SCHEMA,
        "verdict": verdict(comparison),
        "columns": columns,
        "notes": [{"text": text, "columns": ids} for text, ids in comparison.notes.items()],
        "reference": comparison.reference,
        "rows": [_json_row(comparison, *row) for row in comparison.named],
    }
    return json.dumps(plain(document), indent=1, ensure_ascii=False)


def html(comparison: Comparison, ends: Ends = None) -> str:
    """Render one self-contained page: the tables, the notes on comparability, and the curves overlaid.

    Args:
        comparison: the reports to show.
        ends: names of the two reports that define the gap which the others close; None for none.
    """
    notes = list(comparison.notes)
    figures = _scatter(comparison) + _curves(comparison, notes)
    body = ['<p class="eyebrow">tfrobust</p><h1>Robustness compared</h1>', _verdict(comparison)]
    if notes:
        # One line, which a reader opens; on paper it is open.
        listed = "".join(f"<p>{page.text(note)}</p>" for note in _numbered(notes))
        body.append(f'<details class="note whole"><summary>{page.text(_one_line(notes))}</summary>{listed}</details>')
    if figures:
        lead = "One mark and one curve per model, with 95 % intervals as lines and bands."
        if comparison.groups is not None:
            lead = "Large marks: means over seeds with 95 % intervals. Small marks and curves: single runs."
        body.append(page.section("plots", "Clean and robust accuracy", lead, f'<div class="figures">{figures}</div>'))
    for number, (heading, rows, remarks) in enumerate(_tables(comparison)):
        remarks = "".join(f'<p class="key">{page.text(remark)}</p>' for remark in remarks)
        lead = "" if number else _GROUP_LEAD if comparison.groups is not None else _LEAD
        anchor = "table" if not number else "passes" if heading.startswith(PASSES_HEADING) else "differences"
        body.append(page.section(anchor, heading, lead, _markup(rows) + remarks))
    if ends is not None:
        lead = f"The share of the difference in relative drop between {ends[0]} and {ends[1]} that the others close."
        body.append(
            page.section("gap", "Gap closed", lead, page.write([gap_table(comparison.named, *ends, comparison.groups)]))
        )
    rows = [
        [page.text(name), page.text(file)] for (name, _), file in zip(comparison.runs, comparison.files, strict=True)
    ]
    body.append(page.section("files", "Reports", "", page.table(["Model", "File"], rows)))
    return page.page("Robustness compared", "\n".join(body))


def _verdict(comparison: Comparison) -> str:
    """Render the verdict; "" for a single model."""
    answer, *details = verdict(comparison) or [""]
    lines = f'<p class="answer">{page.text(answer)}</p>' + (f"<p>{page.text(' '.join(details))}</p>" if details else "")
    return f'<div class="opening"><div>{lines}</div></div>' if answer else ""


def _markup(rows: list[list[str]]) -> str:
    """Render header and rows as an HTML table, transposed for few models: that is narrower and fits on paper."""
    rows = [["Model", *rows[0][1:]], *rows[1:]]
    if len(rows) <= _SIDE_BY_SIDE + 1:
        rows = [list(column) for column in zip(*rows, strict=True)]
        rows[0][0] = "Measurement"

    def interval_below(cell: str) -> str:
        # "63.1 % [57.9 to 68.0]": the interval goes below its number, on one line.
        below = re.sub(r" \[(.*)\](.*)$", r"<small>\1\2</small>", page.text(cell))
        return below.replace(" to ", "&nbsp;to&nbsp;")

    cells = [[page.text(name), *map(interval_below, values)] for name, *values in rows[1:]]
    return page.table(rows[0], cells, numeric=tuple(range(1, len(rows[0]))), stack=True)


def _tables(comparison: Comparison, short: bool = False) -> list[tuple[str, list[list[str]], list[str]]]:
    """Return (heading, header and rows, remarks below) of the numbers and, with a reference, of the differences.

    Args:
        comparison: the reports to show.
        short: True to write an interval as "63.1 +- 5.2", False as "63.1 % [57.9 to 68.0]".
    """
    headings = [label + comparison.marks(identity) for identity, label in comparison.columns.items()]
    units = [", %" if short and _is_fraction(comparison, identity) else "" for identity in comparison.columns]
    grouped = comparison.groups is not None
    rows = [["model", *(["seeds"] if grouped else []), *map(str.__add__, headings, units)]]
    shown = []
    for name, report in comparison.named:
        numbers = [report.get(identity) for identity in comparison.columns]
        runs = len(comparison.groups[name]) if grouped else None
        rows.append(
            [name, *([str(runs)] if grouped else []), *(_cell(measurement, short, runs) for measurement in numbers)]
        )
        shown += filter(None, numbers)
    kinds = intervals.of_each(shown)
    remarks = []
    if kinds:
        remarks = [f"{_FARTHER_END} 95 % interval, {kinds}" if short else f"95 % intervals {kinds}"]
    if grouped:
        remarks.append("SD: standard deviation over seeds")
    remarks += _unmeasured(comparison)
    tables = [("Measurements", rows, remarks)]
    if comparison.reference is not None:
        tables.append(_differences(comparison, headings, short))
    return [*tables, *_passes(comparison)]


def _passes(comparison: Comparison) -> list[tuple[str, list[list[str]], list[str]]]:
    """Return the table of the passes of the attacks whose accuracies are compared; none if no report has them."""
    cells = {
        (name, row.accuracy.id): row.passes
        for name, report in comparison.named
        for row in attack_rows(report.measurements)
        if row.passes
    }
    counted = [identity for identity in comparison.columns if any(identity == other for _, other in cells)]
    if not counted:
        return []
    rows = [[name, *(cells.get((name, identity), "-") for identity in counted)] for name, _ in comparison.named]
    heading = ["model", *(comparison.columns[identity] for identity in counted)]
    return [(f"{PASSES_HEADING}, per image", [heading, *rows], [])]


def _unmeasured(comparison: Comparison) -> list[str]:
    """Return a line for each measurement that was requested and not possible, with the models and the reason."""
    models: dict[tuple[str, str], list[str]] = {}
    for name, report in comparison.named:
        runs = [report] if comparison.groups is None else comparison.groups[name].values()
        for missing in dict.fromkeys(entry for run in runs for entry in reading.unmeasured(run)):
            models.setdefault(missing, []).append(name)
    return [f"not measured for {', '.join(names)}: {label}: {reason}" for (label, reason), names in models.items()]


def _is_fraction(comparison: Comparison, identity: str) -> bool:
    measurements = [report[identity] for _, report in comparison.named if report.get(identity)]
    return all(measurement.unit.startswith("fraction") for measurement in measurements)


def _differences(comparison: Comparison, headings: list[str], short: bool) -> tuple[str, list[list[str]], list[str]]:
    grouped = comparison.groups is not None
    rows, kinds = [["model", *(["pairs"] if grouped else []), *headings]], set()
    for name, report in comparison.named:
        if name == comparison.reference:
            continue
        differences = comparison.differences(report)
        counts = []
        if grouped:
            counts = [str(len(pairs(comparison.groups[name], comparison.groups[comparison.reference])))]
        rows.append(
            [
                name,
                *counts,
                *(_signed(difference, report.get(identity), short) for identity, difference in differences.items()),
            ]
        )
        kinds |= {difference.kind for difference in differences.values() if difference is not None}
    examples = reading.examples_of(comparison.named[0][1].data)
    remarks = [f"95 % intervals, {_KINDS[kind].format(examples=examples)}" for kind in _KINDS if kind in kinds]
    heading = f"Differences from {comparison.reference}, accuracies in points"
    return heading, rows, [*remarks, "*: the interval does not contain 0"] if remarks else []


def _cell(measurement: Measurement | None, short: bool, runs: int | None = None) -> str:
    """Format a number with its interval; for a mean over runs also the deviation, and the count unless it is `runs`."""
    if measurement is None or measurement.value is None:
        return "-"
    fraction = measurement.unit.startswith("fraction")
    text, margin = formats.number(measurement), formats.interval(measurement)
    text = text.removesuffix(" %") if short else text  # the heading has it
    if margin:
        text += f" {_plus_minus(measurement, fraction)}" if short else f" [{margin}]"
    deviation = measurement.settings.get("deviation") if runs else None
    if deviation is not None:
        text += f", SD {100 * deviation:.1f}" if fraction else f", SD {deviation:.3g}"
    return text if runs in (None, measurement.n) else f"{text}, n = {measurement.n}"


def _signed(difference: Difference | None, measurement: Measurement | None, short: bool = False) -> str:
    """Format a difference as "+3.1 [+1.2 to +5.0] p*": fractions in points, other numbers in their own unit."""
    if difference is None:
        return "-"
    fraction = measurement.unit.startswith("fraction")

    def signed(*numbers: float) -> list[str]:
        return formats.per_cents(*numbers, sign="+") if fraction else [format(number, "+.3g") for number in numbers]

    if not difference.kind:
        return signed(difference.value)[0]
    mark = difference.kind[0] + ("*" if difference.low > 0 or difference.high < 0 else "")
    if short:
        return f"{signed(difference.value)[0]} {_plus_minus(difference, fraction)} {mark}"
    value, low, high = signed(difference.value, difference.low, difference.high)
    return f"{value} [{low} to {high}] {mark}"


def _plus_minus(item: Measurement | Difference, fraction: bool) -> str:
    """Format the distance from a number to the farther end of its interval; of fractions in points."""
    half = max(item.high - item.value, item.value - item.low)
    return f"± {formats.per_cent(half)}" if fraction else f"± {half:.2g}"


def _numbered(notes) -> list[str]:
    return [f"[{number}] {note}" for number, note in enumerate(notes, 1)]


def _one_line(notes) -> str:
    """Return all warnings on one line, without the details in parentheses; "" without warnings."""
    listed = " ".join(re.sub(r" \([^()]*\)(?=\.$)", "", note) for note in _numbered(notes))
    return f"{len(notes)} warning{'s' if len(notes) > 1 else ''}: {listed}" if notes else ""


def _json_row(comparison: Comparison, name: str, report: Report) -> dict:
    differences = comparison.differences(report) if comparison.reference not in (None, name) else {}
    numbers = {}
    for identity in comparison.columns:
        m = report.get(identity)
        if m is None:
            continue
        numbers[identity] = {key: getattr(m, key) for key in ("value", "low", "high", "unit", "n", "settings")}
        if differences.get(identity) is not None:
            numbers[identity]["difference"] = differences[identity]._asdict()
    data = {key: report.data.get(key) for key in ("name", "fingerprint")}
    files = {id(run): str(file) for (_, run), file in zip(comparison.runs, comparison.files, strict=True)}
    if comparison.groups is not None:
        runs = [{"seed": seed, "file": files[id(run)]} for seed, run in comparison.groups[name].items()]
        return {"name": name, "runs": runs, "data": data, "measurements": numbers}
    return {"name": name, "file": files[id(report)], "model": report.model, "data": data, "measurements": numbers}


def _scatter(comparison: Comparison) -> str:
    """Render clean against robust accuracy, under the attack that most models share; "" without such an attack."""
    clean, attack = "accuracy.clean", common_attack(comparison)
    if attack is None:
        return ""
    named = dict(comparison.named)
    having = [
        name
        for name, report in comparison.named
        if all(report.get(identity) and report[identity].value is not None for identity in (clean, attack))
    ]
    points = []
    for number, (name, report) in enumerate(comparison.named):
        if name in having:
            x, y = ((m.value, m.low, m.high) for m in (report[clean], report[attack]))
            runs = comparison.groups[name].values() if comparison.groups is not None else ()
            single = [[run.get(identity) for identity in (clean, attack)] for run in runs]
            small = [(first.value, other.value) for first, other in single if first and other]
            points.append(Point(name, x, y, number, tuple(small) if len(small) > 1 else ()))
    title = comparison.columns[attack]
    caption = f"Clean accuracy against accuracy under {title}{comparison.marks(attack)}"
    draw = partial(scatter, points=points, x_label="clean accuracy", y_label="robust accuracy")
    missing = [name for name in named if name not in having]
    remark = f'<p class="key">Not evaluated with this attack: {page.text(", ".join(missing))}.</p>' if missing else ""
    return f"<div>{page.figure(Figure('compare-scatter', caption, draw))}{remark}</div>"


def _curves(comparison: Comparison, notes: list[str]) -> str:
    """Render one figure per attack, with one curve per report; "" without curves.

    Args:
        comparison: the reports to show.
        notes: the warnings so far; those on curves are appended, and their numbers are in the captions.
    """
    places = [name for name, _ in comparison.named]
    if comparison.groups is not None:
        places = [name for name, _ in comparison.named for _ in comparison.groups[name]]
    order = list(dict.fromkeys(places))
    lines: dict[str, list[plots.Line]] = {}
    captions: dict[str, str] = {}
    for name, (_, report) in zip(places, comparison.runs, strict=True):
        for key, settings, columns in accuracy_curves(report):
            # The bands of several runs of one color would hide each other.
            ends = (columns.get("low"), columns.get("high")) if comparison.groups is None else (None, None)
            number = order.index(name)
            line = plots.Line(name, columns["epsilon"], columns["accuracy"], *ends, number, series(number))
            lines.setdefault(key, []).append(line)
            captions.setdefault(key, curve_caption(settings))
    items = []
    axes = {"x_label": "epsilon (pixels in [0, 1])", "y_label": "accuracy", "percent": True, "height": 3.4}
    for key, attack_lines in lines.items():
        figure_notes = protocol.curve_notes(comparison.runs, f"attack.{key}.curve")
        notes += [note for note in figure_notes if note not in notes]
        marks = "".join(f" [{notes.index(note) + 1}]" for note in figure_notes)
        caption = f"Accuracy under {captions[key]}{marks}"
        items.append(page.figure(Figure(f"compare-{key}", caption, partial(plots.curves, lines=attack_lines, **axes))))
    return "".join(items)
