"""The section on random pixels: accuracy on the noise sets UN and NUN, and examples of their images."""

from tfrobust.common import pictures
from tfrobust.report.blocks import html as page
from tfrobust.report.blocks import pictures as plots_pictures
from tfrobust.report.schema import Report
from tfrobust.report.sections import results as section_results
from tfrobust.report.sections.sensitivity import class_name, image_of

_SETS = {"clean": "clean", "uniform": "uniform (UN)", "non_uniform": "non-uniform (NUN)"}


def noise(report: Report) -> tuple[str, str] | None:
    """Render the pictures of the noise sets, and the accuracies on them."""
    numbers = [m for m in report.measurements if m.id.startswith("noise.")]
    items = [item for item in (_examples(report), _replacement(report)) if item]
    body = page.figures(items) if items else ""
    if numbers:
        body += section_results.measurement_table(numbers)
    if not body:
        return None
    shares = {m.settings["share"] for m in numbers if isinstance(m.settings.get("share"), (int, float))}
    share = f"{100 * shares.pop():.3g} %" if len(shares) == 1 else "a share"
    lead = (
        f"Random levels take the place of {share} of the pixels of each test image: anywhere alike (UN), or the more"
        " likely the less a pixel varies over the training images (NUN)."
    )
    return lead, body


def _examples(report: Report) -> str | None:
    series = report.get_series("noise.examples")
    columns = {} if series is None else series.columns
    if not {"label", "height", "width", "channels", "clean"} <= columns.keys():
        return None
    names, rows = [name for name in _SETS if name in columns], []
    for row, label in enumerate(columns["label"]):
        size = [columns[name][row] for name in ("height", "width", "channels")]
        found = [pictures.decode(columns[name][row], *size) for name in names]
        if all(found):
            rows.append((class_name(report, label), [image_of(image) for image in found]))
    if not rows:
        return None
    plot = plots_pictures.pixel_maps("noise-examples", [_SETS[name] for name in names], rows, images=len(names))
    return page.figure("noise-examples", "Some of the images judged", plot)


def _replacement(report: Report) -> str | None:
    series = report.get_series("noise.replacement")
    columns = {} if series is None else series.columns
    needed = ("height", "width", "probability", "least_probability", "largest_probability")
    if not set(needed) <= columns.keys() or not columns["probability"]:
        return None
    height, width, text, least, largest = (columns[name][0] for name in needed)
    chances = pictures.decode(text, height, width, 1)
    if not chances:
        return None
    plot = plots_pictures.pixel_maps("noise-replacement", [""], [("", [image_of(chances)])], images=0)
    caption = f"How likely NUN replaces each pixel (bright: most): {100 * least:.3g} % to {100 * largest:.3g} %"
    return page.figure("noise-replacement", caption, plot)
