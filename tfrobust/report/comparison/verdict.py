"""The verdict of a comparison in words: which model is more robust, by how much, at what price; or that none is."""

from __future__ import annotations

from tfrobust.common.console import duration
from tfrobust.report import attack_table, formats, protocol, reading
from tfrobust.report.comparison import groups as grouping
from tfrobust.report.comparison.reports import Comparison
from tfrobust.report.difference import Difference, difference
from tfrobust.report.schema import Report
from tfrobust.structs import Measurement

CLEAN = "accuracy.clean"
# More names than these are counted in place of listed.
_MOST_NAMES = 5
# The margins of the models that come closest.
_MOST_MARGINS = 2


def common_attack(comparison: Comparison) -> str | None:
    """Return the id of the accuracy under the attack that most models share, the strongest of several; None without."""
    names: dict[str, list[str]] = {}
    for name, report in comparison.named:
        for row in attack_table.attack_rows(report.measurements):
            if row.accuracy.value is not None and _value(report, CLEAN) is not None:
                names.setdefault(row.accuracy.id, []).append(name)
    reports = dict(comparison.named)

    def strength(identity: str) -> tuple[int, float]:
        return len(names[identity]), -sum(reports[name][identity].value for name in names[identity])

    return max(names, key=strength, default=None)


def verdict(comparison: Comparison) -> list[str]:
    """Return the verdict as sentences, the answer first; [] for a single model."""
    if len(comparison.named) < 2:
        return []
    identity = common_attack(comparison) or CLEAN
    rows = [(name, report) for name, report in comparison.named if _value(report, identity) is not None]
    quality = "more robust" if identity != CLEAN else "more accurate"
    if len(rows) < 2:
        shared = "an attack" if identity != CLEAN else "a clean accuracy"
        return [f"The reports do not tell which model is {quality}: no two of them share {shared}."]
    obstacle = _obstacle(comparison, rows, identity)
    if obstacle:
        return [f"The reports do not tell which model is {quality}: {obstacle}."]
    rows.sort(key=lambda row: -row[1][identity].value)
    examples = reading.examples_of(rows[0][1].data)
    under = f"under {reading.label(rows[0][1][identity])}" if identity != CLEAN else f"on unmodified {examples}"
    (best, report), *_ = rows
    sentences = _answer(comparison, [name for name, _ in rows], identity, quality, under, examples)
    rival = max((name for name, _ in rows if name != best), key=lambda name: _value(dict(rows)[name], CLEAN) or 0.0)
    sentences += _against(comparison, [name for name, _ in rows], identity)
    if identity != CLEAN:
        sentences += _price(comparison, best, rival, examples)
    sentences += _time(comparison, best, rival)
    missing = [name for name, other in comparison.named if _value(other, identity) is None]
    sentences += [f"Not compared, since not evaluated {under}: {_listed(missing)}."] if missing else []
    return sentences


def _obstacle(comparison: Comparison, rows: list[tuple[str, Report]], identity: str) -> str:
    """Return why the accuracies cannot be compared; "" if they can."""
    names = {name for name, _ in rows}
    runs = [run for name in names for run in (comparison.groups[name].values() if comparison.groups else ())]
    runs = [run for run in (runs or [report for _, report in rows]) if _value(run, identity) is not None]
    if not protocol.same_data(runs):
        return "they were evaluated on different data, or it is unknown on which"
    unlike = {name for run in runs for name in protocol.differences(runs[0][identity], run[identity])}
    if unlike:
        return f"their protocols differ in {', '.join(sorted(unlike))}"
    if any("bound" in run[identity].settings for run in runs):
        return "a time budget ended the attacks, so the accuracies are bounds"
    failed = sorted({run.model["name"] for run in runs if reading.doctor_counts(run)["fail"]})
    return f"checks of the evaluation failed for {_listed(failed)}" if failed else ""


def _answer(
    comparison: Comparison, names: list[str], identity: str, quality: str, under: str, examples: str
) -> list[str]:
    """Return which model is best, and which others it differs from significantly."""
    reports, (best, *rivals) = dict(comparison.named), names
    values = {name: formats.number(reports[name][identity]) for name in names}
    gaps = {name: _difference(comparison, identity, best, name) for name in rivals}
    # The pairs of seeds may say the opposite of the means over all seeds, of which some have no pair.
    beaten = [name for name, gap in gaps.items() if _sign(gap) > 0]
    open_ = [name for name in rivals if name not in beaten]
    basis = "seeds" if comparison.groups is not None else examples
    if len(rivals) == 1:
        (other,), (gap,) = gaps, gaps.values()
        if beaten:
            return [
                f"{best} is {quality} than {other}: {under} it is correct on {values[best]} of the {examples}, {other} "
                f"on {values[other]}, a difference of {_points(gap)}."
            ]
        return [
            f"The {basis} do not tell which of {best} and {other} is {quality}: {under} they are correct on "
            f"{values[best]} and {values[other]}, and the difference of {_points(gap)} may be chance."
        ]
    top = f"{under} it is correct on {values[best]} of the {examples}"
    if not beaten:
        return [f"The {basis} do not tell which of {len(names)} models is {quality}: {best} is ahead, but {top}."]
    answer = f"{best} is {quality} than {_listed(beaten)}: {top}, {_margins(beaten, gaps)}."
    if not open_:
        return [answer]
    return [answer, f"The {basis} do not tell it from {_listed(open_)} ({_margins(open_, gaps)})."]


