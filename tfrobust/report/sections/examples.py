"""The section on examples: a few images, their attacked versions and the differences."""

import dataclasses
import re

from tfrobust.common import pictures
from tfrobust.report import reading
from tfrobust.report.blocks import html as page
from tfrobust.report.blocks import pictures as plots_pictures
from tfrobust.report.difference import outcomes
from tfrobust.report.schema import Report
from tfrobust.report.sections.results import attack_caption
from tfrobust.report.sections.sensitivity import class_name, image_of
from tfrobust.structs import Series

_PICTURES = ("image", "adversarial", "difference")
_NEEDED = {"label", "clean_class", "attacked_class", "height", "width", "channels", *_PICTURES}
_GROUPS = ((True, "brought-down", "Brought down"), (False, "still-right", "Still right"))


@dataclasses.dataclass(frozen=True)
class Example:
    """One image with its predictions.

    Attributes:
        name: class of the image.
        clean: predicted class of the clean image and its probability.
        attacked: predicted class of the attacked image and its probability.
        fallen: True if the attacked image is misclassified.
        falls_elsewhere: True if an attack measured in the report makes the model misclassify it within the same budget.
        pictures: clean image, attacked image and difference as nested lists, as they are drawn.
    """

    name: str
    clean: str
    attacked: str
    fallen: bool
    falls_elsewhere: bool
    pictures: list[list]


@dataclasses.dataclass(frozen=True)
class Shown:
    """The examples of one attack, and the factor that amplifies its differences ("" where it is not recorded)."""

    identity: str
    attack: str
    factor: str
    examples: list[Example]


def shown(report: Report) -> list[Shown]:
    """Return the examples in a report, attack by attack."""
    found = []
    for series in report.series:
        match = re.fullmatch(r"attack\.(.+)\.examples", series.id)
        if match and _NEEDED <= series.columns.keys():
            key, _, epsilon = match[1].rpartition("_")
            factor = series.settings.get("difference_factor")
            factor = f"{factor:.6g}" if isinstance(factor, (int, float)) else ""
            examples = _examples(report, series, _fallen_elsewhere(report, match[1]))
            if examples:
                found.append(Shown(match[1], f"{attack_caption(key)} {epsilon}", factor, examples))
    return found


def lead(found: list[Shown]) -> str:
    """Return the lead: how to read the pictures, and what they do not show."""
    factors = " and ".join(dict.fromkeys(one.factor for one in found if one.factor)) or "an unrecorded factor"
    standing = [example for one in found for example in one.examples if not example.fallen]
    weak = sum(example.falls_elsewhere for example in standing)
    alone = " Still right says so of the last point of this attack alone" if standing else ""
    alone += f": attacks measured in this report bring down {weak} of these {len(standing)}" if weak else ""
    return (
        "From left to right: the image, the image attacked, and the difference of the two multiplied by"
        f" {factors} (grey: nothing changed). Above each its predicted class and the probability the model gives it."
        " The images were drawn at random among those right when clean, so many of each kind whatever the accuracy."
        f"{alone and alone + '.'}"
    )


def examples(report: Report) -> tuple[str, str] | None:
    """Render one figure of misclassified examples and one of correctly classified ones per attack."""
    found = shown(report)
    items = []
    for one in found:
        for fallen, word, caption in _GROUPS:
            own = [example for example in one.examples if example.fallen == fallen]
            if own:
                identity = f"examples-{one.identity}-{word}"
                factor = f"\u00d7 {one.factor}" if one.factor else "difference"
                rows = [(e.name, list(zip((e.clean, e.attacked, factor), e.pictures, strict=True))) for e in own]
                plot = plots_pictures.titled_rows(identity, rows)
                items.append(page.figure(identity, f"{caption} {'by' if fallen else 'under'} {one.attack}", plot))
    return (lead(found), page.figures(items)) if items else None


def _examples(report: Report, series: Series, elsewhere: set[int]) -> list[Example]:
    columns, found = series.columns, []
    for row, label in enumerate(columns["label"]):
        size = [columns[name][row] for name in ("height", "width", "channels")]
        drawn = [pictures.decode(columns[name][row], *size) for name in _PICTURES]
        if not all(drawn):
            continue
        said = [_answer(report, columns, name, row) for name in ("clean", "attacked")]
        fallen = columns["attacked_class"][row] != label
        place = columns.get("position", [None] * (row + 1))[row]
        weak = isinstance(place, int) and place in elsewhere
        found.append(Example(class_name(report, label), *said, fallen, weak, [image_of(picture) for picture in drawn]))
    return found


def _fallen_elsewhere(report: Report, identity: str) -> set[int]:
    """Return the positions of images misclassified under any attack in the report within these examples' budget."""
    own = [row for row in reading.attack_rows(report.measurements) if identity.endswith(f"_{row.norm}_{row.epsilon}")]
    return {place for row in own for place, right in enumerate(outcomes(row.accuracy.id, report)) if right == "0"}


def _answer(report: Report, columns: dict, name: str, row: int) -> str:
    """Format the predicted class and its probability: "7 (98 %)"."""
    label = class_name(report, columns[f"{name}_class"][row]).removeprefix("class ")
    confidence = columns.get(f"{name}_confidence", [None] * (row + 1))[row]
    return f"{label} ({100 * confidence:.0f} %)" if isinstance(confidence, (int, float)) else label
