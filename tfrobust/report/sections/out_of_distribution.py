"""The section on images from another distribution: AUROC of confidence and of energy."""

import functools
from functools import partial

from tfrobust.report import catalog, formats, reading
from tfrobust.report.blocks import Block, Figure, Grid, columns_table, plots
from tfrobust.report.catalog.outputs import DETECTION, DETECTION_BY_SET, other_set, score_name, set_name
from tfrobust.report.parts import has_numbers
from tfrobust.report.sections.base import Section
from tfrobust.structs import Measurement

_COLUMNS = {"max_softmax_auroc": "confidence", "energy_auroc": "energy"}


class OutOfDistribution(Section):
    """One row per set and score, and bars of each corruption."""

    anchor = "ood"
    heading = "Other distributions"

    @property
    def lead(self) -> str:
        """The meaning of both numbers."""
        return (
            f"AUROC is the probability that a test {self.example} has the higher score, 50 % for no difference. False "
            f"positives are the {self.examples} of the other distribution above the threshold that 95 % of the test "
            f"{self.examples} exceed."
        )

    @functools.cached_property
    def rows(self) -> dict[tuple[str, str], dict[str, Measurement]]:
        """(set, score) -> "auroc", "fpr95" -> measurement, in the order measured."""
        by_set = {}
        for m in self.measured(DETECTION.family.name):
            if (entry := catalog.read(m)).record is DETECTION:
                key = other_set(entry.settings), entry.settings["score"]
                by_set.setdefault(key, {})[entry.name] = m
        return by_set

    @property
    def sentence(self) -> str:
        """The score that distinguishes best."""
        areas = {
            key: m for key, row in self.rows.items() if (m := row.get("auroc")) is not None and m.value is not None
        }
        if not areas:
            return ""
        (name, score), best = max(areas.items(), key=lambda pair: pair[1].value)
        return f"AUROC {formats.number(best)} against {set_name(name)}, by {score_name(score)}."

    def blocks(self) -> list[Block]:
        """Return the bars of corruptions, and a grid per set."""
        return [*self._figures(), *map(self._grid, dict.fromkeys(name for name, _ in self.rows))]

    def _grid(self, name: str) -> Grid:
        set_rows = {score: row for (set_name, score), row in self.rows.items() if set_name == name}
        rows = [[score_name(score), row.get("auroc"), row.get("fpr95")] for score, row in set_rows.items()]
        shown = tuple(m for row in set_rows.values() for m in row.values())
        header, title = ["Score", "AUROC", "False positives"], f"Against {set_name(name)}"
        return Grid(header, rows, title=title, measurements=shown, note=reading.origin(shown))

    def _figures(self) -> list[Figure]:
        """Return the bars of each series of corruptions."""
        figures = []
        for series in self.report.series:
            columns = [name for name in _COLUMNS if name in series.columns]
            is_detection = catalog.read(series).record is DETECTION_BY_SET
            if not is_detection or "set" not in series.columns or not has_numbers(series, *columns):
                continue
            names = [formats.nice(str(name)) for name in series.columns["set"]]
            labels = [name if number == 0 else "" for name in names for number in range(len(columns))]
            values = [series.columns[column][row] for row in range(len(names)) for column in columns]
            kinds = [_COLUMNS[column] for _ in names for column in columns]
            bars = {"names": labels, "values": values, "kinds": kinds}
            bars |= {"low": [None] * len(values), "high": [None] * len(values), "top": 1.0}
            draw = partial(plots.bars, x_label="AUROC", **bars)
            table = columns_table({**series.columns, "set": names}, ["set", *columns])
            figures.append(Figure(series.id.replace(".", "-"), series.title, draw, table))
        return figures
