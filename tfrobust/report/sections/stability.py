"""The section on stability: flip probabilities along perturbation sequences."""

import functools
import re
from functools import partial

from tfrobust.report import intervals, reading
from tfrobust.report.blocks import Block, Figure, Grid, Numbers, plots
from tfrobust.report.sections.base import Section, joined
from tfrobust.structs import Measurement

_CELL_ID = re.compile(r"^stability\.(?!mean\.)(?P<name>[a-z_]+)\.(?P<what>flip_probability|flip_rate)$")


class Stability(Section):
    """Flip probabilities by sequence, as bars and as a grid, and their means."""

    anchor = "stability"
    heading = "Stability"

    @functools.cached_property
    def rows(self) -> dict[str, dict[str, Measurement]]:
        """Sequence -> "flip_probability", "flip_rate" -> measurement, in the order measured."""
        found = {}
        for m in self.report.measurements:
            if match := _CELL_ID.match(m.id):
                found.setdefault(match["name"], {})[match["what"]] = m
        return found

    @property
    def cells(self) -> tuple[Measurement, ...]:
        """The measurements of all rows."""
        return tuple(m for row in self.rows.values() for m in row.values())

    @property
    def flips(self) -> dict[str, Measurement]:
        """Sequence -> flip probability."""
        return {name: row["flip_probability"] for name, row in self.rows.items() if "flip_probability" in row}

    @property
    def lead(self) -> str:
        """The meaning of a flip, and the kinds of intervals."""
        kinds = intervals.kinds(self.cells)
        said = f" Lines are 95 % intervals ({kinds})." if kinds else ""
        lead = "How often the prediction changes between frames of a slightly changing image; lower is more stable."
        return lead + said

    @property
    def sentence(self) -> str:
        """The mean flip probability and the largest."""
        mean, parts = self.report.get("stability.mean.flip_probability"), []
        known = {name: m for name, m in self.flips.items() if m.value is not None}
        if mean is not None and mean.value is not None:
            parts.append(f"from one frame to the next, {reading.number(mean)} of the predictions flip")
        if known:
            name = max(known, key=lambda name: known[name].value)
            parts.append(f"the most under {reading.nice(name)}, {reading.number(known[name])}")
        return joined(parts)

    def blocks(self) -> list[Block]:
        """Return the bars, the grid and the means."""
        found, cells = [], {m.id for m in self.cells}
        if self.flips:
            shown = list(self.flips.values())
            columns = {name: [getattr(m, end) for m in shown] for name, end in _ENDS.items()}
            draw = partial(plots.bars, names=list(map(reading.nice, self.flips)), x_label="flip probability", **columns)
            found.append(Figure("stability-flips", "Flip probability", draw))
        found += [self._grid()] if self.rows else []
        means = [m for m in self.measured("stability.") if m.id not in cells]
        return [*found, Numbers(means)]

    def _grid(self) -> Grid:
        """Return the sequences: reference frame, flip probability, interval, and flip rate if measured."""
        with_rates = any("flip_rate" in row for row in self.rows.values())
        rows = []
        for name, row in self.rows.items():
            flips = row.get("flip_probability")
            reference = str(flips.settings.get("reference", "-") if flips else "-").removesuffix(" frame")
            cells = [reading.nice(name), reference, reading.number(flips), reading.interval(flips) or "-"]
            rows.append([*cells, *([reading.number(row.get("flip_rate"))] if with_rates else [])])
        header = ["Sequence", "Reference", "Flip probability", "95 % interval", *(["Flip rate"] if with_rates else [])]
        baselines = sorted({str(m.settings["baseline"]) for m in self.cells if "baseline" in m.settings})
        relative = f"Flip rates are relative to {' and '.join(baselines)}." if baselines else ""
        note = f"{reading.origin(self.cells)} {relative}".strip()
        return Grid(
            header, rows, texts=2, title="Flips along perturbation sequences", measurements=self.cells, note=note
        )


_ENDS = {"values": "value", "low": "low", "high": "high"}
