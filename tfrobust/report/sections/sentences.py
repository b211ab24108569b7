"""Summaries: one sentence for each section of a report."""

from tfrobust.report import intervals, reading
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
    results as section_results,
)
from tfrobust.report.sections import (
    stability as section_stability,
)
from tfrobust.structs import Series


def sentence(report: Report, anchor: str) -> str:
    """Return the one-sentence summary of a section; "" if it has none.

    Args:
        report: any.
        anchor: anchor of the section, as in `sections`.
    """
    return _SENTENCES[anchor](report) if anchor in _SENTENCES else ""


def _curve(report: Report) -> str:
    found = []
    for key, columns in section_results.accuracy_curves(report):
        pairs = zip(columns["epsilon"], columns["accuracy"], strict=True)
        points = sorted(pair for pair in pairs if None not in pair)
        if len(points) < 2 or not points[0][1]:
            continue
        (start, first), (end, last) = points[0], points[-1]
        of = ", ".join(filter(None, (section_results.attack_caption(key), section_results.images_of(report, columns))))
        text = f"Under {of}, {_share(first)} at epsilon {start:.6g} become"
        text += f" {_share(last)} at {end:.6g}"
        half = next((epsilon for epsilon, value in points if value <= first / 2), None)
        found.append(text + (f"; by {half:.6g} more than half of it is lost" if half not in (None, end) else ""))
    return _joined(found)


def _attacks(report: Report) -> str:
    rows = [row for row in reading.attack_rows(report.measurements) if row.accuracy.value is not None]
    worst = reading.strongest(rows)
    if worst is None:
        return ""
    which = f"Of {len(rows)} attacks" if len(rows) > 1 else "The only attack run,"
    margin = intervals.in_brackets(worst.accuracy)
    early = ", though its time budget ended it early" if worst.is_upper_bound else ""
    most = "leaves the least, " if len(rows) > 1 else "leaves "
    return f"{which} {worst.attack} within {worst.budget} {most}{reading.number(worst.accuracy)}{margin}{early}."


def _examples(report: Report) -> str:
    found = [example for one in section_examples.shown(report) for example in one.examples]
    fallen = sum(example.fallen for example in found)
    if not found:
        return ""
    weak = sum(example.falls_elsewhere for example in found if not example.fallen)
    others = f"{len(found) - fallen} that it does not"
    others += f" (attacks measured in this report bring down {weak} of these)" if weak else ""
    return f"{fallen} images that the attack brings down and {others}, to judge by eye."


def _classes(report: Report) -> str:
    found = section_classes.classes(report)
    parts = []
    for (heading, column), when in zip(found.columns if found else (), ("clean", "attacked"), strict=False):
        name, m = section_classes.worst(report, column)
        parts.append(f"{when if heading == 'Clean' else f'under {heading}'} {name} with {reading.number(m)} of {m.n}")
    return f"Right least often is {' and '.join(parts)}." if parts else ""


def _corruptions(report: Report) -> str:
    found = [
        (m.value, name, severity)
        for name, row in section_corruption.cells(report).items()
        for severity, m in row.items()
        if m.value is not None
    ]
    mean = report.get("corruption.mean.accuracy")
    parts = []
    if mean is not None and mean.value is not None:
        parts.append(f"on average {reading.number(mean)} stay right")
    if found:
        value, name, severity = min(found)
        parts.append(f"worst is {reading.nice(name)} at severity {severity} with {_share(value)}")
    return _joined(parts)


def _stability(report: Report) -> str:
    flips = {name: row.get("flip_probability") for name, row in section_stability.cells(report).items()}
    known = {name: m for name, m in flips.items() if m is not None and m.value is not None}
    mean, parts = report.get("stability.mean.flip_probability"), []
    if mean is not None and mean.value is not None:
        parts.append(f"from one frame to the next {reading.number(mean)} of the predictions flip")
    if known:
        name = max(known, key=lambda name: known[name].value)
        parts.append(f"most under {reading.nice(name)}, {reading.number(known[name])}")
    return _joined(parts)


def _numbers(*prefixes: str, limit: int = 3):
    """Return a function that lists the first measurements whose ids have one of these prefixes."""

    def said(report: Report) -> str:
        found = [m for m in reading.in_order(report) if m.id.startswith(prefixes) and m.value is not None]
        return _joined(f"{reading.label(m)}: {reading.number(m)}" for m in found[:limit])

    return said


