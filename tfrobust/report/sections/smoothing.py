"""The section on smoothed classifiers: certified accuracy over the radius."""

from functools import partial

from tfrobust.report import reading
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
        """What is certified, with which confidence."""
        settings = next(iter(self._found[0].accuracies.values())).settings if self._found else {}
        draws, confidence = settings.get("n"), settings.get("confidence")
        each = f" with confidence {100 * confidence:g} %" if isinstance(confidence, float) else ""
        said = f" from {draws:,} draws" if isinstance(draws, int) else ""
        return (
            "It votes over noisy copies of an image, and abstains without a clear majority. "
            f"A radius{said} holds{each} for each image by itself. Abstentions count as errors."
        )

    @property
    def sentence(self) -> str:
        """The certified accuracy of each."""
        return " ".join(map(smoothed_sentence, self._found))

    @property
    def _found(self) -> list[reading.Smoothed]:
        return reading.smoothed(self.report.measurements)

    def blocks(self) -> list[Block]:
        """Return the curves, and the accuracies at some radii with the average radius."""
        if not self._found:
            return []
        rows, measured = [], []
        for found in self._found:
            rest = [found.others.get(what) for what in ("acr", "abstention")]
            measured += [m for m in (*found.accuracies.values(), *rest) if m is not None]
            rows += [[found.name, f"{found.norm} {radius:g}", m] for radius, m in found.accuracies.items()]
            rows += [[found.name, text, m] for text, m in zip(("average", "abstains"), rest, strict=True) if m]
        header = ["Classifier", "Radius", "Certified"]
        grid = Grid(header, rows, texts=2, title=self.heading, measurements=tuple(measured), note=_NOTE)
        return [*self._curves(), grid]

    def _curves(self) -> list[Figure]:
        lines = []
        for found in self._found:
            series = self.report.get_series(f"smoothing.{found.key}.curve")
            if has_numbers(series, "radius", "accuracy", *(ends(series) if series else ())):
                columns = columns_of(self.report, series.id)
                band = (columns.get("low"), columns.get("high"))
                lines.append(
                    Line(
                        f"{found.name} ({found.norm})", columns["radius"], columns["accuracy"], *band, role="certified"
                    )
                )
        axes = {"x_label": "radius (pixels in [0, 1])", "y_label": "certified accuracy", "percent": True}
        draw = partial(plots.curves, lines=lines, **axes)
        return [Figure("smoothing-curve", "Certified accuracy over the radius", draw)] if lines else []
