"""From what an evaluation found to a report."""

from __future__ import annotations

import datetime
import os
import platform

from tfrobust.ops.environment import versions
from tfrobust.report import reading, threat
from tfrobust.report.schema import Report
from tfrobust.structs import Series


def make_report(
    *, measurements, series, findings, history: dict[str, list], devices: list[str], first_history=None, **fields
) -> Report:
    """A validated report with its threat statement and the list of what was not measured.

    Args:
        measurements, series, findings: of an evaluation's outcome.
        history: column by log name, one value an epoch; becomes the series `training.history`. May be empty.
        devices: kinds of devices the evaluation ran on.
        first_history: of the first of two stages, likewise; becomes the series `pretraining.history`.
        **fields: model, data, run_sha256, configuration, training, cost; see `schema.Report`.

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
    """Versions and machine, enough to tell why a number differs elsewhere."""
    found = {"python": platform.python_version(), "machine": platform.machine(), "processors": os.cpu_count()}
    return found | versions()
