"""Groups of reports, one report per seed of the training: means, spread, and differences paired over seeds."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tfrobust.errors import InputError
from tfrobust.evaluation.engine import statistics
from tfrobust.report import protocol
from tfrobust.report.catalog.under_attack import PASSES
from tfrobust.report.difference import Difference
from tfrobust.report.schema import Report
from tfrobust.structs import Measurement

SEEDS = "seeds"  # the kind of a `Difference` that is paired over seeds
Runs = dict[int | None, Report]
_RUN_NAME = re.compile(r"(?P<group>.+)-seed(?P<seed>[0-9]+)")


class Spread(NamedTuple):
    """The distribution of one number over several trainings.

    Attributes:
        mean: of the values.
        deviation: their standard deviation, with n - 1 in the denominator; None for one value.
        low: lower end of Student's 95 % interval of the mean; None for one value.
        high: upper end; None for one value.
        count: number of values, n.
    """

    mean: float
    deviation: float | None
    low: float | None
    high: float | None
    count: int


def spread(values: Sequence[float], resolution: float = 0.0) -> Spread:
    """Return mean, standard deviation and Student's 95 % interval of the mean.

    Args:
        values: one value per training, n >= 1.
        resolution: see `statistics.student_interval`.

    Raises:
        ValueError: no values.
    """
    if not len(values):
        raise InputError("A mean needs at least one value.")
    mean = float(np.mean(values))
    if len(values) == 1:
        return Spread(mean, None, None, None, 1)
    ends = statistics.student_interval(values, resolution)
    return Spread(mean, float(np.std(values, ddof=1)), *ends, len(values))


def paired_spread(first: Mapping, second: Mapping, resolution: float = 0.0) -> Spread | None:
    """Return the `spread` of the differences first - second over the keys, such as seeds, that both have.

    Variation that the two trainings of a pair share, such as that of the data or the initial weights, cancels.

    Returns:
        The spread; None if no key is in both.
    """
    differences = [first[key] - second[key] for key in first if key in second]
    return spread(differences, resolution) if differences else None


def group(reports: list[Report]) -> dict[str, Runs]:
    """Group reports of models NAME-seed0, NAME-seed1, ... by NAME; any other name is a group of one.

    Returns:
        Name of the group -> seed -> report, in the order given; the seed of a group of one is None.

    Raises:
        ValueError: a model occurs twice.
    """
    groups: dict[str, Runs] = {}
    for report in reports:
        name = report.model["name"]
        match = _RUN_NAME.fullmatch(name)
        runs = groups.setdefault(match["group"] if match else name, {})
        seed = int(match["seed"]) if match else None
        if runs and (seed is None) != (None in runs):
            base = match["group"] if match else name
            raise InputError(f"{base} and {base}-seed... are both given; is the former one of the seeds? Leave it out.")
        if seed in runs:
            raise InputError(f"{name} is given twice; a group has one report per seed.")
        runs[seed] = report
    return groups


def summary(name: str, runs: Runs) -> Report:
    """Return a report whose measurements are means over the runs; `settings` has their standard deviations."""
    first = next(iter(runs.values()))
    ids = dict.fromkeys(m.id for report in runs.values() for m in report.measurements)
    means = [_mean([report[identity] for report in runs.values() if report.get(identity)]) for identity in ids]
    return dataclasses.replace(first, model={**first.model, "name": name, "version": None}, measurements=means)


def pairs(first: Runs, second: Runs) -> list[int | None]:
    """Return the seeds that both groups have and whose two runs were evaluated on the same data."""
    return [seed for seed in first if seed in second and protocol.same_data([first[seed], second[seed]])]


def difference(identity: str, first: Runs, second: Runs) -> Difference | None:
    """Return the mean of first - second over the pairs of runs, with Student's 95 % interval; None without pairs."""
    measured = [
        {seed: m for seed in pairs(first, second) if (m := runs[seed].get(identity)) and m.value is not None}
        for runs in (first, second)
    ]
    minuends, subtrahends = ({seed: m.value for seed, m in runs.items()} for runs in measured)
    estimate = paired_spread(minuends, subtrahends, _resolution([m for runs in measured for m in runs.values()]))
    return estimate and Difference(estimate.mean, estimate.low, estimate.high, SEEDS if estimate.count > 1 else "")


def _resolution(measured: list[Measurement]) -> float:
    """Return the distance of neighboring shares of the fewest examples; 0 for other numbers."""
    counts = [m.n for m in measured if m.n and m.unit.startswith("fraction")]
    return 1.0 / min(counts) if counts else 0.0


def _mean(measured: list[Measurement]) -> Measurement:
    """Return the mean of one measurement over runs, as a measurement; settings that differ are left out."""
    first = measured[0]
    shared_settings = {
        key: value
        for key, value in first.settings.items()
        if key != "interval" and all(measurement.settings.get(key) == value for measurement in measured)
    }
    for name in PASSES:
        counts = [measurement.settings.get(name) for measurement in measured]
        shared_settings |= {} if None in counts else {name: float(np.mean(counts))}
    # A mean with a bound in it is a bound.
    bounds = {measurement.settings["bound"] for measurement in measured if "bound" in measurement.settings}
    shared_settings |= {"bound": bounds.pop()} if len(bounds) == 1 else {}
    values = [measurement.value for measurement in measured if measurement.value is not None]
    if not values:
        return dataclasses.replace(first, value=None, low=None, high=None, n=0, settings=shared_settings)
    estimate = spread(values, _resolution(measured))
    if estimate.count > 1:
        shared_settings |= {"interval": "95 % over seeds, Student's t", "deviation": estimate.deviation}
    return dataclasses.replace(
        first, value=estimate.mean, low=estimate.low, high=estimate.high, n=estimate.count, settings=shared_settings
    )
