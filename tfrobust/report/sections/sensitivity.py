"""The section on utility and sensitivity: pictures of the maps, and the numbers over all images."""

import random

from tfrobust.common import pictures
from tfrobust.report.blocks import html as page
from tfrobust.report.blocks import pictures as plots_pictures
from tfrobust.report.schema import Report
from tfrobust.report.sections import results as section_results
from tfrobust.report.sections import tokens as section_tokens

# The most useful and the least useful tenth of an image's pixels are marked.
_MARKED_SHARE = 0.1
_LEAD = (
    "Utility: how much a pixel changes the loss. Sensitivity: how much it changes the features. Concentration is 0"
    " where all pixels count alike and near 1 where few hold everything; agreement is 1 where the features react"
    " most to the pixels that decide the loss."
)


def sensitivity(report: Report) -> tuple[str, str] | None:
    """Render some images with their maps, their most and least useful pixels, the class means and the numbers."""
    numbers = [m for m in report.measurements if m.id.startswith("sensitivity.") and not section_tokens.is_token(m)]
    items = [item for item in (_maps(report), _classes(report), _marked(report)) if item]
    body = page.figures(items) if items else ""
    if numbers:
        body += section_results.measurement_table(numbers)
    return (_LEAD, body) if body else None


def class_name(report: Report, label, longest: int = 20) -> str:
    """Return the display name of a class, such as "class 3", cut to the length that fits above a picture."""
    classes = report.data.get("class_names") or []
    known = isinstance(label, int) and 0 <= label < len(classes)
    return f"class {classes[label] if known else label}"[:longest]


def image_of(pixels: list) -> list:
    """Convert pixels [h][w][c] for drawing: three or more channels to colors, fewer to the first channel as gray."""
    colours = len(pixels[0][0]) >= 3
    return [[pixel[:3] if colours else pixel[0] for pixel in line] for line in pixels]


def _maps(report: Report) -> str | None:
    columns = _columns(report, "sensitivity.maps", {"picture", "label", "row", "column", "utility"})
    if columns is None:
        return None
    names = [name for name in ("utility", "sensitivity") if name in columns]
    rows = []
    for number in _numbers(columns):
        name, image, lines = _picture(report, columns, number)
        maps = [[[columns[name][place] or 0.0 for place in line] for line in lines] for name in names]
        rows.append((name, [image, *maps]))
    plot = plots_pictures.pixel_maps("sensitivity-maps", ["image", *names], rows)
    return page.figure("sensitivity-maps", "Which pixels count (bright: most, in each picture)", plot)


def _marked(report: Report) -> str | None:
    columns = _columns(report, "sensitivity.maps", {"picture", "label", "row", "column", "utility"})
    if columns is None:
        return None
    panels = []
    for number in _numbers(columns):
        name, image, lines = _picture(report, columns, number)
        places = {(row, column): place for row, line in enumerate(lines) for column, place in enumerate(line)}
        # Shuffled first, so that the order of equally useful pixels does not depend on their position.
        order = random.Random(0).sample(list(places), len(places))
        order.sort(key=lambda pixel, places=places: columns["utility"][places[pixel]] or 0.0)
        count = max(1, round(_MARKED_SHARE * len(order)))
        panels.append((name, image, order[-count:], order[:count]))
    plot = plots_pictures.marked_pixels("sensitivity-marked", panels)
    share = f"{100 * _MARKED_SHARE:.0f} %"
    return page.figure("sensitivity-marked", f"The {share} most and the {share} least useful pixels", plot)


def _classes(report: Report) -> str | None:
    needed = {"label", "images", "height", "width", "channels", "image", "utility"}
    columns = _columns(report, "sensitivity.classes", needed)
    panels = []
    for row in range(len(columns["label"]) if columns else 0):
        height, width, channels = (columns[name][row] for name in ("height", "width", "channels"))
        image = pictures.decode(columns["image"][row], height, width, channels)
        utility = pictures.decode(columns["utility"][row], height, width, 1)
        if image and utility:
            panels.append((class_name(report, columns["label"][row]), image_of(image), image_of(utility)))
    if not panels:
        return None
    plot = plots_pictures.class_maps("sensitivity-classes", panels)
    title = report.get_series("sensitivity.classes").title
    return page.figure("sensitivity-classes", f"{title} (below the mean image; bright: most, in each map)", plot)


def _columns(report: Report, identity: str, needed: set[str]) -> dict | None:
    series = report.get_series(identity)
    return series.columns if series is not None and needed <= series.columns.keys() else None


def _numbers(columns: dict) -> list:
    return sorted(set(columns["picture"]))


def _picture(report: Report, columns: dict, number) -> tuple[str, list, list[list[int]]]:
    """Return the class, the image, and for each row of the image the positions of its pixels in the columns."""
    places = [place for place, picture in enumerate(columns["picture"]) if picture == number]
    lines: dict = {}
    for place in places:
        lines.setdefault(columns["row"][place], []).append(place)
    channels = [name for name in sorted(columns) if name.startswith("channel_")]
    image = image_of([[[columns[name][place] for name in channels] for place in line] for line in lines.values()])
    return class_name(report, columns["label"][places[0]]), image, list(lines.values())
