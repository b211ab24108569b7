"""Renderings of a report: a short console table, a Markdown model card, one self-contained HTML page."""

from tfrobust.report import intervals, reading
from tfrobust.report.blocks import html as page
from tfrobust.report.blocks import markdown as markup
from tfrobust.report.renderers import html as sections
from tfrobust.report.renderers import markdown as card
from tfrobust.report.schema import Report
from tfrobust.report.sections import (
    corruptions as section_corruption,
)
from tfrobust.report.sections import (
    stability as section_stability,
)
from tfrobust.report.threat import summary_sentence
from tfrobust.structs import Measurement


def console_table(report: Report, *, short: bool = False) -> str:
    """Format the numbers in their usual order, the tables of corruptions and sequences, and the doctor's verdict.

    Args:
        report: any.
        short: True for only the numbers that models are compared by, and the verdict.

    Returns:
        Aligned ASCII lines without a trailing line break; relative drops are on the line of their accuracies.
    """
    listed = reading.main_measurements(report) if short else _listed(report)
    drops = {m.id: report.get(_drop_of(m)) for m in listed if _drop_of(m)}
    names = ["", "result", "95 % interval", *(["drop"] if any(drops.values()) else []), "n"]
    rows = [names]
    for m in listed:
        if m in drops.values():
            continue
        drop = [reading.number(drops[m.id]) if drops.get(m.id) else ""] if "drop" in names else []
        # A unit in words is appended to the name, so that the numbers form a column.
        unit = f" {m.unit}" if m.unit and reading.number(m).endswith(f" {m.unit}") and len(m.unit) > 1 else ""
        name, value = reading.label(m) + (f" ({m.unit})" if unit else ""), reading.number(m).removesuffix(unit)
        rows.append([name, value, reading.interval(m), *drop, "" if m.n is None else str(m.n)])
    lines = [f"{reading.title(report)}, judged on {report.data['name']}", *align(rows, tuple(range(1, len(names))))]
    kinds = intervals.of_each(m for m in listed if m not in drops.values())
    lines += [f"95 % intervals {kinds}"] if kinds else []
    for heading, origin, grid, right in [] if short else _grids(report):
        lines += ["", f"{heading}. {origin}".strip(), *align(grid, right)]
    if report.doctor:
        counts = reading.doctor_counts(report)
        lines.append("doctor: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
        for finding in report.doctor:
            if finding.verdict != "pass":
                lines.append(f"  {finding.verdict}: {finding.check}: {finding.evidence}")
    return "\n".join(markup.printable(line) for line in lines)


def markdown(report: Report) -> str:
    """Render a model card in Markdown, with the sections of the page; every text from the report is escaped."""
    parts = [f"# {markup.safe(reading.title(report))}: robustness report", markup.paragraph(summary_sentence(report))]
    parts += card.headlines(report)
    for _, heading, blocks in card.build(report):
        parts += [f"## {heading}", *blocks]
    parts.append(markup.paragraph(_origin(report)))
    return "\n\n".join(parts) + "\n"


def html(report: Report) -> str:
    """Render one self-contained page: inline style and SVG, no scripts, no external resources."""
    built = sections.build(report)
    version = report.model.get("version")
    version = f" <small>version {page.text(version)}</small>" if version is not None else ""
    body = [
        f'<p class="eyebrow">Robustness report &middot; {page.text(report.data["name"])}</p>',
        f"<h1>{page.text(report.model['name'])}{version}</h1>",
        f'<p class="summary">{page.text(summary_sentence(report))}</p>',
        sections.tiles(report),
        sections.glance(report, built),
        *(content for _, _, content in built),
        f"<footer>{page.text(_origin(report))}</footer>",
    ]
    return page.page(f"{reading.title(report)}: robustness report", "\n".join(body))


# Kinds of measurements with a table of their own: its heading, and the module that builds it.
_TABLES = (
    ("Accuracy under corruptions, per cent", section_corruption),
    ("Flips along perturbation sequences", section_stability),
)


def _listed(report: Report) -> list[Measurement]:
    """Return the measurements of the main list, without those that have a table of their own."""
    return [m for m in reading.in_order(report) if not any(section.is_cell(m) for _, section in _TABLES)]


def _drop_of(measurement: Measurement) -> str:
    """Return the id of an accuracy's relative drop; "" for any other measurement."""
    name, _, what = measurement.id.rpartition(".")
    return f"{name}.drop" if what == "accuracy" else ""


def _grids(report: Report) -> list[tuple[str, str, list[list[str]], tuple[int, ...]]]:
    """Return (heading, origin of the images, header and rows of text, right-aligned columns) of each table present."""
    found = []
    for heading, section in _TABLES:
        if table := section.table(report):
            header, rows = table
            written = [[cell if isinstance(cell, str) else reading.per_cent(cell) for cell in row] for row in rows]
            right = tuple(range(section.TEXT_COLUMNS, len(header)))
            found.append((heading, section.origin(report), [header, *written], right))
    return found


def _origin(report: Report) -> str:
    made = f", made {report.created}" if report.created else ""
    return f"Rendered from robustness_report.json ({report.schema}){made}."


def align(rows: list[list[str]], right: tuple[int, ...] = ()) -> list[str]:
    """Align rows of text in columns, two spaces apart; the columns in `right` are right-aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines
