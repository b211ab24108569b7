"""The decision that a version becomes the newest one, which servers take: objections, publication, withdrawal."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import shutil

from tfrobust.common import files
from tfrobust.errors import Failure, InputError
from tfrobust.report import catalog, formats, protocol, reading
from tfrobust.report.catalog.under_attack import ATTACK, CLEAN
from tfrobust.report.comparison import reports as compare
from tfrobust.report.difference import difference
from tfrobust.report.renderers import html, markdown
from tfrobust.report.schema import Report
from tfrobust.runs import workdir as workdirs
from tfrobust.serving.export import assets, publish, verify

# Folder in a workdir that holds the verified version, with its report, published or not.
FINAL = "final"


def earlier_report(model) -> Report | None:
    """Return the report inside an export, or None."""
    path = compare.find_report(model)
    return Report.from_json(files.read_bounded(path)) if path else None


def objections(report: Report, base: pathlib.Path) -> list[str]:
    """Return why a version should not replace the newest one without a decision; none if there is no version.

    Args:
        report: of the version to be published.
        base: folder of the model, `exported/<name>`.

    Returns:
        Clauses: where its training configuration differs from that of the newest version, which measurements are
        significantly worse, or that this run was withdrawn.
    """
    if report.run_sha256 in publish.withdrawn(base).values():
        return ["this run was withdrawn from there"]
    newest = _newest_report(base)
    if newest is None:
        return []
    return other_configuration(report.training.get("configuration") or {}, base) + _worse(report, newest)


def other_configuration(training: dict, base: pathlib.Path) -> list[str]:
    """Return clauses on where a training configuration differs from that of the newest version; none without one."""
    newest = _newest_report(base)
    before = (newest and newest.training.get("configuration")) or {}
    return workdirs.differences(before, training, added=False) if before else []


def newest_line(base: pathlib.Path) -> str:
    """Return the newest version of a model and its two main numbers, such as "exported/x/3 (Clean accuracy 98.9 %)"."""
    numbers = publish.versions(base)
    if not numbers:
        return ""
    report = _newest_report(base)
    listed = [] if report is None else reading.main_measurements(report)
    attacked = [
        measurement
        for measurement in listed
        if catalog.read(measurement).family == ATTACK.family.name and measurement.value is not None
    ]
    listed = [*listed[:1], *sorted(attacked, key=lambda measurement: measurement.value)[:1]]
    results = ", ".join(f"{reading.label(measurement)} {formats.number(measurement)}" for measurement in listed)
    return f"{base / str(numbers[-1])}" + (f" ({results})" if results else "")


def publish_workdir(workdir: str, export_dir: str = "exported", version: int | None = None) -> str:
    """Publish the verified model of a workdir, as the newest version unless `version` is below; return lines about it.

    Args:
        workdir: folder of a run that was trained and evaluated.
        export_dir: folder in which `<name>/<version>` is published.
        version: number of the version; None takes the next one.

    Raises:
        InputError: the workdir holds no evaluated model, or is in use.
        Failure: the copy does not reproduce the recorded outputs; nothing was published.
    """
    folder = pathlib.Path(workdir)
    report = earlier_report(folder / FINAL) if (folder / FINAL).is_dir() else None
    if report is None:
        raise InputError(
            f"{workdir[-150:]} holds no evaluated model: name the workdir of a finished training, such as runs/NAME. A "
            "model that its gate refused is not published."
        )
    base, owner, run = pathlib.Path(export_dir, report.model["name"]), workdirs.owner(folder), report.run_sha256
    publish.check_available(base, version, owner)  # before the lock, which creates the folder
    with workdirs.locked(folder), publish.one_at_a_time(base):
        before = newest_line(base)
        number = publish.claim(base, owner, version, run=run)
        if publish.is_published(base, number, owner, run=run):
            return f"SavedModel  {base / str(number)}  (published by this run before)"
        with publish.holding(base, number, owner):
            numbered = dataclasses.replace(report, model=report.model | {"version": number})
            _seal_and_publish(folder, numbered, base, owner)
        record_published(folder, base, number, run)
    return "\n".join([f"SavedModel  {base / str(number)}", *([f"before      {before}"] if before else [])])


def record_published(folder: pathlib.Path, base: pathlib.Path, number: int, run: str) -> None:
    """Write the record of a workdir about the version that it published."""
    publish.write_record(folder, {"base": str(base), "version": number, "run": run})


def _seal_and_publish(folder: pathlib.Path, report: Report, base: pathlib.Path, owner: str) -> None:
    """Copy the verified version with the number in its report, verify the copy and publish it."""
    sealed = folder / "sealed"
    try:
        texts = {"report_html": html.render(report), "report_markdown": markdown.render(report)}
        assets.copy_with_report(folder / FINAL, sealed, report_json=report.to_json(), **texts)
        problems = problems_of_copy(sealed, folder / FINAL)
        if problems:
            raise Failure(f"The model was not published: {problems[0]}")
        publish.publish(sealed, base, report.model["version"], owner, run=report.run_sha256)
    finally:
        shutil.rmtree(sealed, ignore_errors=True)


def problems_of_copy(copy: pathlib.Path, original: pathlib.Path) -> list[str]:
    """Return the problems of a verified version's copy with another report, but those that the original has, too.

    A version from another kind of processor differs from its own golden response here, by rounding. A damaged original
    differs from its checksums, which its copy does not.
    """
    problems = verify.verify(copy).problems
    return sorted(set(problems) - set(verify.verify(original).problems)) if problems else []


def _worse(report: Report, newest: Report) -> list[str]:
    """Return clauses on the accuracies, clean and attacked, that are significantly worse than in the newest version."""
    if not protocol.same_data([report, newest]):
        return []
    clauses = []
    for there in reading.main_measurements(newest):
        here = report.get(there.id)
        entry = catalog.read(there)
        is_accuracy = entry.record is CLEAN or (entry.record is ATTACK and entry.name == "accuracy")
        if here is None or not is_accuracy or protocol.differences(here, there):
            continue
        change = difference(there.id, report, newest)
        if change is not None and change.high is not None and change.high < 0:
            clauses.append(f"{reading.label(there)} is {formats.number(there)} there and {formats.number(here)} here")
    return clauses


def _newest_report(base: pathlib.Path) -> Report | None:
    """Return the report of the newest version; None if there is none, or none that can be read."""
    numbers = publish.versions(base)
    with contextlib.suppress(ValueError):
        return earlier_report(base / str(numbers[-1])) if numbers else None
    return None
