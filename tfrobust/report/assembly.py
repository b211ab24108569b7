"""From what an evaluation found to a report."""

from __future__ import annotations

import datetime

from tfrobust.report import threat
from tfrobust.report.schema import Report
from tfrobust.structs import Series


def make_report(
    *,
    measurements,
    series,
    findings,
    model: dict,
    data: dict,
    run_sha256: str,
    configuration: str,
    training: dict,
    history: dict[str, list],
    cost: dict,
    environment: dict,
) -> Report:
    """A validated report with its threat statement and the list of what was not measured.

    Args:
        measurements, series, findings: of an evaluation's outcome.
        model, data, run_sha256, configuration, training, cost, environment: see `schema.Report`.
        history: column by log name, one value an epoch; becomes the series `training.history`. May be empty.

    Raises:
        ValueError: the parts do not make a valid report.
    """
    series = list(series)
    if history:
        series.insert(0, Series(id="training.history", title="Training history", columns=history))
    report = Report(
        model=model,
        data=data,
        measurements=tuple(measurements),
        doctor=tuple(findings),
        threat=threat.threat_statement(measurements),
        run_sha256=run_sha256,
        not_measured=tuple(threat.not_measured(measurements)),
        configuration=configuration,
        environment=environment,
        cost=cost,
        series=tuple(series),
        training=training,
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )
    report.validate()
    return report
