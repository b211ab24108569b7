"""The sections on attacks: accuracy against epsilon, and the table of attacks."""

import functools
from functools import partial

from tfrobust.report import attack_table, catalog, reading
from tfrobust.report.attack_table import PASSES_HEADING, AttackRow
from tfrobust.report.blocks import Block, Figure, Grid, Noted, Numbers, plots
from tfrobust.report.blocks.plots import Line
from tfrobust.report.catalog.expected_robustness import EXPECTED
from tfrobust.report.catalog.spelling import attack_label, attack_name, curve_caption, frames
from tfrobust.report.schema import Report
from tfrobust.report.sections.base import MeasuredCurve, Section, accuracy_curves, joined
from tfrobust.structs import Measurement

_LONGEST_NAME = 80
_LONGEST_GRID = 15
_FAST = (
    "The fast ensemble gives an upper bound of the accuracy under AutoAttack, not comparable with published numbers. "
    "That is measured by python -m tfrobust.evaluate --model=MODEL --gin_file=gin/eval/autoattack.gin."
)


class Curve(Section):
    """Accuracy against epsilon for each attack, as a plot and as a table."""

    anchor = "curve"
    heading = "Accuracy against epsilon"

    @property
    def lead(self) -> str:
        """The effort behind the curves."""
        efforts = []
        for curve in accuracy_curves(self.report):
            effort = attack_table.effort(curve.settings)
            how = ", ".join(filter(None, (effort, _images_of(self.report, curve.columns))))
            efforts += [f"{_caption(curve)}: {how}"] if how else []
        remark = f" ({'; '.join(efforts)})" if efforts else ""
        return f"Accuracy as epsilon grows{remark}."

    @property
    def sentence(self) -> str:
        """The epsilon at which the accuracy of each curve has halved."""
        clauses = []
        for curve in accuracy_curves(self.report):
            columns = curve.columns
            points = sorted(p for p in zip(columns["epsilon"], columns["accuracy"], strict=True) if None not in p)
            clean = points[0][1] if points and points[0][0] == 0 else 0.0  # unknown without a point at epsilon 0
            half = next((epsilon for epsilon, value in points if value <= clean / 2), None)
            if half and clean:
                clauses.append(f"under {_caption(curve)}, the accuracy has halved by epsilon {half:.6g}")
        return joined(clauses)

    def blocks(self) -> list[Block]:
        """Return the plot and the grid of its numbers."""
        measured = accuracy_curves(self.report)
        if not measured:
            return []
        lines = [
            Line(
                _caption(curve),
                curve.columns["epsilon"],
                curve.columns["accuracy"],
                curve.columns.get("low"),
                curve.columns.get("high"),
                role="attacked",
            )
            for curve in measured
        ]
        grid = Grid(["ε", *(line.text for line in lines)], self._rows(measured), texts=0)
        lines += self._fixed_radii(measured)
        counted = all(curve.settings["norm"] == "l0" for curve in measured)
        unit = "changed values" if counted else "pixels in [0, 1]"
        axes = {"x_label": f"ε ({unit})", "y_label": "accuracy", "percent": True}
        trained = self._training_budget()
        mark = None if trained is None else (trained, f"ε of training, {trained:.6g}")
        draw = partial(plots.curves, lines=lines, mark=mark, **axes)
        areas = Numbers(self.measured(EXPECTED.family.name))
        return [Figure("curve-accuracy", "Accuracy under attack", draw), grid, areas]

    def _fixed_radii(self, curves: list[MeasuredCurve]) -> list[Line]:
        """Return the lowest accuracy of the attacks at each radius, in the norm of all curves, as separate points."""
        kinds = {(curve.settings["norm"], frames(curve.settings)) for curve in curves}
        by_radius: dict[float, list[AttackRow]] = {}
        for row in attack_table.attack_rows(self.report.measurements):
            if {(row.norm, row.frames)} == kinds and row.attack not in _attacks_of(curves):
                by_radius.setdefault(float(row.epsilon), []).append(row)
        lowest = {radius: attack_table.strongest(rows) for radius, rows in sorted(by_radius.items())}
        points = [(radius, row.accuracy) for radius, row in lowest.items() if row is not None]
        if not points:
            return []
        values, low, high = ([getattr(m, end) for _, m in points] for end in ("value", "low", "high"))
        radii = [radius for radius, _ in points]
        return [Line("lowest under an attack at one ε", radii, values, low, high, role="ink", joined=False)]

    def _rows(self, curves: list[MeasuredCurve]) -> list[list]:
        """Return the curves' numbers: epsilon, and the accuracy under each attack there."""
        points = [{} for _ in curves]
        for curve_points, (_, settings, columns) in zip(points, curves, strict=True):
            empty = [None] * len(columns["epsilon"])
            bounds = (columns.get("low") or empty, columns.get("high") or empty)
            for epsilon, value, low, high in zip(columns["epsilon"], columns["accuracy"], *bounds, strict=True):
                if epsilon is not None:
                    curve_points[epsilon] = Measurement("", value, "fraction", None, low, high, settings)
        epsilons = sorted({epsilon for curve_points in points for epsilon in curve_points})
        # A minimal-norm attack has a point at every distance; a table needs those that all curves have.
        if len(epsilons) > _LONGEST_GRID:
            shared = [epsilon for epsilon in epsilons if all(epsilon in curve_points for curve_points in points)]
            if len(points) > 1 and len(shared) > 1:
                epsilons = _thinned(shared)
            else:  # curves of other radii, such as those of another norm
                epsilons = sorted({epsilon for curve_points in points for epsilon in _thinned(sorted(curve_points))})
        return [[f"{epsilon:.6g}", *(curve_points.get(epsilon) for curve_points in points)] for epsilon in epsilons]

    def _training_budget(self) -> float | None:
        """Return the epsilon of training if it has the curves' scale: a number, in the norm of all curves."""
        kinds = {(curve.settings["norm"], frames(curve.settings)) for curve in accuracy_curves(self.report)}
        training, epsilon = self.report.training, self.report.training.get("epsilon")
        is_number = isinstance(epsilon, (int, float)) and not isinstance(epsilon, bool)
        # Another program may have written a norm that no set holds.
        return epsilon if is_number and [*kinds] == [(training.get("norm"), frames(training))] else None


