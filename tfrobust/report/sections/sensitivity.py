"""The section on utility and sensitivity: pictures of the maps, and the numbers over all images."""

import random
from functools import partial

from tfrobust.common import thumbnails
from tfrobust.report import catalog
from tfrobust.report.blocks import Block, Figure, Numbers
from tfrobust.report.blocks.pictures import class_maps, marked_pixels, pixel_maps
from tfrobust.report.catalog.features import TOKENS
from tfrobust.report.parts import class_name
from tfrobust.report.schema import Report
from tfrobust.report.sections.base import Section, columns_of, image_of

# The most useful and the least useful tenth of an image's pixels are marked.
_MARKED_SHARE = 0.1


class Sensitivity(Section):
    """Some images with their maps, their most and least useful pixels, the class means and the numbers."""

    anchor = "sensitivity"
    heading = "Utility and sensitivity"
    lead = (
        "Utility: how much a pixel changes the loss. Sensitivity: how much it changes the features. Concentration is 0"
        " if all pixels matter equally and near 1 if a few pixels dominate. Agreement is 1 if the features are most"
        " sensitive to the pixels that change the loss most."
    )

    def blocks(self) -> list[Block]:
        """Return the pictures and the numbers."""
        numbers = [m for m in self.measured(TOKENS.family.name) if catalog.read(m).record is not TOKENS]
        return [*_maps(self.report), *_classes(self.report, self.examples), *_marked(self.report), Numbers(numbers)]


def _maps(report: Report) -> list[Figure]:
    columns = _columns(report)
    names = [name for name in ("utility", "sensitivity") if name in columns]
    rows = []
    for name, image, lines in _pictures(report, columns):
        maps = [[[columns[kind][position] or 0.0 for position in line] for line in lines] for kind in names]
        rows.append((name, [image, *maps]))
    draw = partial(pixel_maps, titles=["image", *names], rows=rows)
    caption = "Utility and sensitivity of the pixels (bright: largest of each picture)"
    return [Figure("sensitivity-maps", caption, draw)] if rows else []


def _marked(report: Report) -> list[Figure]:
    columns, panels = _columns(report), []
    for name, image, lines in _pictures(report, columns):
        places = {(row, column): position for row, line in enumerate(lines) for column, position in enumerate(line)}
        # Shuffled first, so that the order of equally useful pixels does not depend on their position.
        order = random.Random(0).sample(list(places), len(places))
        order.sort(key=lambda pixel, places=places: columns["utility"][places[pixel]] or 0.0)
        count = max(1, round(_MARKED_SHARE * len(order)))
        panels.append((name, image, order[-count:], order[:count]))
    share = f"{100 * _MARKED_SHARE:.0f} %"
    caption = f"The {share} most and the {share} least useful pixels"
    return [Figure("sensitivity-marked", caption, partial(marked_pixels, panels=panels))] if panels else []


def _classes(report: Report, examples: str) -> list[Figure]:
    needed = ("label", "images", "height", "width", "channels", "image", "utility")
    columns, panels = columns_of(report, "sensitivity.classes", *needed), []
    for row, label in enumerate(columns.get("label", ())):
        height, width, channels = (columns[name][row] for name in ("height", "width", "channels"))
        image = thumbnails.decode(columns["image"][row], height, width, channels)
        utility = thumbnails.decode(columns["utility"][row], height, width, 1)
        if image and utility:
            panels.append((class_name(report, label), image_of(image), image_of(utility)))
    if not panels:
        return []
    title, example = report.get_series("sensitivity.classes").title, examples.removesuffix("s")
    caption = f"{title} (below the mean {example}; bright: largest of each map)"
    return [Figure("sensitivity-classes", caption, partial(class_maps, panels=panels))]


def _columns(report: Report) -> dict:
    return columns_of(report, "sensitivity.maps", "picture", "label", "row", "column", "utility")


def _pictures(report: Report, columns: dict) -> list[tuple[str, list, list[list[int]]]]:
    """Return the class, the image, and for each row of the image the positions of its pixels in the columns."""
    drawings = []
    for number in sorted(set(columns.get("picture", ()))):
        places = [position for position, picture in enumerate(columns["picture"]) if picture == number]
        lines: dict = {}
        for position in places:
            lines.setdefault(columns["row"][position], []).append(position)
        channels = [name for name in sorted(columns) if name.startswith("channel_")]
        image = image_of(
            [[[columns[name][position] for name in channels] for position in line] for line in lines.values()]
        )
        drawings.append((class_name(report, columns["label"][places[0]]), image, list(lines.values())))
    return drawings
