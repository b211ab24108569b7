"""Assembly of a report from the outcome of an evaluation."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform

from tfrobust.common.environment import versions
from tfrobust.errors import InputError
from tfrobust.report import catalog, missing, reading, threat
from tfrobust.report.catalog.outputs import ATTACKED_RELIABILITY, ATTACKED_RESPONSE_RATE
from tfrobust.report.schema import Report
from tfrobust.structs import Measurement, Series

# The line between a report's configuration and that of an evaluation added to it.
ADDED = "\n# Added by evaluate --attach:\n"
_VERDICTS = ("pass", "warn", "fail")


def make_report(
    *, measurements, series, findings, history: dict[str, list], devices: list[str], first_history=None, **fields
) -> Report:
    """Build and validate a report, with its threat statement and the list of what was not measured.

    Args:
        measurements: measurements of an evaluation's outcome.
        series: series of an evaluation's outcome.
        findings: the doctor's findings of an evaluation's outcome.
        history: column by log name, one value per epoch; becomes the series `training.history`. May be empty.
        devices: kinds of devices the evaluation ran on.
        first_history: the same for the first of two stages; becomes the series `pretraining.history`.
        **fields: model, data, run_sha256, configuration, training, cost; see `schema.Report`.

    Returns:
        The valid `Report`, stamped with the current time (UTC, seconds).

    Raises:
        ValueError: the parts do not make a valid report.
    """
    series = list(series)
    examples = reading.examples_of(fields["data"])
    if history:
        series.insert(0, Series(id="training.history", title="Training history", columns=history))
    if first_history:
        series.insert(0, Series(id="pretraining.history", title="Pretraining history", columns=first_history))
    report = Report(
        measurements=tuple(measurements),
        doctor=tuple(findings),
        threat=threat.threat_statement(measurements, findings, examples, series),
        not_measured=tuple(missing.not_measured(measurements, findings, examples, series)),
        environment={**environment(), "devices": devices},
        series=tuple(series),
        created=_now(),
        **fields,
    )
    report.validate()
    return report


def extended(earlier: Report, later: Report) -> Report | None:
    """Return a report with the outcome of a later evaluation of the same weights and examples added to it.

    Measurements and series of the earlier report are kept. A number that only one of the evaluations could measure is
    taken from it: a certified accuracy needs the Keras model. A check of the doctor that ran twice keeps the worse
    finding. The seconds of both evaluations are added.

    Returns:
        The valid report, stamped with the current time; None if the earlier report has all of the later one.

    Raises:
        InputError: an id has other values in both reports, so that one report cannot hold both.
    """
    by_id, costs = {measured.id: measured for measured in earlier.measurements}, {}
    for measured in later.measurements:
        before = by_id.setdefault(measured.id, measured)
        if reading.is_cost(measured) and before is not measured:
            costs[measured.id] = dataclasses.replace(measured, value=_total(before.value, measured.value))
        elif "reason" in measured.settings:  # why it could not be measured
            continue
        elif "reason" in before.settings:
            by_id[measured.id] = measured
        elif _without_id(before) != _without_id(measured):
            raise _held(measured.id)
    findings = [*earlier.doctor]
    for finding in later.doctor:
        counterparts = [other for other in findings if other.check == finding.check]
        if all(_VERDICTS.index(other.verdict) < _VERDICTS.index(finding.verdict) for other in counterparts):
            findings = [other for other in findings if other not in counterparts] + [finding]
    shown = {series.id: series for series in earlier.series}
    for added in later.series:
        if _points(shown.setdefault(added.id, added)) != _points(added):
            raise _held(added.id)
    measurements, series = list(by_id.values()), list(shown.values())
    if (measurements, findings, series) == ([*earlier.measurements], [*earlier.doctor], [*earlier.series]):
        return None
    measurements = [costs.get(measured.id, measured) for measured in measurements]
    examples, spent = reading.examples_of(earlier.data), "evaluation_seconds"
    report = dataclasses.replace(
        earlier,
        measurements=tuple(measurements),
        doctor=tuple(findings),
        series=tuple(series),
        threat=threat.threat_statement(measurements, findings, examples, series),
        not_measured=tuple(missing.not_measured(measurements, findings, examples, series)),
        configuration=f"{earlier.configuration}{ADDED}{later.configuration}",
        cost=earlier.cost | {spent: _total(earlier.cost.get(spent), later.cost.get(spent))},
        created=_now(),
    )
    report.validate()
    return report


def _without_id(item: Measurement | Series) -> Measurement | Series:
    """Return it without the settings that its id has, too: earlier versions did not write them."""
    settings = {name: value for name, value in item.settings.items() if name not in catalog.IN_ID}
    return dataclasses.replace(item, settings=settings)


def _points(series: Series) -> tuple:
    """Return what was asked of a series: its settings, and the radii and the number of images of a curve."""
    radii = [f"{radius:.6g}" for radius in series.columns.get("epsilon", ())]
    settings = _without_id(series).settings
    if catalog.read(series).record in (ATTACKED_RELIABILITY, ATTACKED_RESPONSE_RATE):
        settings = {"interval": settings.get("interval")}  # the only one in earlier versions
    return settings, radii, series.columns.get("n") if radii else None


def _held(identity: str) -> InputError:
    return InputError(
        f"{identity} is in the report with another result or other settings, and one report holds one of them: give "
        "the attack a label of its own, or leave --attach out."
    )


def _total(*seconds: float | None) -> float:
    return sum(part or 0.0 for part in seconds)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def environment() -> dict:
    """Return library versions and machine, enough to explain why a number differs elsewhere."""
    facts = {"python": platform.python_version(), "machine": platform.machine(), "processors": os.cpu_count()}
    return facts | versions()
