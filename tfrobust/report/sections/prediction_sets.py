"""The section on prediction sets: coverage and size, clean and under attack."""

import functools
import math

from tfrobust.report import catalog, formats
from tfrobust.report.blocks import Block, Grid
from tfrobust.report.catalog.outputs import PREDICTION_SETS
from tfrobust.report.catalog.spelling import attack_caption
from tfrobust.report.sections.base import Section
from tfrobust.structs import Measurement


class PredictionSets(Section):
    """One row per score and kind of images: coverage, mean size, share of empty sets."""

    anchor = "prediction_sets"
    heading = "Prediction sets"

    @functools.cached_property
    def rows(self) -> dict[tuple[str, str, float], dict[str, Measurement]]:
        """(caption of the attack or "", score, level) -> quantity -> measurement, in the order measured."""
        by_key = {}
        for m in self.measured(PREDICTION_SETS.family.name):
            if (entry := catalog.read(m)).record is PREDICTION_SETS:
                by_key.setdefault(_key(entry.settings), {})[entry.name] = m
        return by_key

    @property
    def lead(self) -> str:
        """The guarantee, and its limits."""
        counts = {m.settings.get("calibration_images") for row in self.rows.values() for m in row.values()}
        levels = {level for _, _, level in self.rows}
        text = "Each set has the classes that the model cannot exclude. "
        if len(counts) == len(levels) == 1 and isinstance(count := counts.pop(), int) and count > 0:
            level = levels.pop()
            scatter = math.sqrt(level * (1 - level) / (count + 2))
            text += (
                f"It is calibrated on {count} {self.examples} of the validation split. On average over such splits, at "
                f"least {formats.share(level)} of the sets of clean {self.examples} contain the label. From one split "
                f"to another, coverage varies by about {formats.per_cent(scatter)} points (standard deviation). "
            )
        return (
            f"{text}Under attack nothing is guaranteed. LAC sets are smaller, APS sets adapt to difficult "
            f"{self.examples}."
        )

    @property
    def sentence(self) -> str:
        """The lowest coverage under attack."""
        coverages = [m for (attack, *_), row in self.rows.items() if attack and (m := row.get("coverage")) is not None]
        worst = min((m for m in coverages if m.value is not None), key=lambda m: m.value, default=None)
        if worst is None:
            return ""
        attack, score, level = _key(catalog.read(worst).settings)
        return (
            f"Prediction sets calibrated for {formats.share(level)} contain the label for "
            f"{formats.number(worst)} of the {self.examples} under {attack} ({score.upper()})."
        )

    def blocks(self) -> list[Block]:
        """Return the grid."""
        if not self.rows:
            return []
        cells = [
            [
                score.upper(),
                formats.share(level),
                f"under {attack}" if attack else "clean",
                *map(row.get, ("coverage", "size", "empty")),
            ]
            for (attack, score, level), row in self.rows.items()
        ]
        header = ["Score", "Level", self.examples.capitalize(), "Coverage", "Mean size", "Empty sets"]
        shown = tuple(m for row in self.rows.values() for m in row.values())
        return [Grid(header, cells, texts=3, title="Coverage and size", measurements=shown)]


def _key(settings: dict) -> tuple[str, str, float]:
    attack = attack_caption(settings) if "attack" in settings else ""
    return attack, settings["score"], float(settings["level"])
