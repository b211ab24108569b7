"""The section on examples: a few images, their attacked versions and the differences."""

import dataclasses
import functools
from functools import partial

from tfrobust.common import thumbnails
from tfrobust.report import attack_table, catalog, formats
from tfrobust.report.blocks import Block, Figure, Table
from tfrobust.report.blocks.pictures import strips, titled_rows
from tfrobust.report.blocks.plots import Line, curves
from tfrobust.report.catalog.spelling import attack_caption, attack_key
from tfrobust.report.catalog.under_attack import PICTURES
from tfrobust.report.difference import outcomes
from tfrobust.report.parts import class_name, has_numbers
from tfrobust.report.schema import Report
from tfrobust.report.sections.base import Section, image_of
from tfrobust.structs import Series

_PICTURES = ("image", "adversarial", "difference")
_FRAMES = ("frame", "size", "low", "high")
_NEEDED = {"label", "clean_class", "attacked_class", "height", "width", "channels", *_PICTURES}


@dataclasses.dataclass(frozen=True)
class Example:
    """One image with its predictions.

    Attributes:
        name: class of the image.
        clean: predicted class of the clean image and its probability.
        attacked: predicted class of the attacked image and its probability.
        misclassified: True if the attacked image is misclassified.
        misclassified_elsewhere: True if an attack measured in the report makes the model misclassify it within the same
            budget.
        pictures: clean image, attacked image and difference as nested lists, as they are drawn.
    """

    name: str
    clean: str
    attacked: str
    misclassified: bool
    misclassified_elsewhere: bool
    pictures: list[list]


@dataclasses.dataclass(frozen=True)
class Shown:
    """The examples of one attack, how they were drawn, and the factor of its differences ("" if not recorded).

    `frames` is the number of frames in each picture if the pictures are strips of a clip's frames, 0 for images.
    `ball` is norm, epsilon and restriction to frames of the attack, as in `attack_table.ball_of`.
    """

    identity: str
    ball: tuple[str, str, str]
    attack: str
    factor: str
    drawn: str
    examples: list[Example]
    frames: int


