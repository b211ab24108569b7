"""The section on corruptions: accuracy by corruption and severity."""

import functools

from tfrobust.report import catalog, formats, intervals, reading
from tfrobust.report.blocks import Block, Grid, Heat, Numbers
from tfrobust.report.catalog.natural import CLIP_CORRUPTION, CORRUPTION
from tfrobust.report.sections.base import Section
from tfrobust.structs import Measurement


class Corruptions(Section):
    """Accuracy by corruption and severity as a heat map, and the means and summary errors."""

    anchor = "corruptions"
    heading = "Corruptions"
    record, origin = CORRUPTION, ""

    @functools.cached_property
    def cells(self) -> dict[str, dict[str, dict[int, Measurement]]]:
        """Kind ("accuracy", "drop") -> corruption -> severity -> measurement, in the order measured."""
        by_kind = {"accuracy": {}, "drop": {}}
        for m in self.report.measurements:
            if (entry := catalog.read(m)).record is self.record:
                row = by_kind[entry.name].setdefault(entry.settings["corruption"], {})
                row[int(entry.settings["severity"])] = m
        return by_kind

    @property
    def accuracies(self) -> list[Measurement]:
        """The accuracies of all cells."""
        return [m for row in self.cells["accuracy"].values() for m in row.values()]

    @property
    def lead(self) -> str:
        """The content of the map and the width of its intervals."""
        corrupted = f"corrupted test {self.examples}{self.origin}"
        if not self.accuracies:
            return f"Accuracy on {corrupted}."
        text = f"Accuracy in per cent on {corrupted}, by severity: darker is more accurate."
        if self.cells["drop"]:
            text += " Drop: the lost share of the clean accuracy, in per cent, averaged over the severities."
        measured = [m for m in self.accuracies if intervals.kind(m) and m.value is not None]
        reaches = [max(m.high - m.value, m.value - m.low) for m in measured]
        if reaches:
            widest = formats.per_cent(max(reaches))
            text += f" The 95 % intervals of single cells extend up to {widest} points to either side."
        return text

    @property
    def sentence(self) -> str:
        """The corruption with the lowest accuracy."""
        rows = self.cells["accuracy"].items()
        candidates = [
            (m.value, name, severity) for name, row in rows for severity, m in row.items() if m.value is not None
        ]
        if not candidates:
            return ""
        _, name, severity = min(candidates)
        return f"Lowest accuracy: {formats.nice(name)} at severity {severity}."

    def blocks(self) -> list[Block]:
        """Return the heat map, and below it the other numbers."""
        drops = [m for row in self.cells["drop"].values() for m in row.values()] if self.accuracies else []
        cells = (*self.accuracies, *drops)
        identities = {m.id for m in cells}
        rest = [m for m in self.measured(self.record.family.name) if m.id not in identities]
        return [*([self._grid(cells)] if cells else []), Numbers(rest)]

    def _grid(self, cells: tuple[Measurement, ...]) -> Grid:
        """Return corruption, accuracy at each severity, their mean, and the mean of the relative drops if measured."""
        accuracies, drops = self.cells["accuracy"], self.cells["drop"]
        severities = sorted({severity for row in accuracies.values() for severity in row})
        rows = []
        for name, row in accuracies.items():
            values = [row[severity].value if severity in row else None for severity in severities]
            drop = [formats.per_cent(_mean(m.value for m in drops.get(name, {}).values()))] if drops else []
            title = ", ".join(filter(None, (formats.nice(name), reading.frost_word(next(iter(row.values()))))))
            rows.append([title, *map(Heat, values), Heat(_mean(values)), *drop])
        header = ["Corruption", *map(str, severities), "mean", *(["drop"] if drops else [])]
        heading, note = "Accuracy by corruption and severity, per cent", reading.origin(self.accuracies)
        return Grid(header, rows, title=heading, measurements=cells, note=note)


class ClipCorruptions(Corruptions):
    """The same for the tfrobust clip corruptions, which are no published benchmark."""

    anchor = "clip_corruptions"
    heading = "Clip corruptions of tfrobust"
    record, origin = CLIP_CORRUPTION, " (the corruptions are those of tfrobust, no published benchmark)"


def _mean(values) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None
