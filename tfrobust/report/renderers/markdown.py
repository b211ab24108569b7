"""The Markdown model card: the sections of the HTML page, each as blocks of Markdown."""

from tfrobust.report import intervals, reading
from tfrobust.report.blocks import markdown as markup
from tfrobust.report.renderers import html as sections
from tfrobust.report.schema import Report
from tfrobust.report.sections import (
    classes as section_classes,
)
from tfrobust.report.sections import (
    corruptions as section_corruption,
)
from tfrobust.report.sections import (
    examples as section_examples,
)
from tfrobust.report.sections import (
    figures as section_plots,
)
from tfrobust.report.sections import (
    protocol as section_protocol,
)
from tfrobust.report.sections import (
    results as section_results,
)
from tfrobust.report.sections import (
    sentences,
)
from tfrobust.report.sections import (
    stability as section_stability,
)
from tfrobust.report.sections import (
    tokens as section_tokens,
)
from tfrobust.structs import Measurement, Series

_DRAWN = "Drawn in robustness_report.html."
# Longest series that is written as a table; longer ones refer to the plot.
_LONGEST = 60


def build(report: Report) -> list[tuple[str, str, list[str]]]:
    """Build all sections that have content, in order: (anchor, heading, blocks of Markdown)."""
    found = []
    for anchor, (heading, _) in sections.SECTIONS.items():
        blocks = [block for block in _BUILDERS[anchor](report) if block]
        if blocks:
            said = sentences.sentence(report, anchor)
            found.append((anchor, heading, [*([f"**{markup.safe(said)}**"] if said else []), *blocks]))
    return found


def headlines(report: Report) -> list[str]:
    """Return the table of the main measurements, by which models are compared."""
    return _measurements(reading.main_measurements(report))


def _measurements(found: list[Measurement]) -> list[str]:
    rows = [["Measurement", "Value", "95 % interval", "of which kind", "n"]]
    for m in found:
        count = "-" if m.n is None else m.n
        rows.append([reading.label(m), reading.number(m), reading.interval(m) or "none", intervals.kind(m), count])
    return [markup.table(rows, right=(1, 2, 4))] if found else []


def _kind(report: Report, *prefixes: str) -> list[str]:
    return _measurements([m for m in reading.in_order(report) if m.id.startswith(prefixes)])


def _threat(report: Report) -> list[str]:
    return [markup.paragraph(report.threat)]


def _curve(report: Report) -> list[str]:
    measured = section_results.accuracy_curves(report)
    if not measured:
        return []
    rows = [["Epsilon", *(section_results.attack_caption(key) for key, _ in measured)]]
    rows += [[epsilon, *map(_with_interval, found)] for epsilon, found in section_results.curve_rows(measured)]
    return [markup.paragraph(section_results.curve_lead(report)), markup.table(rows, tuple(range(1, len(rows[0]))))]


def _with_interval(m: Measurement | None) -> str:
    margin = reading.interval(m)
    return f"{reading.number(m)} ({margin})" if margin else reading.number(m)


def _attacks(report: Report) -> list[str]:
    entries = section_results.attack_entries(report)
    if not entries:
        return []
    rows = [["Attack", "Budget and effort", "Accuracy", "Relative drop", "Images"]]
    for name, detail, accuracy, drop in entries:
        count = "-" if accuracy.n is None else accuracy.n
        rows.append([name, detail, _with_interval(accuracy), _with_interval(drop), count])
    return [markup.paragraph(section_results.attacks_lead(entries)), markup.table(rows, (2, 3, 4))]


def _examples(report: Report) -> list[str]:
    found = section_examples.shown(report)
    if not found:
        return []
    rows = [["Label", "Clean prediction", "Attacked prediction", "Attack"]]
    rows += [[e.name.removeprefix("class "), e.clean, e.attacked, one.attack] for one in found for e in one.examples]
    return [markup.paragraph(section_examples.lead(found)), markup.table(rows), _DRAWN]


def _classes(report: Report) -> list[str]:
    found = section_classes.classes(report)
    if found is None:
        return []
    header, rows = section_classes.table(report, found)
    cells = [[name, count, *map(_with_interval, own)] for name, count, *own in rows]
    table = markup.table([header, *cells], tuple(range(1, len(header))))
    return [markup.paragraph(section_classes.lead(found)), table]


def _corruptions(report: Report) -> list[str]:
    found, blocks = section_corruption.table(report), []
    if found:
        header, rows = found
        cells = [[cell if isinstance(cell, str) else reading.per_cent(cell) for cell in row] for row in rows]
        right = tuple(range(section_corruption.TEXT_COLUMNS, len(header)))
        blocks = [markup.paragraph(section_corruption.lead(report, header)), markup.table([header, *cells], right)]
    others = [m for m in report.measurements if m.id.startswith("corruption.") and not section_corruption.is_cell(m)]
    return [*blocks, *_measurements(others)]


def _stability(report: Report) -> list[str]:
    found, blocks = section_stability.table(report), []
    if found:
        header, rows = found
        right = tuple(range(section_stability.TEXT_COLUMNS, len(header)))
        kinds = intervals.kinds(m for row in section_stability.cells(report).values() for m in row.values())
        said = f"95 % intervals: {kinds}. {section_stability.origin(report)}" if kinds else ""
        blocks = [markup.paragraph(said or section_stability.origin(report)), markup.table([header, *rows], right)]
    means = [m for m in report.measurements if m.id.startswith("stability.") and not section_stability.is_cell(m)]
    return [*blocks, *_measurements(means)]


