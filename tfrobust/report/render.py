"""A report for people: a short console table, a Markdown model card, one self-contained HTML page."""

from tfrobust.report import card, intervals, markup, page, reading, section_corruption, section_stability, sections
from tfrobust.report.schema import Report
from tfrobust.report.threat import summary_sentence
from tfrobust.structs import Measurement


def console_table(report: Report, *, short: bool = False) -> str:
    """The numbers in their usual order, the tables of corruptions and sequences, the doctor's verdict.

    Args:
        report: any.
        short: only the numbers that models are compared by, and the verdict.

    Returns:
        Aligned ASCII lines without a trailing line break; relative drops stand beside their accuracies.
    """
    listed = reading.main_measurements(report) if short else _listed(report)
    drops = {m.id: report.get(_drop_of(m)) for m in listed if _drop_of(m)}
    names = ["", "result", "95 % interval", *(["drop"] if any(drops.values()) else []), "n"]
    rows = [names]
    for m in listed:
        if m in drops.values():
            continue
        drop = [reading.number(drops[m.id]) if drops.get(m.id) else ""] if "drop" in names else []
        # A unit of words stands behind the name, so that the numbers form a column.
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
    """A model card in Markdown, in the sections of the page; every text from the report is escaped."""
    parts = [f"# {markup.safe(reading.title(report))}: robustness report", markup.paragraph(summary_sentence(report))]
    parts += card.headlines(report)
    for _, heading, blocks in card.build(report):
        parts += [f"## {heading}", *blocks]
    parts.append(markup.paragraph(_origin(report)))
    return "\n\n".join(parts) + "\n"


def html(report: Report) -> str:
    """One self-contained page: inline style and SVG, no script, nothing from outside."""
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


# Kinds of measurements that fill a table of their own: its heading, and the module that knows it.
_TABLES = (
    ("Accuracy under corruptions, per cent", section_corruption),
    ("Flips along perturbation sequences", section_stability),
)


def _listed(report: Report) -> list[Measurement]:
    """The measurements that stand one under the other: what a table of its own shows is not listed again."""
    return [m for m in reading.in_order(report) if not any(section.is_cell(m) for _, section in _TABLES)]


def _drop_of(measurement: Measurement) -> str:
    """The id of an accuracy's relative drop; "" for anything else."""
    name, _, what = measurement.id.rpartition(".")
    return f"{name}.drop" if what == "accuracy" else ""


def _grids(report: Report) -> list[tuple[str, str, list[list[str]], tuple[int, ...]]]:
    """(heading, where its images are from, header and rows of text, columns of numbers) of each table there is."""
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
    """Rows of text in aligned columns, two spaces apart; columns in `right` end together."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines
