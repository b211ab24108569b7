"""A report for people: a short console table, a Markdown model card, one self-contained HTML page."""

import re

from tfrobust.report import page, reading, section_corruption, section_stability, sections
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
    for heading, origin, grid, right in [] if short else _grids(report):
        lines += ["", f"{heading}. {origin}".strip(), *align(grid, right)]
    if report.doctor:
        counts = reading.doctor_counts(report)
        lines.append("doctor: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
        for finding in report.doctor:
            if finding.verdict != "pass":
                lines.append(f"  {finding.verdict}: {finding.check}: {finding.evidence}")
    return "\n".join(_printable(line) for line in lines)


def markdown(report: Report) -> str:
    """A model card in Markdown; every text from the report is escaped, tables are aligned."""
    parts = [f"# {_safe(reading.title(report))}: robustness report", _safe(summary_sentence(report))]
    rows = [["Measurement", "Value", "95 % interval", "n"]]
    for m in _listed(report):
        count = "-" if m.n is None else m.n
        rows.append([reading.label(m), reading.number(m), reading.interval(m) or "-", count])
    if len(rows) > 1:
        parts += ["## Measurements", _markdown_table(rows, right=(1, 2, 3))]
    for heading, origin, grid, right in _grids(report):
        parts += [f"## {heading}", _safe(origin), _markdown_table(grid, right)]
    if report.threat:
        parts += ["## What this means", _safe(report.threat)]
    if report.not_measured:
        parts += ["## What was not measured", "\n".join(f"- {_safe(item)}" for item in report.not_measured)]
    if report.doctor:
        found = [[f.check, f.verdict, f.evidence, f.remedy or "-"] for f in report.doctor]
        parts += ["## Doctor", _markdown_table([["Check", "Verdict", "Evidence", "Remedy"], *found])]
    data, _ = reading.by_size(report.data)
    identity = reading.flat({"model": report.model, "data": data, "run_sha256": report.run_sha256})
    for heading, pairs in (
        ("Training", reading.flat(reading.by_size(report.training)[0])),
        ("Model and data", identity),
        ("Cost", reading.cost_rows(report)),
        ("Environment", reading.flat(report.environment)),
    ):
        if pairs:
            parts += [f"## {heading}", _markdown_table([["Name", "Value"], *pairs])]
    if report.configuration.strip():
        longest = max((len(run) for run in re.findall(r"`+", report.configuration)), default=0)
        fence = "`" * max(3, longest + 1)
        parts += ["## Configuration", f"{fence}\n{report.configuration.rstrip()}\n{fence}"]
    return "\n\n".join(filter(None, parts)) + "\n"


def html(report: Report) -> str:
    """One self-contained page: inline style and SVG, no script, nothing from outside."""
    built = sections.build(report)
    links = "".join(f'<a href="#{anchor}">{page.text(heading)}</a>' for anchor, heading, _ in built)
    version = report.model.get("version")
    version = f" <small>version {page.text(version)}</small>" if version is not None else ""
    made = f", made {page.text(report.created)}" if report.created else ""
    body = [
        f'<p class="eyebrow">Robustness report &middot; {page.text(report.data["name"])}</p>',
        f"<h1>{page.text(report.model['name'])}{version}</h1>",
        f'<p class="summary">{page.text(summary_sentence(report))}</p>',
        sections.tiles(report),
        f'<nav aria-label="Sections">{links}</nav>',
        *(content for _, _, content in built),
        f"<footer>Rendered from robustness_report.json ({page.text(report.schema)}){made}.</footer>",
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
            written = [[cell if isinstance(cell, str) else _per_cent(cell) for cell in row] for row in rows]
            right = tuple(range(section.TEXT_COLUMNS, len(header)))
            found.append((heading, section.origin(report), [header, *written], right))
    return found


def _per_cent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def align(rows: list[list[str]], right: tuple[int, ...] = ()) -> list[str]:
    """Rows of text in aligned columns, two spaces apart; columns in `right` end together."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines


def _markdown_table(rows: list[list], right: tuple[int, ...] = ()) -> str:
    safe = [[_safe(cell) for cell in row] for row in rows]
    widths = [max(3, *(len(row[column]) for row in safe)) for column in range(len(safe[0]))]
    rule = ["-" * (w - 1) + ":" if i in right else "-" * w for i, w in enumerate(widths)]
    lines = []
    for row in [safe[0], rule, *safe[1:]]:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _safe(value) -> str:
    """One line of Markdown text that means what it says: no markup, no HTML, no table cell break."""
    one_line = " ".join(_printable(str(value)).split())
    escaped = re.sub(r"([\\`*\[\]|])", r"\\\1", one_line)
    return escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _printable(text: str) -> str:
    """Without control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else " " for c in text)