def _thinned(epsilons: list[float]) -> list[float]:
    """Return all of a few epsilons, and about every second, third or so of many, so that these are few."""
    return epsilons[:: max(1, -(-len(epsilons) // _LONGEST_GRID))]


def _attacks_of(curves: list[MeasuredCurve]) -> set[str]:
    return {attack_label(curve.settings) for curve in curves}


def _caption(curve: MeasuredCurve) -> str:
    return curve_caption(curve.settings, steps=True)


def _images_of(report: Report, columns: dict) -> str:
    """Describe the number of test images behind a curve, and whether they are a subset; "" if unknown."""
    counts = columns.get("n", ())
    if len(set(counts)) != 1 or type(counts[0]) is not int:
        return ""
    size = report.data.get("test_size")
    part = ", a random subset" if isinstance(size, int) and counts[0] < size else ""
    return f"on {counts[0]} test {reading.examples_of(report.data)}{part}"


class Attacks(Section):
    """The accuracy under each attack and each member of an ensemble, with the clean accuracy on top."""

    anchor = "attacks"
    heading = "Accuracy by attack"

    @property
    def rows(self) -> list[AttackRow]:
        """All attacks and members."""
        return attack_table.attack_rows(self.report.measurements, members=True)

    @property
    def lead(self) -> str:
        """The images and the budget of all attacks, where they are the same."""
        (count, *different), (budget, *budgets) = self._counts, self._budgets
        images = self.examples
        which = f"the same {count} test {images}" if count and not different else f"test {images}"
        return f"Accuracy on {which}, unmodified and under each attack{'' if budgets else f' within {budget}'}."

    @property
    def sentence(self) -> str:
        """The strongest of several attacks, and the budgets without an attack as strong as AutoAttack."""
        rows = [row for row in attack_table.attack_rows(self.report.measurements) if row.accuracy.value is not None]
        worst = attack_table.strongest(rows)
        if worst is None:
            return ""
        within = f" within {worst.budget}" if len(self._budgets) > 1 else ""
        early = ", although its time budget ended it early" if worst.is_upper_bound else ""
        compared = attack_table.compared_with(worst, rows)
        which = f" on the same {worst.accuracy.n} {self.examples}" if len(compared) < len(rows) else ""
        lowest = f"Of {len(compared)} attacks{which}, {worst.name}{within} gives the lowest accuracy{early}."
        sentences = [lowest] if len(compared) > 1 else []
        weak = attack_table.weakly_attacked(self.report.measurements)
        sentences += [_weak(weak)] if weak else []
        if any("black_box" in row.accuracy.settings for row in rows) and not any(
            "autoattack" in r.attack for r in rows
        ):
            sentences.append(_FAST)
        return " ".join(sentences)

    def blocks(self) -> list[Block]:
        """Return the bar chart and the table of attacks."""
        if not self.rows:
            return []
        clean, rows, references = self.report.get("accuracy.clean"), [], []
        if clean:
            unmodified = Noted("no attack", f"unmodified {self.examples}")
            rows.append([unmodified, clean, None, None, clean.n])
            references.append(self._reference(clean))
        for row in self.rows:
            name = f"{row.name}: after {attack_name(row.member)}" if row.member else row.name
            detail = ", ".join(part for part in (row.budget if len(self._budgets) > 1 else "", row.effort) if part)
            spared = row.accuracy.settings.get("spared")
            detail += f"; {spared} certified {self.examples} spared" if spared else ""
            detail += "; upper bound: ended by its time budget" if row.is_upper_bound else ""
            rows.append([Noted(name, detail), row.accuracy, row.drop, row.passes or None, row.accuracy.n])
            references.append(self._reference(row.accuracy))
        header = ["Attack", "Accuracy", "Relative drop", PASSES_HEADING, self.examples.capitalize()]
        if len(self._counts) == 1:
            header, rows = header[:-1], [row[:-1] for row in rows]
        if not any(row.passes for row in self.rows):
            header, rows = [*header[:3], *header[4:]], [[*row[:3], *row[4:]] for row in rows]
        if any(references):
            name = str(next(filter(None, references)).settings.get("reference", "reference"))
            header.insert(2, f"Accuracy of {name[:_LONGEST_NAME]}")
            rows = [[*row[:2], other, *row[2:]] for row, other in zip(rows, references, strict=True)]
        return [Figure("attacks-accuracy", "Clean and under each attack", self._chart), Grid(header, rows)]

    def _reference(self, accuracy: Measurement) -> Measurement | None:
        return self.report.get(f"{catalog.REFERENCE}{accuracy.id}")

    def _chart(self, identity: str) -> plots.Plot:
        clean = self.report.get("accuracy.clean")
        rows = attack_table.attack_rows(self.report.measurements)
        names = [row.title if len(self._budgets) > 1 else row.name for row in rows]
        shown, kinds = [row.accuracy for row in rows], ["under attack"] * len(rows)
        if clean:
            names, shown, kinds = ["no attack", *names], [clean, *shown], ["clean", *kinds]
        columns = {name: [getattr(m, end) for m in shown] for name, end in plots.ENDS.items()}
        return plots.bars(identity, names, **columns, x_label="accuracy", kinds=kinds, top=1.0)

    @functools.cached_property
    def _counts(self) -> list[int | None]:
        """The different numbers of images."""
        clean = self.report.get("accuracy.clean")
        accuracies = [row.accuracy for row in self.rows] + ([clean] if clean else [])
        return list(dict.fromkeys(m.n for m in accuracies))

    @functools.cached_property
    def _budgets(self) -> list[str]:
        """The different budgets of the attacks."""
        return list(dict.fromkeys(row.budget for row in self.rows))


def _weak(budgets: list[str]) -> str:
    """State that no strong attack was run within the budgets."""
    within = " and ".join(budgets)
    return f"No attack as strong as APGD-T or AutoAttack was run within {within}; these usually leave less accuracy."
