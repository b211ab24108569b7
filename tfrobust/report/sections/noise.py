"""The section on random pixels: accuracy on the noise sets UN and NUN, and examples of their images."""

from functools import partial

from tfrobust.common import thumbnails
from tfrobust.report.blocks import Block, Figure, Numbers
from tfrobust.report.blocks.pictures import pixel_maps
from tfrobust.report.catalog.natural import NOISE
from tfrobust.report.parts import class_name, has_numbers
from tfrobust.report.schema import Report
from tfrobust.report.sections.base import Section, columns_of, image_of

_SETS = {"clean": "clean", "uniform": "uniform (UN)", "non_uniform": "non-uniform (NUN)"}


class Noise(Section):
    """Pictures of the noise sets, and the accuracies on them."""

    anchor = "noise"
    heading = "Random pixels"

    @property
    def lead(self) -> str:
        """The construction of the two sets."""
        numbers = self.measured(NOISE.family.name)
        shares = {m.settings["share"] for m in numbers if isinstance(m.settings.get("share"), (int, float))}
        share = f"{100 * shares.pop():.3g} %" if len(shares) == 1 else "a share"
        return (
            f"Random levels replace {share} of the pixels of each test {self.example}: pixels chosen uniformly (UN), or"
            f" mostly pixels that vary little over the training {self.examples} (NUN)."
        )

    def blocks(self) -> list[Block]:
        """Return the pictures and the accuracies."""
        return [
            *_examples(self.report, self.examples),
            *_replacement(self.report),
            Numbers(self.measured(NOISE.family.name)),
        ]


def _examples(report: Report, examples: str) -> list[Figure]:
    columns = columns_of(report, "noise.examples", "label", "height", "width", "channels", "clean")
    names, rows = [name for name in _SETS if name in columns], []
    for row, label in enumerate(columns.get("label", ())):
        size = [columns[name][row] for name in ("height", "width", "channels")]
        decoded = [thumbnails.decode(columns[name][row], *size) for name in names]
        if all(decoded):
            rows.append((class_name(report, label), [image_of(image) for image in decoded]))
    draw = partial(pixel_maps, titles=[_SETS[name] for name in names], rows=rows, images=len(names))
    return [Figure("noise-examples", f"Some of the evaluated {examples}", draw)] if rows else []


def _replacement(report: Report) -> list[Figure]:
    needed = ("height", "width", "probability", "least_probability", "largest_probability")
    columns = columns_of(report, "noise.replacement", *needed)
    has_ends = has_numbers(report.get_series("noise.replacement"), *needed[3:])
    if not has_ends or not columns or not columns["probability"]:
        return []
    height, width, text, least, largest = (columns[name][0] for name in needed)
    chances = thumbnails.decode(text, height, width, 1)
    if not chances or least is None or largest is None:
        return []
    draw = partial(pixel_maps, titles=[""], rows=[("", [image_of(chances)])], images=0)
    caption = f"Probability that NUN replaces a pixel (bright: highest), {100 * least:.3g} % to {100 * largest:.3g} %"
    return [Figure("noise-replacement", caption, draw)]
