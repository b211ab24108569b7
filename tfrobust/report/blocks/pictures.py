"""The report's pictures: images and maps of their pixels, as inline SVG like every plot.

Pictures are nested lists: an image is [h][w] of gray values or [h][w][3] of colors in [0, 1], a map is [h][w] >= 0.
"""

import textwrap

from tfrobust.report.blocks.palette import placeholder
from tfrobust.report.blocks.plots import Key, Plot, bare
from tfrobust.report.blocks.svg import drawing

_CLASSES_A_ROW = 5
_MARKED_A_ROW = 3
_LINE = 18  # characters above or beside a picture
_SHORT_LINE, _SMALL_WIDTH = 14, {"width": 3.3}
_STRIP_WIDTH = 4.4  # inches, within the width of a plot


def pixel_maps(identity: str, titles: list[str], rows: list[tuple[str, list[list]]], images: int = 1) -> Plot:
    """Draw rows of pictures: first images, then maps, dark for 0 and bright for the map's largest value.

    Args:
        identity: unique in the page.
        titles: one per column.
        rows: (text at the left, pictures).
        images: number of columns that are images; the others are maps.
    """
    with drawing(identity, 0.3 + 1.45 * len(rows)) as (figure, output):
        all_axes = figure.subplots(len(rows), len(titles), squeeze=False)
        for axes_of_row, (text, pictures) in zip(all_axes, rows, strict=True):
            axes_of_row[0].set_ylabel(textwrap.fill(text, _LINE))
            for column, (axes, picture) in enumerate(zip(axes_of_row, pictures, strict=True)):
                _show(axes, picture, is_map=column >= images)
        for axes, title in zip(all_axes[0], titles, strict=True):
            axes.set_title(title, fontsize=9.5)
    return Plot(output.text)


def class_maps(identity: str, panels: list[tuple[str, list, list]]) -> Plot:
    """Draw one panel per class, (name, mean image, map): the image above the map, bright for the map's maximum."""
    bands = -(-len(panels) // _CLASSES_A_ROW)
    columns = min(_CLASSES_A_ROW, len(panels))
    with drawing(identity, 2.15 * bands) as (figure, output):
        # A thin empty row separates the map of one class from the name of the next.
        heights = ([1.0, 1.0, 0.06] * bands)[:-1]
        all_axes = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights)
        for axes in all_axes.ravel():
            axes.set_visible(False)
        for number, (name, image, values) in enumerate(panels):
            row, column = 3 * (number // columns), number % columns
            _show(all_axes[row, column], image, is_map=False)
            _show(all_axes[row + 1, column], values, is_map=True)
            all_axes[row, column].set_title(textwrap.fill(name, 12), fontsize=8.5)
    return Plot(output.text)


def titled_rows(identity: str, rows: list[tuple[str, list[tuple[str, list]]]], small: bool = False) -> Plot:
    """Draw rows of images, (text at the left, (title, image) ...), each image under its own title.

    Args:
        identity: unique in the page.
        rows: the texts and images.
        small: True for a plot that is shown at two thirds of the width of the others.
    """
    line, width = (_SHORT_LINE, _SMALL_WIDTH) if small else (_LINE, {})
    with drawing(identity, 0.15 + 1.5 * len(rows), **width) as (figure, output):
        all_axes = figure.subplots(len(rows), len(rows[0][1]), squeeze=False)
        for axes_of_row, (text, titled) in zip(all_axes, rows, strict=True):
            axes_of_row[0].set_ylabel(textwrap.fill(text, _LINE))
            for axes, (title, picture) in zip(axes_of_row, titled, strict=True):
                _show(axes, picture, is_map=False)
                axes.set_title(textwrap.fill(title, line), fontsize=9.5)
                # The frame shows where white pixels end on a white page, and black ones on a black page.
                axes.spines[:].set_visible(True)
                axes.spines[:].set_color(placeholder("faint"))
    return Plot(output.text)


def strips(identity: str, rows: list[tuple[str, list[tuple[str, list]]]], frames: int) -> Plot:
    """Draw strips of frames over the whole width, one below the other.

    Args:
        identity: unique in the page.
        rows: (group, (title, picture) ...): the strips of a clip, of the attacked clip, and of their difference.
        frames: number of frames side by side in each strip.
    """
    kinds = ("clean", "attacked", "difference")
    titled = [
        (f"{group}, {kind}: {title}", picture)
        for group, pictures in rows
        for kind, (title, picture) in zip(kinds, pictures, strict=True)
    ]
    shape = len(titled[0][1]) / len(titled[0][1][0])
    with drawing(identity, (_STRIP_WIDTH * shape + 0.28) * len(titled)) as (figure, output):
        for axes, (title, picture) in zip(figure.subplots(len(titled), 1, squeeze=False)[:, 0], titled, strict=True):
            _show(axes, picture, is_map=False)
            axes.set_title(title, fontsize=8.5, loc="left")
            for frame in range(1, frames):
                axes.axvline(frame * len(picture[0]) / frames - 0.5, color=placeholder("faint"), linewidth=0.8)
            axes.spines[:].set_visible(True)
            axes.spines[:].set_color(placeholder("faint"))
    return Plot(output.text)


def marked_pixels(identity: str, panels: list[tuple[str, list, list, list]]) -> Plot:
    """Draw one panel per image, (name, image, most, least), with those pixels marked in two colors.

    `most` and `least` are lists of (row, column).
    """
    columns = min(_MARKED_A_ROW, len(panels))
    bands = -(-len(panels) // columns)
    keys = (Key("most useful", "series-3", -1, 1), Key("least useful", "series-2", -1, 1))
    with drawing(identity, 1.75 * bands) as (figure, output):
        all_axes = figure.subplots(bands, columns, squeeze=False).ravel()
        for axes in all_axes[len(panels) :]:
            axes.set_visible(False)
        for axes, (name, image, *marked) in zip(all_axes, panels, strict=False):
            _show(axes, image, is_map=False)
            axes.set_title(textwrap.fill(name, _LINE), fontsize=9.5)
            for key, places in zip(keys, marked, strict=True):
                _paint(axes, places, key.role)
    return Plot(output.text, keys)


def _show(axes, picture: list, is_map: bool) -> None:
    """Show an image from black at 0 to white at 1, or a map from 0 to its own largest value."""
    axes.set_visible(True)
    bare(axes)
    axes.set_aspect("equal", adjustable="box")
    top = {} if is_map else {"vmax": 1.0}
    # No interpolation, so that the browser shows the pixels unchanged at any size.
    axes.imshow(picture, cmap="magma" if is_map else "gray", vmin=0, interpolation="none", **top)


def _paint(axes, places: list[tuple[int, int]], role: str) -> None:
    """Draw squares over pixels as one path in a page color: an image could not follow light and dark mode."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    corners = ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5))
    codes = (Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY)
    vertices = [(column + x, row + y) for row, column in places for x, y in corners]
    path = Path(vertices, list(codes) * len(places))
    axes.add_patch(PathPatch(path, facecolor=placeholder(role), linewidth=0, alpha=0.85))
