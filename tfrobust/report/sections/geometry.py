"""The sections on the geometry of features: divergences within and between classes, and the feature map."""

from functools import partial

from tfrobust.report import catalog, formats, history
from tfrobust.report.blocks import Block, Figure, Numbers, columns_table, plots
from tfrobust.report.blocks.plots import Line
from tfrobust.report.catalog.features import DIVERGENCES, GEOMETRY
from tfrobust.report.parts import has_numbers
from tfrobust.report.sections.base import Section, columns_of


class Divergence(Section):
    """The divergences, against epsilon and during training."""

    anchor = "divergence"
    heading = "Divergence"
    lead = (
        "The distance between features of one class, relative to the distance between classes. The lower R-DIV, the"
        " more robust a model tends to be."
    )

    def blocks(self) -> list[Block]:
        """Return the plots and the numbers."""
        figures = []
        for identity, key, x_label, when in (
            ("geometry.divergence_curve", "epsilon", "ε (pixels in [0, 1])", "against ε"),
            ("training.history", "epoch", "epoch", "during training"),
        ):
            columns = columns_of(self.report, identity, key)
            groups = history.history_groups(columns)
            names = {
                "accuracy": groups["accuracy"] if key == "epsilon" else [],  # by epoch: another section has it
                "R-DIV": [name for name in groups["divergence"] if "r_div" in name],
                "absolute": [name for name in groups["divergence"] if "r_div" not in name],
            }
            lines = {
                kind: [
                    Line(formats.nice(name), columns[key], columns[name], role="attacked" * (kind == "accuracy"))
                    for name in chosen
                ]
                for kind, chosen in names.items()
            }
            if names["R-DIV"]:
                panels = [(kind, lines[kind], kind == "accuracy") for kind in ("accuracy", "R-DIV") if lines[kind]]
                draw = partial(plots.stacked_curves, panels=panels, x_label=x_label)
                numbers = columns_table(columns, [key, *names["accuracy"], *names["R-DIV"]])
                subject = "R-DIV and accuracy" if names["accuracy"] else "R-DIV"
                figures.append(Figure(f"{identity}-relative", f"{subject} {when}", draw, numbers))
            if names["absolute"]:
                axes = {"x_label": x_label, "y_label": "cosine distance", "height": 3.9}
                draw = partial(plots.curves, lines=lines["absolute"], **axes)
                numbers = columns_table(columns, [key, *names["absolute"]])
                figures.append(Figure(f"{identity}-absolute", f"Absolute divergences {when}", draw, numbers))
        measured = [m for m in self.measured(GEOMETRY.family.name) if catalog.read(m).name in DIVERGENCES]
        return [*figures, Numbers(measured)]


class Features(Section):
    """The feature map, colored by class and by entropy."""

    anchor = "features"
    heading = "Feature map"

    @property
    def lead(self) -> str:
        """Instructions for reading the map."""
        lead = "Penultimate features in two dimensions (t-SNE). Distances are only suggestive, no measurement"
        more = (
            f"An adversarial {self.example} has the color of its true class; among another class it hints at an error."
        )
        return f"{lead}. {more}" if self._attacked else f"{lead}."

    def blocks(self) -> list[Block]:
        """Return the maps."""
        series = self.report.get_series("geometry.feature_map")
        has_points = has_numbers(series, "x", "y", "adversarial", "label") and series.columns["x"]
        if not has_points or None in (*series.columns["x"], *series.columns["y"]):
            return []
        title = f"{self.examples.capitalize()} by class"
        if self._attacked:
            title = f"Natural and adversarial {self.examples}"
        names = self.report.data.get("class_names")
        draw = partial(plots.feature_map, columns=series.columns, class_names=names, examples=self.examples)
        figures = [Figure("features-classes", title, draw)]
        if has_numbers(series, "entropy"):
            draw = partial(plots.entropy_map, columns=series.columns, examples=self.examples)
            figures.append(Figure("features-entropy", "Entropy of the prediction (nats)", draw))
        return figures

    @property
    def _attacked(self) -> bool:
        return any(columns_of(self.report, "geometry.feature_map").get("adversarial", ()))
