"""How much of the robustness gap between two reports a third one closes, attack by attack."""

from __future__ import annotations

from tfrobust.errors import InputError
from tfrobust.report import page, protocol, reading
from tfrobust.report.compare import find_name
from tfrobust.report.schema import Report
from tfrobust.report.text_table import folded
from tfrobust.structs import Measurement

Named = list[tuple[str, Report]]


def gap_closed(start: float | None, end: float | None, method: float | None) -> float | None:
    """(drop_start - drop_method) / (drop_start - drop_end), of relative drops of accuracy.

    Args:
        start: drop of who is to be improved (paper 004: SimCLR).
        end: drop of who shows what can be had (SupCon).
        method: drop in between.

    Returns:
        1 where the method drops as little as `end`, 0 where as much as `start`, below 0 where more; None where a
        drop is unknown, or `end` drops no less than `start`, so that there is no gap.

    Source:
        Paper 004, Table 4, from rounded drops: FGSM 8/255, (71 - 64) / (71 - 59) = 58 %.
    """
    if start is None or end is None or method is None or not start > end:
        return None
    return (start - method) / (start - end)


def gap_table(reports: Named, start: str, end: str, markup: bool = False, width: int | None = None) -> str:
    """Relative drops by attack, and behind those of all but the two ends the share of the gap that is closed.

    The shares are of the drops measured, without intervals of their own: the drops' are in each report. There is none
    where data or protocol of the three differ, or a time budget made one of the drops a bound.

    Args:
        reports: (name, report).
        start, end: names of two of them; a name without its version will do where it is the only one.
        markup: True for an HTML table.
        width: of the terminal; None for lines of any length.

    Returns:
        Aligned ASCII lines, one a report; a column for each attack that both ends were judged by.

    Raises:
        ValueError: no such report, several of that name, or no such attack.
    """
    first, last = (find_name([name for name, _ in reports], wanted) for wanted in (start, end))
    drops, named = {name: _drops(report) for name, report in reports}, dict(reports)
    columns = [identity for identity in drops[first] if identity in drops[last]]
    if not columns:
        raise InputError(f"{first} and {last} were judged by no common attack: there is no gap between them.")
    rows = [["relative drop (gap closed)"]]
    rows[0] += [reading.label(drops[first][identity]).removesuffix(", relative drop") for identity in columns]
    for name, found in drops.items():
        cells = [name]
        for identity in columns:
            share = None
            if (
                identity in found
                and name not in (first, last)
                and _alike(identity, [named[x] for x in (first, last, name)])
            ):
                share = gap_closed(*(drops[one][identity].value for one in (first, last, name)))
            cells.append(reading.number(found.get(identity)) + ("" if share is None else f" ({share:.0%})"))
        rows.append(cells)
    numeric = tuple(range(1, len(rows[0])))
    if markup:
        return page.table(rows[0], [[page.text(cell) for cell in row] for row in rows[1:]], numeric=numeric)
    return "\n".join(folded(rows, numeric, width))


def _alike(identity: str, reports: list[Report]) -> bool:
    """Whether the drops of these were measured alike, to their end, on the same data."""
    found = [report[identity] for report in reports]
    unlike = any(protocol.differences(found[0], other) for other in found[1:])
    return not unlike and protocol.same_data(reports) and not any("bound" in one.settings for one in found)


def _drops(report: Report) -> dict[str, Measurement]:
    rows = reading.attack_rows(report.measurements)
    return {row.drop.id: row.drop for row in rows if row.drop is not None and row.drop.value is not None}