def _calibration(report: Report) -> list[str]:
    found = section_results.reliability_series(report)
    if not found:
        return []
    blocks = [markup.paragraph(section_plots.calibration_lead(report, found)), *_kind(report, "calibration.")]
    for series in found:
        columns = series.columns
        rows = [["Confidence", "Accuracy", "95 % interval", "Count"]]
        ends = [columns.get(name, [None] * len(columns["count"])) for name in ("low", "high")]
        for sure, right, count, *interval in zip(
            *(columns[name] for name in ("confidence", "accuracy", "count")), *ends, strict=True
        ):
            if count:
                m = Measurement("", right, "fraction", count, *interval)
                sure = "-" if sure is None else reading.quantity(sure, "fraction")
                rows.append([sure, reading.number(m), reading.interval(m) or "none", count])
        blocks += [f"### {markup.safe(section_plots.reliability_caption(series))}", markup.table(rows, (0, 1, 2, 3))]
    return blocks


def _divergence(report: Report) -> list[str]:
    return [*_numbers(report.get_series("geometry.divergence_curve")), *_ends(report, ("divergence",))]


def _numbers(series: Series | None) -> list[str]:
    """Return a series as a table if it is short, else a reference to its plot."""
    if series is None or not series.columns:
        return []
    columns = list(series.columns)
    rows = list(zip(*series.columns.values(), strict=True))
    if len(rows) > _LONGEST:
        return [_DRAWN]
    cells = [[reading.words(_rounded(value)) for value in row] for row in rows]
    return [markup.table([[reading.nice(name) for name in columns], *cells], tuple(range(len(columns))))]


def _rounded(value):
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _drawn(report: Report, *identities: str) -> list[str]:
    """Return a reference to the HTML page if one of these series exists."""
    return [_DRAWN] if any(report.get_series(identity) for identity in identities) else []


def _sensitivity(report: Report) -> list[str]:
    numbers = [m for m in report.measurements if m.id.startswith("sensitivity.") and not section_tokens.is_token(m)]
    return [*_measurements(numbers), *_drawn(report, "sensitivity.maps", "sensitivity.classes")]


def _further(report: Report) -> list[str]:
    chosen = section_results.further_measurements(report)
    return [markup.paragraph(section_results.further_lead(chosen)), *_measurements(chosen)] if chosen else []


def _doctor(report: Report) -> list[str]:
    found = [
        [reading.nice(f.check), f.verdict, f.evidence, f.remedy or "-"] for f in section_results.worst_first(report)
    ]
    table = markup.table([["Check", "Verdict", "Evidence", "Remedy"], *found])
    return [markup.paragraph(section_results.doctor_lead(report)), table] if found else []


def _missing(report: Report) -> list[str]:
    return [section_results.MISSING, markup.listing(report.not_measured)] if report.not_measured else []


def _protocol(report: Report) -> list[str]:
    blocks = []
    if report.training:
        pairs = [[reading.nice(name), value] for name, value in reading.flat(report.training)]
        blocks += ["### Training", markup.table([["Setting", "Value"], *pairs])]
    settings = section_protocol.attack_settings(report)
    if settings:
        blocks += ["### Attacks", markup.table(settings)]
    return blocks


def _pairs(report: Report) -> list[str]:
    return _ends(report, ("pairs", "shares"))


def _history(report: Report) -> list[str]:
    return _ends(report, ("losses", "accuracy"))


def _ends(report: Report, groups: tuple[str, ...]) -> list[str]:
    """Build tables of logged values: the first and the last epoch that has each of them."""
    blocks = []
    for identity, (_, stage) in section_plots.HISTORIES.items():
        series = report.get_series(identity)
        if series is None or "epoch" not in series.columns:
            continue
        found = reading.history_groups(series.columns)
        rows = []
        for name in (name for group in groups for name in found[group]):
            known = [value for value in series.columns[name] if isinstance(value, (int, float))]
            rows.append([reading.nice(name), *(f"{value:.4g}" for value in (known[0], known[-1]))])
        if rows:
            blocks.append(markup.table([[f"Logged{stage}", "first", "last"], *rows], (1, 2)))
    return blocks


def _identity(report: Report) -> list[str]:
    data, _ = reading.by_size(report.data)
    rows = reading.flat({"model": report.model, "data": data, "run_sha256": report.run_sha256})
    blocks = [markup.table([["Name", "Value"], *rows])]
    if report.environment:
        blocks += ["### Environment", markup.table([["Name", "Value"], *reading.flat(report.environment)])]
    return blocks


def _cost(report: Report) -> list[str]:
    rows = reading.cost_rows(report)
    return [markup.table([["Name", "Value"], *rows])] if rows else []


def _configuration(report: Report) -> list[str]:
    return [markup.code(markup.printable(report.configuration))] if report.configuration.strip() else []


_BUILDERS = {
    "threat": _threat,
    "curve": _curve,
    "attacks": _attacks,
    "examples": _examples,
    "classes": _classes,
    "corruptions": _corruptions,
    "stability": _stability,
    "noise": lambda report: [*_kind(report, "noise."), *_drawn(report, "noise.examples", "noise.replacement")],
    "calibration": _calibration,
    "divergence": _divergence,
    "features": lambda report: _drawn(report, "geometry.feature_map"),
    "sensitivity": _sensitivity,
    "tokens": lambda report: [*_kind(report, section_tokens.PREFIX), *_drawn(report, "sensitivity.tokens")],
    "further": _further,
    "doctor": _doctor,
    "missing": _missing,
    "protocol": _protocol,
    "pairs": _pairs,
    "history": _history,
    "identity": _identity,
    "cost": _cost,
    "configuration": _configuration,
}
