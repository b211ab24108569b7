"""From what an evaluation found to a report."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform

from tfrobust.report import threat
from tfrobust.report.schema import Report
from tfrobust.structs import Series

_NAMED_PACKAGES = ("tfrobust", "tensorflow", "keras", "numpy")


def make_report(*, measurements, series, findings, history: dict[str, list], devices: list[str], **fields) -> Report:
    """A validated report with its threat statement and the list of what was not measured.

    Args:
        measurements, series, findings: of an evaluation's outcome.
        history: column by log name, one value an epoch; becomes the series `training.history`. May be empty.
        devices: kinds of devices the evaluation ran on.
        **fields: model, data, run_sha256, configuration, training, cost; see `schema.Report`.

    Raises:
        ValueError: the parts do not make a valid report.
    """
    series = list(series)
    if history:
        series.insert(0, Series(id="training.history", title="Training history", columns=history))
    report = Report(
        measurements=tuple(measurements),
        doctor=tuple(findings),
        threat=threat.threat_statement(measurements, findings),
        not_measured=tuple(threat.not_measured(measurements, findings)),
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
    for package in _NAMED_PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # a checkout that is not installed
            found[package] = "not installed"
    return found