def _calibration(report: Report) -> str:
    parts = []
    for series in section_results.reliability_series(report):
        suffix = series.id.removeprefix("calibration.reliability")
        when = f"under {section_results.budget_caption(suffix[1:])}" if suffix else "clean"
        error, gap = report.get(f"calibration{suffix}.ece"), _confidence_gap(series)
        if error is None or error.value is None or gap is None:
            continue
        kind = "more" if gap > 0 else "less"
        parts.append(
            f"{when}, the calibration error (ECE) is {reading.number(error)} and the model is on average"
            f" {reading.per_cent(abs(gap))} points {kind} sure than right"
        )
    return _joined(parts)


def _confidence_gap(series: Series) -> float | None:
    """Compute mean confidence minus accuracy; positive if the model is over-confident."""
    rows = zip(*(series.columns[name] for name in ("confidence", "accuracy", "count")), strict=True)
    known = [row for row in rows if None not in row and row[2]]
    total = sum(count for *_, count in known)
    return sum((sure - right) * count for sure, right, count in known) / total if total else None


def _doctor(report: Report) -> str:
    counts = reading.doctor_counts(report)
    if not report.doctor:
        return ""
    said = f"{counts['pass']} of {len(report.doctor)} checks of the evaluation itself passed"
    for verdict in ("fail", "warn"):
        names = [reading.nice(finding.check) for finding in report.doctor if finding.verdict == verdict]
        said += f"; {verdict}: {', '.join(names[:4])}" + (", ..." if len(names) > 4 else "") if names else ""
    return f"{said}."


def _missing(report: Report) -> str:
    count = len(report.not_measured)
    rest = f", and {count - 1} more" if count > 1 else ""
    return f"{report.not_measured[0].split(':')[0].rstrip('.')}{rest}." if count else ""


def _protocol(report: Report) -> str:
    training = report.training
    parts = [f"by {training['method']}"] if isinstance(training.get("method"), str) else []
    parts += [f"for {training['epochs']} epochs"] if isinstance(training.get("epochs"), int) else []
    worst = reading.strongest(reading.attack_rows(report.measurements))
    trained = f"trained {' '.join(parts)}" if parts else ""
    attacked = f"attacked by {worst.attack} with {worst.effort}" if worst and worst.effort else ""
    return _joined([", ".join(filter(None, (trained, attacked)))])


def _history(report: Report) -> str:
    series = report.get_series("training.history")
    columns = {} if series is None else series.columns
    name = next((one for one in ("val_robust_accuracy", "val_clean_accuracy") if one in columns), None)
    rows = zip(columns.get("epoch", ()), columns.get(name, ()), strict=False)
    known = [(value, epoch) for epoch, value in rows if isinstance(value, (int, float)) and epoch is not None]
    if not known:
        return ""
    best, epoch = max(known, key=lambda pair: pair[0])
    what = reading.nice(name)
    return f"The {what} ended at {_share(known[-1][0])}; its best was {_share(best)} after epoch {epoch}."


def _identity(report: Report) -> str:
    size, data = report.data.get("test_size"), report.data["name"]
    examples = reading.examples_of(report.data)
    judged = f"{size} test {examples} of {data}" if size else f"test {examples} of {data}"
    return f"Judged on {judged}; hashes tie the numbers to these weights and these {examples}."


def _cost(report: Report) -> str:
    return _joined(f"{name} {value}" for name, value in reading.cost_rows(report)[:3])


def _share(value: float) -> str:
    return reading.quantity(value, "fraction")


def _further(report: Report) -> str:
    count = len(section_results.further_measurements(report))
    return f"{count} number{'s' if count > 1 else ''} that no other section shows." if count else ""


def _joined(parts) -> str:
    text = "; ".join(filter(None, parts))
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _fixed(text: str):
    return lambda report: text


_SENTENCES = {
    "threat": _fixed("What the numbers hold against, and what they say nothing about."),
    "curve": _curve,
    "attacks": _attacks,
    "examples": _examples,
    "classes": _classes,
    "corruptions": _corruptions,
    "stability": _stability,
    "noise": _numbers("noise."),
    "calibration": _calibration,
    "divergence": _numbers("geometry.r_div", limit=1),
    "features": _fixed("A picture to look for overlaps in, not a measurement."),
    "sensitivity": _numbers("sensitivity.agreement", limit=1),
    "tokens": _numbers("sensitivity.tokens.correlation", limit=1),
    "further": _further,
    "doctor": _doctor,
    "missing": _missing,
    "protocol": _protocol,
    "pairs": _fixed("Which images the training drew together and pushed apart."),
    "history": _history,
    "identity": _identity,
    "cost": _cost,
    "configuration": _fixed("The settings that made all this, to make it again."),
}
