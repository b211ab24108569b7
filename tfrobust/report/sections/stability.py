"""The section on stability: flip probabilities along perturbation sequences."""

import functools
from functools import partial

from tfrobust.report import catalog, formats, reading
from tfrobust.report.blocks import Block, Figure, Grid, Numbers, plots
from tfrobust.report.catalog.natural import STABILITY
from tfrobust.report.sections.base import Section
from tfrobust.structs import Measurement


class Stability(Section):
    """Flip probabilities by sequence, as bars and as a grid, and their means."""

    anchor = "stability"
    heading = "Stability"

    @property
    def lead(self) -> str:
        """The meaning of a flip."""
        return (
            f"How often the prediction changes between frames of a slightly changing {self.example}; lower is more "
            "stable."
        )

    @functools.cached_property
    def rows(self) -> dict[str, dict[str, Measurement]]:
        """Sequence -> "flip_probability", "flip_rate" -> measurement, in the order measured."""
        by_name = {}
        for m in self.report.measurements:
            if (entry := catalog.read(m)).record is STABILITY:
                by_name.setdefault(entry.settings["sequence"], {})[entry.name] = m
        return by_name

    @property
    def cells(self) -> tuple[Measurement, ...]:
        """The measurements of all rows."""
        return tuple(m for row in self.rows.values() for m in row.values())

    @property
    def flips(self) -> dict[str, Measurement]:
        """Sequence -> flip probability."""
        return {name: row["flip_probability"] for name, row in self.rows.items() if "flip_probability" in row}

    @property
    def sentence(self) -> str:
        """The sequence with the largest flip probability."""
        values = {name: m.value for name, m in self.flips.items() if m.value is not None}
        return f"Highest flip probability: {formats.nice(max(values, key=values.get))}." if values else ""

    def blocks(self) -> list[Block]:
        """Return the bars, the grid and the means."""
        figures, cells = [], {m.id for m in self.cells}
        if self.flips:
            shown = list(self.flips.values())
            columns = {name: [getattr(m, end) for m in shown] for name, end in plots.ENDS.items()}
            draw = partial(plots.bars, names=list(map(formats.nice, self.flips)), x_label="flip probability", **columns)
            figures.append(Figure("stability-flips", "Flip probability", draw))
        figures += [self._grid()] if self.rows else []
        means = [m for m in self.measured(STABILITY.family.name) if m.id not in cells]
        return [*figures, Numbers(means)]

    def _grid(self) -> Grid:
        """Return the sequences: reference frame, flip probability, interval, and flip rate if measured."""
        with_rates = any("flip_rate" in row for row in self.rows.values())
        rows = []
        for name, row in self.rows.items():
            flips = row.get("flip_probability")
            reference = str(flips.settings.get("reference", "-") if flips else "-").removesuffix(" frame")
            rows.append([formats.nice(name), reference, flips, *([row.get("flip_rate")] if with_rates else [])])
        header = ["Sequence", "Reference", "Flip probability", *(["Flip rate"] if with_rates else [])]
        baselines = sorted({str(m.settings["baseline"]) for m in self.cells if "baseline" in m.settings})
        relative = f"Flip rates are relative to {' and '.join(baselines)}." if baselines else ""
        note = f"{reading.origin(self.cells)} {relative}".strip()
        return Grid(
            header, rows, texts=2, title="Flips along perturbation sequences", measurements=self.cells, note=note
        )
