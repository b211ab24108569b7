"""Differences between two reports in one number, with an interval: paired over the same images, or independent."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tfrobust.evaluation.engine import statistics
from tfrobust.report import protocol
from tfrobust.report.catalog.under_attack import CLEAN
from tfrobust.report.schema import Report

PAIRED, INDEPENDENT = "paired", "independent"
_CLEAN = CLEAN.id("clean")


class Difference(NamedTuple):
    """The difference between one number of two reports.

    Attributes:
        value: the difference, in the number's own unit.
        low: lower end of the 95 % interval; None without one.
        high: upper end of the 95 % interval; None without one.
        kind: basis of the interval: `PAIRED`, `INDEPENDENT`, or "" without one.
    """

    value: float
    low: float | None
    high: float | None
    kind: str


def difference(identity: str, report: Report, reference: Report) -> Difference | None:
    """Return the number in `report` minus that in `reference`; None where either is missing.

    The interval is paired if both reports record which images were classified correctly and were evaluated on the same
    images: the variation that the two models share then cancels. That of a relative drop under attack is paired, too.
    Otherwise it is computed from the two intervals as for independent samples, which is wider than necessary if the
    images are the same.
    """
    measurement, other = report.get(identity), reference.get(identity)
    if measurement is None or other is None or measurement.value is None or other.value is None:
        return None
    pairs = outcomes(identity, report), outcomes(identity, reference)
    pairable = protocol.same_data([report, reference])
    pairable &= protocol.drawn_by(identity, report) == protocol.drawn_by(identity, reference)
    if all(pairs) and len(pairs[0]) == len(pairs[1]) and pairable:
        return Difference(*paired_shares(*pairs), PAIRED)
    scores = _drop_scores(identity, report), _drop_scores(identity, reference)
    if all(scores) and len(scores[0]) == len(scores[1]) and np.ptp(np.subtract(*scores)) > 1e-9 and pairable:
        return Difference(*statistics.paired_difference(*scores), PAIRED)
    ends = (measurement.low, measurement.high, other.low, other.high)
    if None in ends:
        return Difference(measurement.value - other.value, None, None, "")
    first, second = (measurement.value, measurement.low, measurement.high), (other.value, other.low, other.high)
    return Difference(measurement.value - other.value, *independent_interval(first, second), INDEPENDENT)


def _drop_scores(identity: str, report: Report) -> list[float]:
    """Return `statistics.drop_scores` of a relative drop; [] without outcomes that agree with it."""
    attacked = outcomes(f"{identity.removesuffix('.drop')}.accuracy", report) if identity.endswith(".drop") else ""
    clean, drop = outcomes(_CLEAN, report)[: len(attacked)], report[identity].value
    if not attacked or drop is None or "1" not in clean or len(clean) < len(attacked):
        return []
    # Unless the attack took the first images, its drop is not that of these clean outcomes.
    if abs(1 - attacked.count("1") / clean.count("1") - drop) > 1e-6:
        return []
    return list(statistics.drop_scores(*(np.array(list(row)) == "1" for row in (clean, attacked))))


def paired_shares(first: str, second: str) -> tuple[float, float, float]:
    """Compute the difference of two shares over the same examples, with its interval.

    d = (f10 - f01) / n, where f10 and f01 count the examples that only the first or only the second classifies
    correctly. With p10 = (f10 + 1) / (n + 2) and p01 = (f01 + 1) / (n + 2), the interval is p10 - p01 -+ z sqrt((p10 +
    p01 - (p10 - p01)^2) / (n + 2)). Unlike Wald's interval, it has a width even if the two agree on every example.

    Args:
        first: "1" (correct) or "0" for each of n >= 1 examples.
        second: the same for the other model, in the same order.

    Returns:
        (d, low, high), within [-1, 1].

    Source:
        Bonett and Price 2012, Journal of Educational and Behavioral Statistics 37, 479-488.
    """
    alone = [sum(a == digit and b != digit for a, b in zip(first, second, strict=True)) for digit in "10"]
    count = len(first) + 2
    more, fewer = ((exclusive + 1) / count for exclusive in alone)
    error = statistics.Z * math.sqrt((more + fewer - (more - fewer) ** 2) / count)
    low, high = max(-1.0, more - fewer - error), min(1.0, more - fewer + error)
    return (alone[0] - alone[1]) / len(first), low, high


def independent_interval(first: tuple[float, float, float], second: tuple[float, float, float]) -> tuple[float, float]:
    """Compute the interval of a difference a - b from those of a and b, as for independent samples.

    (a - b - sqrt((a - a_low)^2 + (b_high - b)^2), a - b + sqrt((a_high - a)^2 + (b - b_low)^2))

    Args:
        first: (a, a_low, a_high), 95 %.
        second: (b, b_low, b_high), 95 %.

    Returns:
        (low, high) of a - b, 95 %.

    Source:
        Newcombe 1998, Statistics in Medicine 17, 873-890, method 10 (with Wilson's intervals); Zou and Donner 2008,
        Statistics in Medicine 27, 1693-1702, for any others.
    """
    (a, a_low, a_high), (b, b_low, b_high) = first, second
    return a - b - math.hypot(a - a_low, b_high - b), a - b + math.hypot(a_high - a, b - b_low)


def outcomes(identity: str, report: Report) -> str:
    """Return "1" (correct) or "0" per example of a measurement; "" unless the report has a row that agrees with it."""
    series = report.get_series(f"outcomes.{identity}")
    rows = series.columns.get("right", []) if series is not None else []
    row = rows[0] if len(rows) == 1 and isinstance(rows[0], str) else ""
    measurement = report.get(identity)
    if measurement is None or measurement.value is None:
        return ""
    # A row whose share of correct examples differs from the measurement does not belong to it.
    fits = (
        set(row) <= {"0", "1"}
        and len(row) == measurement.n
        and abs(row.count("1") - measurement.value * len(row)) < 0.5
    )
    return row if row and fits else ""
