"""Sections of the HTML report: the numbers. Each is (lead sentence, HTML), or None without data."""

import re

from tfrobust.report import page, plots, reading
from tfrobust.report.page import text
from tfrobust.report.plots import Line
from tfrobust.report.schema import Report
from tfrobust.structs import Measurement, Series


def accuracy_curves(report: Report) -> list[tuple[str, dict]]:
    """The measured curves of accuracy against epsilon: ("pgd_linf", columns) each."""
    found = []
    for series in report.series:
        match = re.fullmatch(r"attack\.(.+)\.curve", series.id)
        if match and {"epsilon", "accuracy"} <= series.columns.keys():
            found.append((match[1], series.columns))
    return found


def attack_caption(key: str) -> str:
    """ "pgd_linf" as people read it: "pgd, Linf"."""
    attack, _, norm = key.rpartition("_")
    return f"{attack}, {reading.NORM_NAMES[norm]}" if attack and norm in reading.NORM_NAMES else key


def accuracy_curve(report: Report) -> tuple[str, str] | None:
    """Accuracy against epsilon per attack, as a plot and as a table."""
    measured = accuracy_curves(report)
    if not measured:
        return None
    lines = [
        Line(
            attack_caption(key),
            columns["epsilon"],
            columns["accuracy"],
            columns.get("low"),
            columns.get("high"),
        )
        for key, columns in measured
    ]
    trained = _training_budget(report, {key.rpartition("_")[2] for key, _ in measured})
    plot = plots.curves(
        "curve-accuracy",
        lines,
        x_label="epsilon (pixels in [0, 1])",
        y_label="accuracy",
        percent=True,
        mark=trained,
    )
    lead = "How accuracy falls as the attacker may change each image more. Bands are 95 % intervals."
    if trained is not None:
        lead += f" The dotted line is the budget of training, {trained:.6g}."
    return lead, page.figures([page.figure("curve-accuracy", "Accuracy under attack", plot), _curve_table(measured)])


def _training_budget(report: Report, norms: set[str]) -> float | None:
    """The epsilon of training, where it is one on the same scale: a number, in the norm of all curves."""
    epsilon = report.training.get("epsilon")
    is_number = isinstance(epsilon, (int, float)) and not isinstance(epsilon, bool)
    return epsilon if is_number and norms == {report.training.get("norm")} else None


def _curve_table(measured: list[tuple[str, dict]]) -> str:
    """The curves' numbers: one row per epsilon, one column per attack."""
    points = [{} for _ in measured]
    for found, (_, columns) in zip(points, measured, strict=True):
        empty = [None] * len(columns["epsilon"])
        bounds = (columns.get("low") or empty, columns.get("high") or empty)
        for epsilon, value, low, high in zip(columns["epsilon"], columns["accuracy"], *bounds, strict=True):
            found[epsilon] = Measurement("", value, "fraction", None, low, high)
    rows = []
    for epsilon in sorted({epsilon for found in points for epsilon in found}):
        cells = [f"{reading.number(m)}<small>{reading.interval(m)}</small>" for m in (f.get(epsilon) for f in points)]
        rows.append([f"{epsilon:.6g}", *cells])
    names = [attack_caption(key) for key, _ in measured]
    numeric = tuple(range(1, len(names) + 1))
    return f'<div class="dense">{page.table(["Epsilon", *names], rows, numeric)}</div>'


def attacks(report: Report) -> tuple[str, str] | None:
    """The attack table, the clean accuracy on top."""
    rows = reading.attack_rows(report.measurements, members=True)
    if not rows:
        return None
    cells = []
    clean = report.get("accuracy.clean")
    if clean is not None:
        cells.append(_accuracy_cells("no attack", "the images as they are", clean, None))
    for row in rows:
        name = f"{row.attack}: after {row.member}" if row.member else row.attack
        detail = ", ".join(part for part in (row.budget, row.effort) if part)
        if row.is_upper_bound:
            detail += "; upper bound: ended by its time budget"
        cells.append(_accuracy_cells(name, detail, row.accuracy, row.drop))
    lead = "Accuracy on the same test images while each is attacked; under it the 95 % interval in per cent."
    header = ["Attack", "", "Accuracy", "Relative drop", "Images"]
    return lead, page.table(header, cells, numeric=(2, 3, 4), stack=True)


def _accuracy_cells(name: str, detail: str, accuracy: Measurement, drop: Measurement | None) -> list[str]:
    return [
        f"<b>{text(name)}</b><small>{text(detail)}</small>",
        page.bar(accuracy.value, accuracy.low, accuracy.high),
        f"<b>{text(reading.number(accuracy))}</b><small>{text(reading.interval(accuracy))}</small>",
        f"{text(reading.number(drop))}<small>{text(reading.interval(drop))}</small>",
        text("-" if accuracy.n is None else accuracy.n),
    ]


def further(report: Report) -> tuple[str, str] | None:
    """Every measurement that no other section shows."""
    attacks = reading.attack_rows(report.measurements, members=True)
    shown = {m.id for row in attacks for m in (row.accuracy, row.drop) if m is not None}
    if attacks:
        shown.add("accuracy.clean")
    if reliability_series(report):
        shown |= {m.id for m in report.measurements if m.id.startswith("calibration.")}
    elsewhere = ("cost.", "sensitivity.", "corruption.", "stability.", "noise.")
    chosen = [m for m in report.measurements if m.id not in shown and not m.id.startswith(elsewhere)]
    lead = f"Everything else that was measured. {reading.origin(chosen)}".strip()
    return (lead, measurement_table(chosen)) if chosen else None


def threat(report: Report) -> tuple[str, str] | None:
    """The threat statement and what was not measured."""
    if not report.threat and not report.not_measured:
        return None
    body = f"<p>{text(report.threat)}</p>" if report.threat else ""
    if report.not_measured:
        body += f"<h3>What was not measured</h3>{page.listing(report.not_measured)}"
    return "", body


def doctor(report: Report) -> tuple[str, str] | None:
    """The doctor's findings, the worst first."""
    if not report.doctor:
        return None
    order = ("fail", "warn", "pass")
    rows = []
    for finding in sorted(report.doctor, key=lambda finding: order.index(finding.verdict)):
        remedy = f"<small>Remedy: {text(finding.remedy)}</small>" if finding.remedy else ""
        badge = f'<span class="badge {finding.verdict}">{finding.verdict}</span>'
        rows.append([text(reading.nice(finding.check)), badge, f"{text(finding.evidence)}{remedy}"])
    counts = reading.doctor_counts(report)
    lead = (
        "Checks of the evaluation itself, for the mistakes that make a model look more robust than it is:"
        f" {counts['pass']} passed, {counts['warn']} warned, {counts['fail']} failed."
    )
    return lead, page.table(["Check", "Verdict", "Evidence"], rows, stack=True)


def reliability_series(report: Report) -> list[Series]:
    """The series that reliability diagrams are drawn from."""
    needed = {"confidence", "accuracy", "count"}
    return [s for s in report.series if s.id.startswith("calibration.reliability") and needed <= s.columns.keys()]


def measurement_table(measurements: list[Measurement]) -> str:
    """Measurements with value, interval and count."""
    rows = []
    for m in measurements:
        name = reading.label(m)
        identity = "" if name == m.id else f"<small><code>{text(m.id)}</code></small>"
        cells = (reading.number(m), reading.interval(m) or "-", "-" if m.n is None else m.n)
        rows.append([f"{text(name)}{identity}", *map(text, cells)])
    return page.table(["Measurement", "Value", "95 % interval", "n"], rows, numeric=(1, 2, 3), stack=True)
