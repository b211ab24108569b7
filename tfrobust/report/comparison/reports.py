"""Comparison of many reports: finding them, naming them, and noting what makes their numbers incomparable."""

from __future__ import annotations

import collections
import dataclasses
import functools
import pathlib

from tfrobust.common import files
from tfrobust.errors import InputError
from tfrobust.report import catalog, protocol, reading
from tfrobust.report.comparison import groups as grouping
from tfrobust.report.difference import Difference, difference
from tfrobust.report.schema import SCHEMA, Report
from tfrobust.structs import Measurement

REPORT_FILE = "robustness_report.json"
Located = list[tuple[pathlib.Path, Report]]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Reports in display order, with their common columns and the notes on comparability; `arrange` makes one.

    Attributes:
        named: (name, report) of each row, each name once; the row of a group has a `groups.summary`.
        files: the file each report was read from, in the order of `runs`.
        sort: id of the measurement that orders the reports, or None. It gets a column even where it is not a main
            measurement.
        reference: name of the row that the others are compared with; None for none.
        groups: name of each row -> its runs by seed; None if each report has a row of its own.
    """

    named: list[tuple[str, Report]]
    files: list[pathlib.Path]
    sort: str | None = None
    reference: str | None = None
    groups: dict[str, grouping.Runs] | None = None

    @functools.cached_property
    def runs(self) -> list[tuple[str, Report]]:
        """(name, report) of each report that was read."""
        if self.groups is None:
            return self.named
        return [
            (name if seed is None else f"{name}-seed{seed}", report)
            for name, _ in self.named
            for seed, report in self.groups[name].items()
        ]

    @functools.cached_property
    def columns(self) -> dict[str, str]:
        """Id -> heading of every main measurement, in the order in which one report would list them."""
        shown = [m for _, report in self.named for m in reading.main_measurements(report)]
        shown += filter(None, (report.get(self.sort) for _, report in self.named))
        labels = collections.Counter(identity for identity, _ in {(m.id, reading.label(m)) for m in shown})
        headings = {m.id: reading.label(m, details=labels[m.id] == 1) for m in shown}
        places = {m.id: catalog.read(m).sort_key for m in shown}
        return dict(sorted(headings.items(), key=lambda item: places[item[0]]))

    @functools.cached_property
    def notes(self) -> dict[str, list[int]]:
        """Note on why numbers are not comparable -> ids of the columns it concerns."""
        columns = {}
        for identity, sentences in protocol.notes(self.runs, self.columns).items():
            for sentence in sentences:
                columns.setdefault(sentence, []).append(identity)
        return columns

    def marks(self, identity: str) -> str:
        """Return the numbers of a column's notes, counted from 1: " [1] [3]", or "" without notes."""
        return "".join(f" [{number}]" for number in self._places.get(identity, ()))

    @functools.cached_property
    def _places(self) -> dict[str, list[int]]:
        """Id of a column -> numbers of its notes."""
        numbers = {}
        for number, ids in enumerate(self.notes.values(), 1):
            for identity in dict.fromkeys(ids):
                numbers.setdefault(identity, []).append(number)
        return numbers

    def differences(self, report: Report) -> dict[str, Difference | None]:
        """Return, by column, the row's number minus the reference's; None if either number is missing."""
        if self.groups is not None:
            pair = self.groups[report.model["name"]], self.groups[self.reference]
            return {identity: grouping.difference(identity, *pair) for identity in self.columns}
        reference = dict(self.named)[self.reference]
        return {identity: difference(identity, report, reference) for identity in self.columns}


