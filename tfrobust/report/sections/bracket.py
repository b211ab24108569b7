"""The section on both bounds of the accuracy under attack: certified from below, attacked from above."""

from functools import partial

from tfrobust.report import attack_table
from tfrobust.report.blocks import Block, Figure, Table, plots
from tfrobust.report.sections.base import Section
from tfrobust.report.threat import bracket_sentence


class Brackets(Section):
    """One bar per threat model: the certified share, the unknown share, and the share that an attack breaks."""

    anchor = "bracket"
    heading = "Bounds from both sides"

    @property
    def lead(self) -> str:
        """The meaning of the three shares."""
        return (
            "Certified: a sound bound proves that no perturbation of this size changes the class. Attacked: an attack "
            f"changes it, or the {self.example} is misclassified without one. Unknown: neither."
        )

    @property
    def sentence(self) -> str:
        """One sentence on what each bound proves."""
        return " ".join(bracket_sentence(bracket, self.examples) for bracket in self._brackets)

    @property
    def _brackets(self) -> list[attack_table.Bracket]:
        return attack_table.brackets(self.report.measurements, self.report.series)

    def blocks(self) -> list[Block]:
        """Return the bars and their numbers."""
        if not self._brackets:
            return []
        names, shares, rows = [], [], []
        for bracket in self._brackets:
            certified, attacked = bracket.certified, bracket.attacked
            names.append(bracket.budget)
            shares.append((certified.value, bracket.unknown, 1.0 - max(bracket.upper, certified.value)))
            sample = certified.settings.get("sample")
            measured = attacked and attacked.accuracy
            method = f"{bracket.method}, {sample} {self.examples}" if sample else bracket.method
            rows.append([bracket.budget, method, certified, attacked.name if attacked else "none", measured])
        kinds = {"kinds": ("certified", "unknown", "attacked"), "examples": self.examples}
        draw = partial(plots.stacked_bars, names=names, shares=shares, **kinds)
        header = ["Threat model", "Bound", "Certified", "Strongest attack", "Accuracy under it"]
        return [Figure("bracket-shares", "Certified, unknown, attacked", draw), Table(header, rows, texts=2)]
