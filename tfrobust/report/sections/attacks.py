"""The sections on attacks: accuracy against epsilon, and the table of attacks."""

from functools import partial

from tfrobust.report import intervals, reading
from tfrobust.report.blocks import Block, Figure, Grid, Noted, Table, plots
from tfrobust.report.blocks.plots import Line
from tfrobust.report.reading import AttackRow
from tfrobust.report.schema import Report
from tfrobust.report.sections.base import Section, accuracy_curves, joined
from tfrobust.structs import Measurement


class Curve(Section):
    """Accuracy against epsilon for each attack, as a plot and as a table."""

    anchor = "curve"
    heading = "Accuracy against epsilon"

    @property
    def lead(self) -> str:
        """The effort behind the curves, the kind of their bands, and the budget of training."""
        curves = [series for series in self.report.series if series.id.endswith(".curve")]
        known = []
        for series in curves:
            how = ", ".join(filter(None, (reading.effort(series.settings), _images_of(self.report, series.columns))))
            name = reading.attack_caption(series.id.removeprefix("attack.").removesuffix(".curve"))
            known += [f"{name}: {how}"] if how else []
        said = f" ({'; '.join(known)})" if known else ""
        lead = f"Accuracy as epsilon grows{said}. Bands are 95 % intervals ({intervals.kinds(curves)})."
        trained = self._training_budget()
        return lead if trained is None else f"{lead} The dotted line is the epsilon of training, {trained:.6g}."

    @property
    def sentence(self) -> str:
        """The first and the last accuracy of each curve, and the epsilon that halves it."""
        found = []
        for key, columns in accuracy_curves(self.report):
            points = sorted(p for p in zip(columns["epsilon"], columns["accuracy"], strict=True) if None not in p)
            if len(points) < 2 or not points[0][1]:
                continue
            (start, first), (end, last) = points[0], points[-1]
            of = ", ".join(filter(None, (reading.attack_caption(key), _images_of(self.report, columns))))
            first_share, last_share = (reading.quantity(share, "fraction") for share in (first, last))
            text = f"Under {of}, the accuracy is {first_share} at epsilon {start:.6g} and {last_share} at {end:.6g}"
            half = next((epsilon for epsilon, value in points if value <= first / 2), None)
            found.append(text + (f"; it has halved by epsilon {half:.6g}" if half not in (None, end) else ""))
        return joined(found)

    def blocks(self) -> list[Block]:
        """Return the plot and the grid of its numbers."""
        measured = accuracy_curves(self.report)
        if not measured:
            return []
        lines = [
            Line(
                reading.attack_caption(key),
                columns["epsilon"],
                columns["accuracy"],
                columns.get("low"),
                columns.get("high"),
            )
            for key, columns in measured
        ]
        axes = {"x_label": "epsilon (pixels in [0, 1])", "y_label": "accuracy", "percent": True}
        draw = partial(plots.curves, lines=lines, mark=self._training_budget(), **axes)
        grid = Grid(["Epsilon", *(line.text for line in lines)], _rows([columns for _, columns in measured]))
        return [Figure("curve-accuracy", "Accuracy under attack", draw), grid]

    def _training_budget(self) -> float | None:
        """Return the epsilon of training if it has the curves' scale: a number, in the norm of all curves."""
        norms = {key.rpartition("_")[2] for key, _ in accuracy_curves(self.report)}
        epsilon = self.report.training.get("epsilon")
        is_number = isinstance(epsilon, (int, float)) and not isinstance(epsilon, bool)
        return epsilon if is_number and norms == {self.report.training.get("norm")} else None


def _images_of(report: Report, columns: dict) -> str:
    """Describe the number of test images behind a curve, and whether they are a subset; "" if unknown."""
    counts = columns.get("n", ())
    if len(set(counts)) != 1 or type(counts[0]) is not int:
        return ""
    size = report.data.get("test_size")
    part = ", a random subset" if isinstance(size, int) and counts[0] < size else ""
    return f"on {counts[0]} test images{part}"


def _rows(curves: list[dict]) -> list[list]:
    """Return the curves' numbers: epsilon, and the accuracy under each attack there."""
    points = [{} for _ in curves]
    for found, columns in zip(points, curves, strict=True):
        empty = [None] * len(columns["epsilon"])
        bounds = (columns.get("low") or empty, columns.get("high") or empty)
        for epsilon, value, low, high in zip(columns["epsilon"], columns["accuracy"], *bounds, strict=True):
            if epsilon is not None:
                found[epsilon] = Measurement("", value, "fraction", None, low, high)
    epsilons = sorted({epsilon for found in points for epsilon in found})
    return [[f"{epsilon:.6g}", *(found.get(epsilon) for found in points)] for epsilon in epsilons]


class Attacks(Section):
    """The accuracy under each attack and each member of an ensemble, with the clean accuracy on top."""

    anchor = "attacks"
    heading = "Attacks"

    @property
    def rows(self) -> list[AttackRow]:
        """All attacks and members."""
        return reading.attack_rows(self.report.measurements, members=True)

    @property
    def lead(self) -> str:
        """The content of the table and the kinds of its intervals."""
        lead = "Accuracy on the same test images under each attack, with its 95 % interval in per cent"
        clean = self.report.get("accuracy.clean")
        said = intervals.kinds([clean, *(row.accuracy for row in self.rows)])
        drops = intervals.kinds(row.drop for row in self.rows)
        said = "; ".join(filter(None, (said, f"of relative drops: {drops}" if drops else "")))
        return f"{lead} ({said})." if said else f"{lead}."

    @property
    def sentence(self) -> str:
        """The strongest attack and the accuracy under it, and the budgets without an attack as strong as AutoAttack."""
        rows = [row for row in reading.attack_rows(self.report.measurements) if row.accuracy.value is not None]
        worst = reading.strongest(rows)
        if worst is None:
            return ""
        which = f"{worst.name} within {worst.budget}"
        which = (
            f"Of {len(rows)} attacks, {which} gives the lowest"
            if len(rows) > 1
            else f"{which}, the only attack, gives an"
        )
        early = ", although its time budget ended it early" if worst.is_upper_bound else ""
        found = f"{which} accuracy: {reading.number(worst.accuracy)}{intervals.in_brackets(worst.accuracy)}{early}."
        weak = reading.weakly_attacked(self.report.measurements)
        return f"{found} {_weak(weak)}" if weak else found

    def blocks(self) -> list[Block]:
        """Return the table of attacks."""
        clean, found = self.report.get("accuracy.clean"), []
        if self.rows and clean:
            unmodified = Noted("no attack", f"unmodified {reading.examples_of(self.report.data)}")
            found.append([unmodified, clean, None, clean.n])
        for row in self.rows:
            name = f"{row.name}: after {reading.attack_name(row.member)}" if row.member else row.name
            detail = ", ".join(part for part in (row.budget, row.effort) if part)
            detail += "; upper bound: ended by its time budget" if row.is_upper_bound else ""
            found.append([Noted(name, detail), row.accuracy, row.drop, row.accuracy.n])
        return [Table(["Attack", "Accuracy", "Relative drop", "Images"], found, bars=(1,))] if found else []


def _weak(budgets: list[str]) -> str:
    """State that no strong attack was run within the budgets."""
    within = " and ".join(budgets)
    return f"No attack as strong as APGD-T or AutoAttack was run within {within}; these usually leave less accuracy."