def _against(comparison: Comparison, names: list[str], identity: str) -> list[str]:
    """Return how several models compare with a reference that was named and is not the best of them."""
    reference = comparison.reference
    if reference not in names[1:] or len(names) < 3:
        return []
    quality = "robust" if identity != CLEAN else "accurate"
    better, equal, worse = (
        f"more {quality} than the reference {reference}",
        "not distinguishable from it",
        f"less {quality}",
    )
    groups: dict[str, list[str]] = {better: [], equal: [], worse: []}
    for name in names:
        if name != reference:
            sign = _sign(_difference(comparison, identity, name, reference))
            groups[{1: better, 0: equal, -1: worse}[sign]].append(name)
    clauses = [f"{words}: {_listed(members) if members else 'none'}" for words, members in groups.items()]
    text = "; ".join(clauses)
    return [f"{text[0].upper()}{text[1:]}."]


def _margins(names: list[str], gaps: dict[str, Difference | None]) -> str:
    """Return by how much the best model exceeds others: "+3.1 points (95 % interval +1.2 to +5.0) ahead of trades"."""
    sizes = {name: f"{_points(gaps[name])} " if gaps[name] else "" for name in names[:_MOST_MARGINS]}
    margins = [f"{size}ahead of {name}" for name, size in sizes.items()]
    return " and ".join([*margins, *(["more of the others"] if len(names) > _MOST_MARGINS else [])])


def _price(comparison: Comparison, best: str, rival: str, examples: str) -> list[str]:
    """Return what the best model loses or gains in clean accuracy against the rival with the highest."""
    reports = dict(comparison.named)
    gap = _difference(comparison, CLEAN, best, rival)
    if gap is None:
        return []
    shares = f"{formats.number(reports[best][CLEAN])} against {formats.number(reports[rival][CLEAN])}"
    both = f"{shares} of {rival}"
    if not _sign(gap):
        return [f"On unmodified {examples} it does not differ significantly from {rival}: {shares}, {_points(gap)}."]
    if _sign(gap) > 0:
        return [f"It is also more accurate on unmodified {examples}: {both}, by {_points(gap)}."]
    return [f"Its price is accuracy on unmodified {examples}: {both}, {_points(gap)}."]


def _time(comparison: Comparison, best: str, rival: str) -> list[str]:
    """Return the times of both trainings, if single runs on equal machines recorded them."""
    if comparison.groups is not None:
        return []
    reports = [dict(comparison.named)[name] for name in (best, rival)]
    times = [report.cost.get("training_seconds") for report in reports]
    machines = {
        str([report.environment.get(key) for key in ("machine", "processors", "devices")]) for report in reports
    }
    if len(machines) > 1 or not all(isinstance(time, (int, float)) and time > 0 for time in times):
        return []
    return [f"Its training took {duration(times[0])} ({rival}: {duration(times[1])})."]


def _difference(comparison: Comparison, identity: str, first: str, second: str) -> Difference | None:
    if comparison.groups is not None:
        return grouping.difference(identity, comparison.groups[first], comparison.groups[second])
    reports = dict(comparison.named)
    return difference(identity, reports[first], reports[second])


def _sign(gap: Difference | None) -> int:
    """Return 1 or -1 if the interval of a difference lies on that side of 0, else 0; 0 without an interval."""
    if gap is None or gap.low is None or gap.high is None:
        return 0
    return int(gap.low > 0) - int(gap.high < 0)


def _points(gap: Difference | None) -> str:
    """Return a difference of accuracies: "+65.9 points (95 % interval +65.0 to +66.8)"."""
    if gap is None:
        return "unknown size"
    numbers = [gap.value] if not gap.kind else [gap.value, gap.low, gap.high]
    value, *ends = formats.per_cents(*numbers, sign="+")
    return f"{value} points" + (f" (95 % interval {ends[0]} to {ends[1]})" if ends else " (without an interval)")


def _listed(names: list[str]) -> str:
    if len(names) > _MOST_NAMES:
        return f"{len(names)} models"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _value(report: Report, identity: str) -> float | None:
    measured: Measurement | None = report.get(identity)
    return None if measured is None else measured.value
