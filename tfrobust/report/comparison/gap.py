"""Gap closed: how much of the robustness gap between two reports a third one closes, attack by attack."""

from __future__ import annotations

from collections.abc import Mapping

from tfrobust.errors import InputError
from tfrobust.report import attack_table, formats, protocol, reading
from tfrobust.report.blocks import Table
from tfrobust.report.comparison.reports import find_name
from tfrobust.report.schema import Report
from tfrobust.structs import Measurement

Named = list[tuple[str, Report]]


def gap_closed(start: float | None, end: float | None, method: float | None) -> float | None:
    """Compute (drop_start - drop_method) / (drop_start - drop_end) from relative drops of accuracy.

    Args:
        start: drop of the model to improve on (Gupta et al. 2023: SimCLR).
        end: drop of the model that shows what is achievable (Gupta et al. 2023: SupCon).
        method: drop of the model in between.

    Returns:
        1 if the method drops as little as `end`, 0 if as much as `start`, below 0 if more. None if a drop is unknown,
        or if `end` drops no less than `start`, so that there is no gap.

    Source:
        Gupta et al. 2023, Table 4, from rounded drops: FGSM 8/255, (71 - 64) / (71 - 59) = 58 %.
    """
    if start is None or end is None or method is None or not start > end:
        return None
    return (start - method) / (start - end)


def gap_table(reports: Named, start: str, end: str, groups: Mapping[str, Mapping] | None = None) -> Table:
    """Return the relative drops by attack and, except for the two ends, the share of the gap that is closed.

    The shares are computed from the measured drops and have no intervals of their own; the intervals of the drops are
    in each report. No share is shown if data or protocol of the three reports differ, or if a time budget made one of
    the drops a bound.

    Args:
        reports: (name, report).
        start: name of the report that starts the gap. A name without its version is enough where it is unique.
        end: name of the report that ends the gap, likewise.
        groups: name -> seed -> report where the reports are means of groups, whose members must be alike; else None.

    Returns:
        A table with a row per report and a column for each attack that both ends were evaluated with.

    Raises:
        ValueError: no such report, several of that name, or no common attack.
    """
    first, last = (find_name([name for name, _ in reports], text) for text in (start, end))
    drops = {name: _drops(report) for name, report in reports}
    members = {name: list(groups[name].values()) if groups else [report] for name, report in reports}
    columns = [identity for identity in drops[first] if identity in drops[last]]
    if not columns:
        raise InputError(f"{first} and {last} share no attack, so no gap can be computed.")
    header = [reading.label(drops[first][identity]).removesuffix(", relative drop") for identity in columns]
    rows = []
    for name, report_drops in drops.items():
        cells = [name]
        for identity in columns:
            share = None
            three = (first, last, name)
            if (
                identity in report_drops
                and name not in (first, last)
                and _alike(identity, [report for model in three for report in members[model]])
            ):
                share = gap_closed(*(drops[model][identity].value for model in three))
            cells.append(formats.number(report_drops.get(identity)) + ("" if share is None else f" ({share:.0%})"))
        rows.append(cells)
    return Table(["relative drop (gap closed)", *header], rows)


def _alike(identity: str, reports: list[Report]) -> bool:
    """Return True if the drops were measured with one protocol, to completion and on the same data."""
    drops = [drop for report in reports if (drop := report.get(identity))]
    if len(drops) < len(reports):
        return False
    unlike = any(protocol.differences(drops[0], other) for other in drops[1:])
    unlike |= len({protocol.drawn_by(identity, report) for report in reports}) > 1
    return not unlike and protocol.same_data(reports) and not any("bound" in drop.settings for drop in drops)


def _drops(report: Report) -> dict[str, Measurement]:
    rows = attack_table.attack_rows(report.measurements)
    return {row.drop.id: row.drop for row in rows if row.drop is not None and row.drop.value is not None}
