"""The section on smoothed classifiers: certified accuracy over the radius."""

from functools import partial

from tfrobust.report import smoothing_table
from tfrobust.report.blocks import Block, Figure, Grid, plots
from tfrobust.report.blocks.plots import Line
from tfrobust.report.parts import has_numbers
from tfrobust.report.sections.base import Section, columns_of, ends
from tfrobust.report.threat import smoothed_sentence

_NOTE = "It is not the one behind serving_default."


class Smoothing(Section):
    """One curve and one row per smoothed classifier."""

    anchor = "smoothing"
    heading = "The smoothed classifier"

    @property
    def lead(self) -> str:
        """The certified statement and its confidence."""
        settings = [next(iter(classifier.accuracies.values())).settings for classifier in self._classifiers]
        draws, confidence = (_common(settings, name) for name in ("n", "confidence"))
        certainty = f" with confidence {100 * confidence:g} %" if isinstance(confidence, float) else ""
        effort = f" from {draws:,} draws" if isinstance(draws, int) else ""
        return (
            f"It votes over noisy copies of the {self.example}, and abstains without a clear majority. "
            f"A radius{effort} holds{certainty} for each {self.example} by itself. Abstentions count as errors."
        )

    @property
    def sentence(self) -> str:
        """The certified accuracy of each."""
        return " ".join(smoothed_sentence(classifier, self.examples) for classifier in self._classifiers)

    @property
    def _classifiers(self) -> list[smoothing_table.Smoothed]:
        return smoothing_table.smoothed(self.report.measurements)

    def blocks(self) -> list[Block]:
        """Return the curves, and the accuracies at some radii with the average radius."""
        if not self._classifiers:
            return []
        rows, measured = [], []
        for classifier in self._classifiers:
            rest = [classifier.summaries.get(measure) for measure in ("acr", "abstention")]
            measured += [m for m in (*classifier.accuracies.values(), *rest) if m is not None]
            rows += [
                [classifier.name, f"{classifier.norm} {radius:g}", m] for radius, m in classifier.accuracies.items()
            ]
            rows += [[classifier.name, text, m] for text, m in zip(("average", "abstains"), rest, strict=True) if m]
        header = ["Classifier", "Radius", "Certified"]
        grid = Grid(header, rows, texts=2, title=self.heading, measurements=tuple(measured), note=_NOTE)
        return [*self._curves(), grid]

    def _curves(self) -> list[Figure]:
        lines = []
        for classifier in self._classifiers:
            series = self.report.get_series(f"{classifier.key}.curve")
            if has_numbers(series, "radius", "accuracy", *(ends(series) if series else ())):
                columns = columns_of(self.report, series.id)
                band = (columns.get("low"), columns.get("high"))
                lines.append(
                    Line(
                        f"{classifier.name} ({classifier.norm})",
                        columns["radius"],
                        columns["accuracy"],
                        *band,
                        role="certified",
                    )
                )
        axes = {"x_label": "radius (pixels in [0, 1])", "y_label": "certified accuracy", "percent": True}
        draw = partial(plots.curves, lines=lines, **axes)
        return [Figure("smoothing-curve", "Certified accuracy over the radius", draw)] if lines else []


def _common(settings: list[dict], name: str):
    """Return the value of a setting that all classifiers share; None if they differ."""
    values = [each_settings.get(name) for each_settings in settings]
    return values[0] if values and all(value == values[0] for value in values) else None