def arrange(
    located: Located,
    sort: str | None = None,
    ascending: bool = False,
    reference: str | None = None,
    grouped: bool = False,
) -> Comparison:
    """Name and order reports.

    Args:
        located: as `load_reports` returns them.
        sort: id of a measurement, the largest value first; reports without it come last. None keeps the given order.
        ascending: True to put the smallest value first.
        reference: name of the report that the others are compared with. A name without its version is enough where it
            is unique.
        grouped: True to make one row of all reports NAME-seed0, NAME-seed1, ..., with their means. The first group is
            the default reference.

    Raises:
        ValueError: no report has such a measurement, there is no report of that name, or there are several.
    """
    rows = [(name, report, [file]) for name, (file, report) in zip(names(located), located, strict=True)]
    groups = grouping.group([report for _, report, _ in rows]) if grouped else None
    if grouped:
        files_of = {id(report): file for _, report, file in rows}
        rows = [
            (name, grouping.summary(name, runs), [files_of[id(report)][0] for report in runs.values()])
            for name, runs in groups.items()
        ]
        reference = reference or (rows[0][0] if len(rows) > 1 else None)
    if reference is not None:
        reference = find_name([name for name, *_ in rows], reference)
    if sort is not None:
        measured = {m.id: m for _, report, _ in rows for m in report.measurements}
        if sort not in measured:
            ids = [identity for identity, m in measured.items() if not reading.is_cost(m)]
            raise InputError(f"No report has {sort!r}; nearest: {reading.similar_ids(sort, ids)}.")
        rows.sort(key=lambda row: _sort_key(row[1].get(sort), ascending))
    read = [file for *_, report_files in rows for file in report_files]
    return Comparison([(name, report) for name, report, _ in rows], read, sort, reference, groups)


def load_reports(paths) -> Located:
    """Load the reports found at the given paths; skip JSON files of other names that are not reports.

    Args:
        paths: JSON files, version folders (`exported/<name>/<version>`), model folders (`exported/<name>`: the newest
            version), or folders that hold a robustness_report.json themselves.

    Returns:
        (JSON file, report) in the order given, each file once.

    Raises:
        FileNotFoundError: a path does not exist.
        ValueError: a file claims to be a robustness report, by its schema or its name, and is not a valid one.
    """
    reports = {}
    for path in map(pathlib.Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist; give exported models, workdirs or report files.")
        file = find_report(path)
        if file is None or file.resolve() in reports:
            continue
        content = files.read_bounded(file)
        # Without zeros, the text in UTF-16 that a console of Windows writes is recognized, too.
        is_other = SCHEMA.rpartition("/")[0].encode() not in content.replace(b"\0", b"")
        if is_other and file.name != REPORT_FILE:
            continue
        try:
            reports[file.resolve()] = (file, Report.from_json(content))
        except ValueError as error:
            raise InputError(f"{file}: {error}") from None
    return list(reports.values())


def names(reports: Located) -> list[str]:
    """Return a short distinct name per report: model/version, with a number appended where two agree."""
    counts, result = {}, []
    for _, report in reports:
        version = report.model.get("version")
        name = report.model["name"] if version is None else f"{report.model['name']}/{version}"
        counts[name] = counts.get(name, 0) + 1
        result.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return result


def find_report(path) -> pathlib.Path | None:
    """Return the report file of a path: the file itself, a version's, or the newest version's; None without one."""
    path = files.expanded(path)
    if not path.is_dir():
        return path if path.suffix == ".json" and path.is_file() else None
    for candidate in (path / "assets.extra" / REPORT_FILE, path / REPORT_FILE):
        if candidate.is_file():
            return candidate
    # Versions that are still being written have names that are not numbers.
    versions = [entry for entry in path.iterdir() if entry.is_dir() and entry.name.isdecimal()]
    if not versions:
        return None
    newest = max(versions, key=lambda entry: int(entry.name)) / "assets.extra" / REPORT_FILE
    return newest if newest.is_file() else None


def find_name(all_names: list[str], text: str) -> str:
    """Return the known name that `text` means: itself, or the only version of that model.

    Raises:
        ValueError: no name matches, or several do.
    """
    matches = [text] if text in all_names else [name for name in all_names if name.partition("/")[0] == text]
    if len(matches) != 1:
        fault = "means several reports" if matches else "is not one of the reports"
        raise InputError(f"{text!r} {fault}; name one of {', '.join(all_names)}.")
    return matches[0]


def _sort_key(measurement: Measurement | None, ascending: bool) -> tuple[bool, float]:
    if measurement is None or measurement.value is None:
        return True, 0.0
    return False, measurement.value if ascending else -measurement.value
