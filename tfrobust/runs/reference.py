"""The reference of a run: another model's report, with whose accuracies the run's report compares its own."""

from __future__ import annotations

from tfrobust.common import files
from tfrobust.data.spec import Dataset
from tfrobust.errors import InputError
from tfrobust.evaluation.evaluators.reference import ReferenceAccuracies
from tfrobust.report import attack_table, reading
from tfrobust.report.comparison import reports as compare
from tfrobust.report.schema import Report


def with_reference(evaluators: tuple, path: str | None, dataset: Dataset) -> tuple:
    """Append the accuracies of another model to the evaluators of a run.

    Args:
        evaluators: of the run.
        path: an export, a workdir or a report file; None for no reference.
        dataset: the examples of the run.

    Raises:
        InputError (a ValueError): there is no report at the path, or it is on other test examples.
    """
    if path is None:
        return evaluators
    location = compare.find_report(path)
    if location is None:
        raise InputError(f"reference: there is no robustness report at {str(path)[:150]}.")
    report = Report.from_json(files.read_bounded(location))
    if report.data.get("test_fingerprint") != dataset.test.fingerprint:
        raise InputError(f"reference: the report at {str(path)[:150]} is on other test examples than this run.")
    return (*evaluators, accuracies_of(report))


def accuracies_of(report: Report) -> ReferenceAccuracies:
    """Return the clean accuracy and the accuracies under attack of a report as an evaluator."""
    attacked = [row.accuracy for row in attack_table.attack_rows(report.measurements)]
    measured = [m for m in (report.get("accuracy.clean"), *attacked) if m is not None and m.value is not None]
    method = report.training.get("method")
    return ReferenceAccuracies(
        model=reading.title(report),
        accuracies={
            m.id: {"value": m.value, "n": m.n, "low": m.low, "high": m.high, "settings": m.settings} for m in measured
        },
        undefended=method == "Supervised" and report.training.get("epsilon") is None,
    )
