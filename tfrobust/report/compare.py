"""Many reports side by side: one aligned table, one HTML page with the curves laid over each other."""

import pathlib
import re

from tfrobust.report import page, plots, reading, section_results
from tfrobust.report.gap import gap_table
from tfrobust.report.render import align
from tfrobust.report.schema import SCHEMA, Report
from tfrobust.structs import Measurement

REPORT_FILE = "robustness_report.json"
_SETTINGS_THAT_MUST_AGREE = ("norm", "epsilon", "steps", "step_size", "restarts", "queries", "bound")
# The same of what is measured without an attack.
_NATURAL_SETTINGS_THAT_MUST_AGREE = (
    *("source", "constants_of", "frost", "corruptions", "severities", "sequences"),
    *("baseline", "bins", "bin_size"),
    *("share", "levels", "count"),  # of replaced pixels
)


def load_reports(paths) -> list[tuple[pathlib.Path, Report]]:
    """Reads the reports that paths lead to; what is no report is skipped.

    Args:
        paths: JSON files, version folders (`exported/<name>/<version>`), model folders (`exported/<name>`:
            the newest version), or folders that hold a robustness_report.json themselves.

    Returns:
        (JSON file, report) in the order given, each file once.

    Raises:
        FileNotFoundError: a path does not exist.
        ValueError: a file calls itself a robustness report and is not a valid one.
    """
    found = {}
    for path in map(pathlib.Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist; name exported models, workdirs or report files.")
        file = find_report(path)
        if file is None or file.resolve() in found:
            continue
        text = file.read_bytes()
        if SCHEMA.rpartition("/")[0].encode() not in text:
            continue
        try:
            found[file.resolve()] = (file, Report.from_json(text))
        except ValueError as error:
            raise ValueError(f"{file}: {error}"[:300]) from None
    return list(found.values())


def table(reports: list[tuple[pathlib.Path, Report]], markup: bool = False) -> str:
    """One row per report, one column per main measurement of any of them; intervals in brackets.

    Args:
        reports: as `load_reports` returns them.
        markup: True for an HTML table.

    Returns:
        Aligned ASCII lines, "-" where a report lacks a number, and one "note:" line for each
        way in which the protocols differ.
    """
    if not reports:
        return "No robustness report found."
    columns = _columns(reports)
    rows = []
    for name, (_, report) in zip(names(reports), reports, strict=True):
        rows.append([name, *(_cell(report, identity) for identity in columns)])
    if markup:
        # "63.1 % [57.9 to 68.0]": the interval goes below its number.
        cells = [[re.sub(r" \[(.*)\]$", r"<small>\1</small>", page.text(cell)) for cell in row] for row in rows]
        return page.table(["Model", *columns.values()], cells, numeric=tuple(range(1, len(columns) + 1)), stack=True)
    lines = align([["model", *columns.values()], *rows], right=tuple(range(1, len(columns) + 1)))
    return "\n".join(lines + [f"note: {note}" for note in differences(reports)])


def gap(reports: list[tuple[pathlib.Path, Report]], ends: tuple[str, str], markup: bool = False) -> str:
    """How much of the gap in relative drop between two reports the others close; see `report.gap.gap_table`."""
    return gap_table(list(zip(names(reports), (report for _, report in reports), strict=True)), *ends, markup=markup)


def compare_html(reports: list[tuple[pathlib.Path, Report]], ends: tuple[str, str] | None = None) -> str:
    """One self-contained page: the table, what keeps the numbers from being compared, curves overlaid.

    Args:
        reports: as `load_reports` returns them.
        ends: names of the two reports between which the gap that others close is shown; None for none.
    """
    body = ['<p class="eyebrow">tfrobust</p><h1>Robustness compared</h1>']
    body += [f'<p class="note">{page.text(note)}</p>' for note in differences(reports)]
    lead = "Below each number its 95 % interval; where they overlap widely, the order may be chance."
    body.append(page.section("table", "Measurements", lead, table(reports, markup=True)))
    if ends is not None:
        lead = f"How much of the way from {ends[0]} to {ends[1]} the others go, in relative drop of accuracy."
        body.append(page.section("gap", "Gap closed", lead, gap(reports, ends, markup=True)))
    items = []
    curves = _curves_by_attack(reports)
    for key, lines in curves.items():
        caption = f"Accuracy under {section_results.attack_caption(key)}"
        identity = f"compare-{key}"
        plot = plots.curves(
            identity,
            lines,
            x_label="epsilon (pixels in [0, 1])",
            y_label="accuracy",
            percent=True,
            height=3.4,
        )
        items.append(page.figure(identity, caption, plot))
    if items:
        lead = "One curve per model. Bands are 95 % intervals."
        body.append(page.section("curves", "Accuracy against epsilon", lead, page.figures(items)))
    rows = [[page.text(n), page.text(f)] for n, (f, _) in zip(names(reports), reports, strict=True)]
    body.append(page.section("files", "Reports", "", page.table(["Model", "File"], rows)))
    return page.page("Robustness compared", "\n".join(body))


def differences(reports: list[tuple[pathlib.Path, Report]]) -> list[str]:
    """One sentence for each way in which the protocols differ, so that numbers are not comparable."""
    labelled = list(zip(names(reports), (report for _, report in reports), strict=True))
    notes = []
    prints = _grouped((report.data.get("fingerprint"), name) for name, report in labelled)
    if len(prints) > 1:
        groups = "; ".join(f"{(key or 'unknown')[:8]}: {', '.join(group)}" for key, group in prints.items())
        notes.append(f"not the same data, fingerprints differ ({groups}).")
    budgets, settings = {}, {}
    for name, report in labelled:
        for row in reading.attack_rows(report.measurements):
            # Different budgets have different ids, so they are told apart by attack.
            budgets.setdefault(row.attack, []).append((row.budget, name))
            facts = {key: row.accuracy.settings.get(key) for key in _SETTINGS_THAT_MUST_AGREE}
            facts["images"] = row.accuracy.n
            for key, value in facts.items():
                settings.setdefault((f"{row.attack}, {row.budget}", key), []).append((reading.words(value), name))
        for m in reading.main_measurements(report):
            for key in _NATURAL_SETTINGS_THAT_MUST_AGREE if not m.id.startswith("attack.") else ():
                entry = reading.words(m.settings.get(key)), name
                settings.setdefault((reading.label(m, baseline=False), key), []).append(entry)
    for attack, entries in budgets.items():
        groups = _grouped((name, budget) for budget, name in entries)
        if len({tuple(sorted(group)) for group in groups.values()}) > 1:
            notes.append(f"{attack} was run at different budgets ({_listed(_grouped(entries))}).")
    for (what, key), entries in settings.items():
        groups = _grouped(entries)
        if len(groups) > 1:
            notes.append(f"{what}: {key} differs ({_listed(groups)}).")
    return notes


def protocol_differences(first: Measurement, second: Measurement) -> list[str]:
    """The settings in which two measurements of one id were made differently; empty where they may be compared."""
    attacked = first.id.startswith("attack.")
    settings = _SETTINGS_THAT_MUST_AGREE if attacked else _NATURAL_SETTINGS_THAT_MUST_AGREE
    unlike = [key for key in settings if first.settings.get(key) != second.settings.get(key)]
    return [*unlike, *(["the number of images"] if first.n != second.n else [])]


def names(reports: list[tuple[pathlib.Path, Report]]) -> list[str]:
    """A short distinct name per report: model/version, with a number behind it where two agree."""
    found, result = {}, []
    for _, report in reports:
        version = report.model.get("version")
        name = report.model["name"] if version is None else f"{report.model['name']}/{version}"
        found[name] = found.get(name, 0) + 1
        result.append(name if found[name] == 1 else f"{name} ({found[name]})")
    return result


def find_report(path) -> pathlib.Path | None:
    """The report that a path leads to: itself, a version's, the newest version's; None without one."""
    path = pathlib.Path(path)
    if not path.is_dir():
        return path if path.suffix == ".json" and path.is_file() else None
    for candidate in (path / "assets.extra" / REPORT_FILE, path / REPORT_FILE):
        if candidate.is_file():
            return candidate
    # Versions still being written have names that are no numbers.
    versions = [entry for entry in path.iterdir() if entry.is_dir() and entry.name.isdecimal()]
    if not versions:
        return None
    newest = max(versions, key=lambda entry: int(entry.name)) / "assets.extra" / REPORT_FILE
    return newest if newest.is_file() else None


def _columns(reports) -> dict[str, str]:
    """Id -> heading of every main measurement, in the order in which one report would list them."""
    shown = [m for _, report in reports for m in reading.main_measurements(report)]
    labels = {(m.id, reading.label(m)) for m in shown}
    agreed = {m.id: len([one for one, _ in labels if one == m.id]) == 1 for m in shown}
    found = {m.id: reading.label(m, baseline=agreed[m.id]) for m in shown}
    return dict(sorted(found.items(), key=lambda item: reading.place(item[0])))


def _cell(report: Report, identity: str) -> str:
    measurement = report.get(identity)
    margin = reading.interval(measurement)
    return f"{reading.number(measurement)} [{margin}]" if margin else reading.number(measurement)


def _curves_by_attack(reports) -> dict[str, list]:
    found = {}
    for place, (name, (_, report)) in enumerate(zip(names(reports), reports, strict=True)):
        for key, columns in section_results.accuracy_curves(report):
            line = plots.Line(
                name, columns["epsilon"], columns["accuracy"], columns.get("low"), columns.get("high"), place
            )
            found.setdefault(key, []).append(line)
    return found


def _grouped(entries) -> dict:
    groups = {}
    for key, value in entries:
        groups.setdefault(key, []).append(value)
    return groups


def _listed(groups: dict) -> str:
    return "; ".join(f"{key}: {', '.join(group)}" for key, group in groups.items())
