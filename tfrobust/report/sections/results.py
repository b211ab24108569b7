"""Sections of the HTML report with numbers. Each is (lead sentence, HTML), or None without data."""

import re

from tfrobust.report import intervals, reading
from tfrobust.report.blocks import html as page
from tfrobust.report.blocks import plots
from tfrobust.report.blocks.html import text
from tfrobust.report.blocks.plots import Line
from tfrobust.report.schema import Report
from tfrobust.structs import Finding, Measurement, Series


def has_numbers(series: Series | None, *names: str) -> bool:
    """Return True if a series has these columns with only numbers and None: other programs may have written it."""
    found = series is not None and set(names) <= series.columns.keys()
    return found and all(
        value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
        for name in names
        for value in series.columns[name]
    )


def accuracy_curves(report: Report) -> list[tuple[str, dict]]:
    """Return the measured curves of accuracy against epsilon: ("pgd_linf", columns) each."""
    found = []
    for series in report.series:
        match = re.fullmatch(r"attack\.(.+)\.curve", series.id)
        if match and has_numbers(series, "epsilon", "accuracy", *_ends(series)):
            found.append((match[1], series.columns))
    return found


def _ends(series: Series) -> list[str]:
    return [name for name in ("low", "high") if name in series.columns]


def attack_caption(key: str) -> str:
    """Return the display name of "pgd_linf": "pgd, Linf"."""
    attack, _, norm = key.rpartition("_")
    return f"{attack}, {reading.NORM_NAMES[norm]}" if attack and norm in reading.NORM_NAMES else key


def budget_caption(key: str) -> str:
    """Return the display name of "pgd_linf_0.2": "pgd, Linf 0.2"."""
    attack, _, epsilon = key.rpartition("_")
    caption = attack_caption(attack)
    return f"{caption} {epsilon}" if caption != attack else key


def accuracy_curve(report: Report) -> tuple[str, str] | None:
    """Render accuracy against epsilon for each attack, as a plot and as a table."""
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
    lead = curve_lead(report)
    if trained is not None:
        lead += f" The dotted line is the budget of training, {trained:.6g}."
    return lead, page.figures([page.figure("curve-accuracy", "Accuracy under attack", plot), _curve_table(measured)])


def curve_lead(report: Report) -> str:
    """Return the lead: the content of the curves and the kind of their bands."""
    curves = [series for series in report.series if series.id.endswith(".curve")]
    known = []
    for series in curves:
        how = ", ".join(filter(None, (reading.effort(series.settings), images_of(report, series.columns))))
        name = attack_caption(series.id.removeprefix("attack.").removesuffix(".curve"))
        known += [f"{name}: {how}"] if how else []
    said = "; ".join(known)
    lead = f"How accuracy falls as the attacker may change each image more{f' ({said})' if said else ''}."
    return f"{lead} Bands are 95 % intervals ({intervals.kinds(curves)})."


def images_of(report: Report, columns: dict) -> str:
    """Describe the number of test images behind a curve, and whether they are a subset; "" if unknown."""
    counts = columns.get("n", ())
    if len(set(counts)) != 1 or type(counts[0]) is not int:
        return ""
    size = report.data.get("test_size")
    part = ", a part drawn by the seed" if isinstance(size, int) and counts[0] < size else ""
    return f"over {counts[0]} test images{part}"


def _training_budget(report: Report, norms: set[str]) -> float | None:
    """Return the epsilon of training if it has the curves' scale: a number, in the norm of all curves."""
    epsilon = report.training.get("epsilon")
    is_number = isinstance(epsilon, (int, float)) and not isinstance(epsilon, bool)
    return epsilon if is_number and norms == {report.training.get("norm")} else None


def curve_rows(measured: list[tuple[str, dict]]) -> list[tuple[str, list[Measurement | None]]]:
    """Return the curves' numbers: epsilon, and the accuracy under each attack there."""
    points = [{} for _ in measured]
    for found, (_, columns) in zip(points, measured, strict=True):
        empty = [None] * len(columns["epsilon"])
        bounds = (columns.get("low") or empty, columns.get("high") or empty)
        for epsilon, value, low, high in zip(columns["epsilon"], columns["accuracy"], *bounds, strict=True):
            if epsilon is not None:
                found[epsilon] = Measurement("", value, "fraction", None, low, high)
    epsilons = sorted({epsilon for found in points for epsilon in found})
    return [(f"{epsilon:.6g}", [found.get(epsilon) for found in points]) for epsilon in epsilons]


def _curve_table(measured: list[tuple[str, dict]]) -> str:
    rows = [
        [epsilon, *(f"{reading.number(m)}<small>{reading.interval(m)}</small>" for m in found)]
        for epsilon, found in curve_rows(measured)
    ]
    names = [attack_caption(key) for key, _ in measured]
    numeric = tuple(range(1, len(names) + 1))
    return f'<div class="dense">{page.table(["Epsilon", *names], rows, numeric)}</div>'


Entry = tuple[str, str, Measurement, Measurement | None]


def attack_entries(report: Report) -> list[Entry]:
    """Return (attack, budget and effort, accuracy, relative drop) of each attack, clean first; [] without attacks."""
    rows = reading.attack_rows(report.measurements, members=True)
    clean = report.get("accuracy.clean")
    found = (
        [("no attack", f"the {reading.examples_of(report.data)} as they are", clean, None)] if rows and clean else []
    )
    for row in rows:
        name = f"{row.attack}: after {row.member}" if row.member else row.attack
        detail = ", ".join(part for part in (row.budget, row.effort) if part)
        if row.is_upper_bound:
            detail += "; upper bound: ended by its time budget"
        found.append((name, detail, row.accuracy, row.drop))
    return found


