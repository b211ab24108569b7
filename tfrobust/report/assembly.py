"""Assembly of a report from the outcome of an evaluation."""

from __future__ import annotations

import datetime
import os
import platform

from tfrobust.common.environment import versions
from tfrobust.report import reading, threat
from tfrobust.report.schema import Report
from tfrobust.structs import Series


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
        threat=threat.threat_statement(measurements, findings, examples),
        not_measured=tuple(threat.not_measured(measurements, findings, examples)),
        environment={**environment(), "devices": devices},
        series=tuple(series),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **fields,
    )
    report.validate()
    return report


def environment() -> dict:
    """Return library versions and machine, enough to explain why a number differs elsewhere."""
    found = {"python": platform.python_version(), "machine": platform.machine(), "processors": os.cpu_count()}
    return found | versions()
