"""Protocol differences that make numbers of the same id incomparable."""

from __future__ import annotations

from tfrobust.report import attack_table, catalog, formats
from tfrobust.report.catalog import spelling
from tfrobust.report.catalog.under_attack import ATTACK, PASSES, VIDEO
from tfrobust.report.schema import Report
from tfrobust.structs import Measurement

# Settings of measurements under attack that do not describe the search, so they may differ.
_RESULTS = ("interval", "seconds", "found", "threshold", "spared", *PASSES)
_ATTACK_SETTINGS_THAT_MAY_DIFFER = ("seed", *_RESULTS, *catalog.IN_ID)


def differences(first: Measurement, second: Measurement) -> list[str]:
    """Return the settings in which two measurements of one id differ; empty if they are comparable."""
    facts = _facts(first), _facts(second)
    return [key for key in dict.fromkeys([*facts[0], *facts[1]]) if facts[0].get(key, "-") != facts[1].get(key, "-")]


def same_data(reports: list[Report]) -> bool:
    """Return True if all reports were evaluated on the same examples; unknown data counts as different."""
    return len(set(_fingerprints(reports))) == 1 and None not in _fingerprints(reports)


def drawn_by(identity: str, report: Report) -> int | None:
    """Return the seed that drew the images of a measurement; None if it is on all images or the first ones."""
    measurement, size = report.get(identity), report.data.get("test_size")
    if measurement is not None and catalog.read(measurement).family == VIDEO.family.name:  # n counts videos, not clips
        videos = report.get(VIDEO.id("accuracy"))
        size = size if videos is None else videos.n
    if measurement is None or measurement.n is None or size is None:
        return None
    if measurement.n >= size or str(measurement.settings.get("sample", "")).startswith("first"):
        return None
    return measurement.settings.get("seed")


def notes(reports: list[tuple[str, Report]], columns: dict[str, str]) -> dict[str, list[str]]:
    """Collect the reasons why the numbers of each column are not comparable, one sentence each.

    Args:
        reports: (name, report).
        columns: id of a measurement -> its heading.

    Returns:
        Id -> sentences, for the ids that have any.
    """
    budgets, refused = _budget_notes(reports), _doctor_notes(reports)
    by_column = {}
    for identity, heading in columns.items():
        having = [(name, report) for name, report in reports if _is_measured(report.get(identity))]
        facts = [(name, _facts(report[identity])) for name, report in having]
        drawn = {name: drawn_by(identity, report) for name, report in having}
        for name, settings in facts:
            settings |= {} if drawn[name] is None else {"the seed that drew the images": str(drawn[name])}
        sentences = [*_data_notes(having), *_setting_notes(heading, facts), *budgets.get(identity, [])]
        sentences += [refused[name] for name, _ in having if name in refused and len(having) > 1]
        if len(having) > 1 and all("bound" in report[identity].settings for _, report in having):
            # If only some are bounds, the settings differ, which `_setting_notes` reports.
            sentences.append(f"{heading}: all values are bounds, since time budgets ended the attacks.")
        if sentences:
            by_column[identity] = sentences
    return by_column


def curve_notes(reports: list[tuple[str, Report]], identity: str) -> list[str]:
    """Collect the reasons why the curves of one id are not comparable, one sentence each."""
    having = [(name, report) for name, report in reports if report.get_series(identity) is not None]
    facts = []
    for name, report in having:
        series = report.get_series(identity)
        count = next(iter(series.columns.get("n", ())), None)
        facts.append((name, _facts(Measurement(series.id, None, n=count, settings=series.settings))))
    return [*_data_notes(having), *_setting_notes("curves", facts)]


def _facts(measurement: Measurement) -> dict[str, str]:
    """Return the settings that must agree, as text: 8/255 and 0.0313725 are one epsilon."""
    entry = catalog.read(measurement)
    # Calibration and divergence under an attack are not of its family.
    if entry.family == ATTACK.family.name or "attack" in measurement.settings:
        names = [name for name in measurement.settings if name not in _ATTACK_SETTINGS_THAT_MAY_DIFFER]
    else:
        names = [name for name in entry.record.must_agree if name in measurement.settings]
    facts = {name: formats.words(measurement.settings[name]) for name in names}
    return {**facts, "number of examples": formats.words(measurement.n)}


def _is_measured(measurement: Measurement | None) -> bool:
    return measurement is not None and measurement.value is not None


def _fingerprints(reports: list[Report]) -> list[str | None]:
    """Return the fingerprints of the test splits if all reports have them, else those of all data.

    Test splits come first because training data may differ.
    """
    for key in ("test_fingerprint", "fingerprint"):
        fingerprints = [report.data.get(key) for report in reports]
        if None not in fingerprints:
            return fingerprints
    return fingerprints


def _data_notes(reports: list[tuple[str, Report]]) -> list[str]:
    if len(reports) < 2 or same_data([report for _, report in reports]):
        return []
    prints = _fingerprints([report for _, report in reports])
    groups = _grouped(((key or "unknown")[:8], name) for key, (name, _) in zip(prints, reports, strict=True))
    return [f"The data differ, by their fingerprints ({_listed(groups)})."]


def _setting_notes(heading: str, facts: list[tuple[str, dict[str, str]]]) -> list[str]:
    keys = dict.fromkeys(key for _, settings in facts for key in settings)
    groups = {key: _grouped((settings.get(key, "-"), name) for name, settings in facts) for key in keys}
    return [f"{heading}: {key} differs ({_listed(group)})." for key, group in groups.items() if len(group) > 1]


def _budget_notes(reports: list[tuple[str, Report]]) -> dict[str, list[str]]:
    """Note attacks that were run at different budgets: their ids differ, so they are grouped by attack."""
    rows = [(name, row) for name, report in reports for row in attack_table.attack_rows(report.measurements)]
    by_identity = {}
    for attack, named_rows in _grouped((row.attack, (name, row)) for name, row in rows).items():
        budgets = _grouped((name, row.budget) for name, row in named_rows)
        if len({tuple(sorted(group)) for group in budgets.values()}) > 1:
            listed = _listed(_grouped((row.budget, name) for name, row in named_rows))
            for _, row in named_rows:
                by_identity[row.accuracy.id] = [
                    f"{spelling.attack_name(attack)} was run at different budgets ({listed})."
                ]
    return by_identity


def _doctor_notes(reports: list[tuple[str, Report]]) -> dict[str, str]:
    """Return name -> sentence for reports with a failed doctor check: their numbers may overstate the robustness."""
    failed = {name: [f.check for f in report.doctor if f.verdict == "fail"] for name, report in reports}
    return {
        name: f"The doctor's checks failed for {name}: {', '.join(checks)}."
        for name, checks in failed.items()
        if checks
    }


def _grouped(entries) -> dict:
    groups = {}
    for key, value in entries:
        groups.setdefault(key, []).append(value)
    return groups


def _listed(groups: dict) -> str:
    return "; ".join(f"{key}: {', '.join(group)}" for key, group in groups.items())