def attacks_lead(entries: list[Entry]) -> str:
    """Return the lead: the content of the table of attacks and the kinds of intervals."""
    lead = "Accuracy on the same test images while each is attacked; under it the 95 % interval in per cent"
    said = intervals.kinds(accuracy for _, _, accuracy, _ in entries)
    drops = intervals.kinds(drop for *_, drop in entries)
    said = "; ".join(filter(None, (said, f"of relative drops {drops}" if drops else "")))
    return f"{lead} ({said})." if said else f"{lead}."


def attacks(report: Report) -> tuple[str, str] | None:
    """Render the attack table, with the clean accuracy on top."""
    entries = attack_entries(report)
    if not entries:
        return None
    cells = [_accuracy_cells(*entry) for entry in entries]
    header = ["Attack", "", "Accuracy", "Relative drop", "Images"]
    return attacks_lead(entries), page.table(header, cells, numeric=(2, 3, 4), stack=True)


def _accuracy_cells(name: str, detail: str, accuracy: Measurement, drop: Measurement | None) -> list[str]:
    return [
        f"<b>{text(name)}</b><small>{text(detail)}</small>",
        page.bar(accuracy.value, accuracy.low, accuracy.high),
        f"<b>{text(reading.number(accuracy))}</b><small>{text(reading.interval(accuracy))}</small>",
        f"{text(reading.number(drop))}<small>{text(reading.interval(drop))}</small>",
        text("-" if accuracy.n is None else accuracy.n),
    ]


def further(report: Report) -> tuple[str, str] | None:
    """Render every measurement that no other section shows."""
    chosen = further_measurements(report)
    return (further_lead(chosen), measurement_table(chosen)) if chosen else None


def further_lead(chosen: list[Measurement]) -> str:
    """Return the lead: what the measurements are, and the origin of their images."""
    return f"Everything else that was measured. {reading.origin(chosen)}".strip()


def further_measurements(report: Report) -> list[Measurement]:
    """Return the measurements that no section of their own shows."""
    attacks = reading.attack_rows(report.measurements, members=True)
    shown = {m.id for row in attacks for m in (row.accuracy, row.drop) if m is not None}
    if attacks:
        shown.add("accuracy.clean")
    if reliability_series(report):
        shown |= {m.id for m in report.measurements if m.id.startswith("calibration.")}
    elsewhere = ("cost.", "sensitivity.", "corruption.", "stability.", "noise.")
    return [m for m in report.measurements if m.id not in shown and not m.id.startswith(elsewhere)]


def threat(report: Report) -> tuple[str, str] | None:
    """Render the threat statement."""
    return ("", f"<p>{text(report.threat)}</p>") if report.threat else None


MISSING = "What a reader might expect, and will not find here. No conclusion about it follows from this report."


def missing(report: Report) -> tuple[str, str] | None:
    """Render the list of what was not measured."""
    return (MISSING, page.listing(report.not_measured)) if report.not_measured else None


def doctor(report: Report) -> tuple[str, str] | None:
    """Render the doctor's findings, the worst first."""
    if not report.doctor:
        return None
    rows = []
    for finding in worst_first(report):
        remedy = f"<small>Remedy: {text(finding.remedy)}</small>" if finding.remedy else ""
        badge = f'<span class="badge {finding.verdict}">{finding.verdict}</span>'
        rows.append([text(reading.nice(finding.check)), badge, f"{text(finding.evidence)}{remedy}"])
    return doctor_lead(report), page.table(["Check", "Verdict", "Evidence"], rows, stack=True)


def worst_first(report: Report) -> list[Finding]:
    """Return the doctor's findings: failures, then warnings, then passed checks."""
    return sorted(report.doctor, key=lambda finding: ("fail", "warn", "pass").index(finding.verdict))


def doctor_lead(report: Report) -> str:
    """Return the lead: the doctor's purpose and the number of checks by verdict."""
    counts = reading.doctor_counts(report)
    return (
        "Checks of the evaluation itself, for the mistakes that make a model look more robust than it is:"
        f" {counts['pass']} passed, {counts['warn']} warned, {counts['fail']} failed."
    )


def reliability_series(report: Report) -> list[Series]:
    """Return the series that reliability diagrams are drawn from."""
    found = [series for series in report.series if series.id.startswith("calibration.reliability")]
    return [series for series in found if has_numbers(series, "confidence", "accuracy", "count", *_ends(series))]


def measurement_table(measurements: list[Measurement]) -> str:
    """Render measurements with value, interval and count."""
    rows = []
    for m in measurements:
        name = reading.label(m)
        identity = "" if name == m.id else f"<small><code>{text(m.id)}</code></small>"
        margin = f"{reading.interval(m)}<small>{text(intervals.kind(m))}</small>" if reading.interval(m) else "none"
        rows.append([f"{text(name)}{identity}", text(reading.number(m)), margin, text("-" if m.n is None else m.n)])
    return page.table(["Measurement", "Value", "95 % interval", "n"], rows, numeric=(1, 2, 3), stack=True)