class Examples(Section):
    """Misclassified and correctly classified examples of each attack."""

    anchor = "examples"
    heading = "Examples"

    @functools.cached_property
    def shown(self) -> list[Shown]:
        """The examples in the report, attack by attack."""
        groups = []
        for series in self.report.series:
            entry = catalog.read(series)
            if entry.record is PICTURES and entry.name == "examples" and _NEEDED <= series.columns.keys():
                factor = series.settings.get("difference_factor")
                factor = f"{factor:.6g}" if isinstance(factor, (int, float)) else ""
                ball = attack_table.ball_of(entry.settings)
                examples = _examples(self.report, series, _misclassified_elsewhere(self.report, ball))
                if examples:
                    drawn = str(series.settings.get("drawn", "at random"))
                    caption, (frames, *_) = attack_caption(entry.settings), series.columns.get("frames", (0,))
                    frames = frames if isinstance(frames, int) else 0
                    key = attack_key(entry.settings)
                    groups.append(Shown(key, ball, caption, factor, drawn, examples, frames))
        return groups

    @property
    def lead(self) -> str:
        """Instructions for reading the pictures, and their limits."""
        factors = (
            " and ".join(dict.fromkeys(group.factor for group in self.shown if group.factor)) or "an unrecorded factor"
        )
        drawn = " and ".join(dict.fromkeys(group.drawn for group in self.shown))
        correct, weak = self._correct()
        noun, order = self.example, "top to bottom, frames of" if self._are_clips else "left to right:"
        lead = (
            f"From {order} the {noun}, the attacked {noun}, and the difference of the two multiplied by"
            f" {factors} (gray: unchanged). Above each is the predicted class and its probability. The {noun}s were"
            f" drawn {drawn}, among those classified correctly when clean, a fixed number of each kind."
        )
        if correct:
            exception = f": for {weak} of these {correct}, another attack in this report succeeds" if weak else ""
            lead += f' "Still correct" refers to the final point of this attack only{exception}.'
        return lead

    def blocks(self) -> list[Block]:
        """Return one figure of misclassified examples and one of correctly classified ones per attack."""
        figures = []
        for group in self.shown:
            for misclassified, kind in ((True, "Misclassified"), (False, "Still correct")):
                examples = [example for example in group.examples if example.misclassified == misclassified]
                if examples:
                    factor = f"\u00d7 {group.factor}" if group.factor else "difference"
                    rows = [
                        (e.name, list(zip((e.clean, e.attacked, factor), e.pictures, strict=True))) for e in examples
                    ]
                    draw = (
                        partial(strips, rows=rows, frames=group.frames)
                        if group.frames
                        else partial(titled_rows, rows=rows)
                    )
                    cells = [[e.name.removeprefix("class "), e.clean, e.attacked] for e in examples]
                    numbers = Table(["Label", "Clean prediction", "Attacked prediction"], cells, texts=3)
                    identity = f"examples-{group.identity}-{kind.lower().replace(' ', '-')}"
                    figures.append(Figure(identity, f"{kind} under {group.attack}", draw, numbers))
        return [*figures, *filter(None, (self._in_time(group) for group in self.shown))]

    @property
    def _are_clips(self) -> bool:
        return any(group.frames for group in self.shown)

    def _in_time(self, group: Shown) -> Figure | None:
        """Return the size of an attack's perturbations frame by frame; None unless it was measured."""
        series = self.report.get_series(f"attack.{group.identity}.frames")
        if not has_numbers(series, *_FRAMES):
            return None
        frame, size, low, high = (series.columns[name] for name in _FRAMES)
        line = Line("mean over clips", frame, size, low, high)
        axes = {"x_label": "frame", "y_label": "root mean square (pixels in [0, 1])"}
        numbers = Table(
            ["Frame", "Size", "Low", "High"], [list(row) for row in zip(frame, size, low, high, strict=True)]
        )
        draw = partial(curves, lines=[line], **axes)
        return Figure(f"frames-{group.identity}", f"Perturbation in each frame under {group.attack}", draw, numbers)

    def _correct(self) -> tuple[int, int]:
        """Count the examples that this attack leaves correct, and those of them that another attack does not."""
        correct = [example for group in self.shown for example in group.examples if not example.misclassified]
        return len(correct), sum(example.misclassified_elsewhere for example in correct)


def _examples(report: Report, series: Series, elsewhere: set[int]) -> list[Example]:
    columns, examples = series.columns, []
    for row, label in enumerate(columns["label"]):
        size = [columns[name][row] for name in ("height", "width", "channels")]
        drawn = [thumbnails.decode(columns[name][row], *size) for name in _PICTURES]
        if not all(drawn):
            continue
        predicted = [_prediction(report, columns, name, row) for name in ("clean", "attacked")]
        misclassified = columns["attacked_class"][row] != label
        position = columns.get("position", [None] * (row + 1))[row]
        weak = isinstance(position, int) and position in elsewhere
        images = [image_of(picture) for picture in drawn]
        examples.append(Example(class_name(report, label), *predicted, misclassified, weak, images))
    return examples


def _misclassified_elsewhere(report: Report, ball: tuple[str, str, str]) -> set[int]:
    """Return the positions of images misclassified under any attack in the report within these examples' budget."""
    rows = attack_table.attack_rows(report.measurements)
    budget_rows = [row for row in rows if row.ball == ball]
    return {
        position
        for row in budget_rows
        for position, digit in enumerate(outcomes(row.accuracy.id, report))
        if digit == "0"
    }


def _prediction(report: Report, columns: dict, name: str, row: int) -> str:
    """Format the predicted class and its probability: "7 (98.2 %)"."""
    label = class_name(report, columns[f"{name}_class"][row]).removeprefix("class ")
    confidence = columns.get(f"{name}_confidence", [None] * (row + 1))[row]
    if not isinstance(confidence, (int, float)):
        return label
    share = formats.share(confidence).replace(" ", "\N{NO-BREAK SPACE}")
    return f"{label} ({share})"
