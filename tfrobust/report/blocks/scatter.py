"""A scatter plot of fractions, with intervals and a name next to each mark."""

from typing import NamedTuple

from tfrobust.report.blocks.palette import SERIES_COUNT, placeholder, series
from tfrobust.report.blocks.plots import Key, Plot
from tfrobust.report.blocks.svg import drawing

_MARKERS = ("o", "s", "^", "D", "v")  # those that the page's legend draws
_HEIGHT = 3.4  # inches
_AXES = (275, 200)  # about the size of the axes, in points
# Of a name's box, in points.
_LETTER, _LINE, _GAP = 4.9, 11, 5

Box = tuple[float, float, float, float]


class Point(NamedTuple):
    """One mark.

    Attributes:
        text: its name.
        x: fraction with the ends of its interval (value, low, high); None for unknown ends.
        y: the same.
        style_number: index that selects color and marker.
        single: (x, y) of the values that it is the mean of; empty for none.
    """

    text: str
    x: tuple[float, float | None, float | None]
    y: tuple[float, float | None, float | None]
    style_number: int
    single: tuple[tuple[float, float], ...] = ()


def scatter(identity: str, points: list[Point], *, x_label: str, y_label: str) -> Plot:
    """Draw the marks, their intervals as crosses, and their names where these cover nothing.

    Args:
        identity: unique in the page.
        points: the marks, at least one.
        x_label: label of the x axis.
        y_label: label of the y axis.

    Returns:
        Plot. Its legend is empty if every name found room in the plot; else it has all names.
    """
    from matplotlib.ticker import PercentFormatter

    limits = [
        _limits([value for point in points for value in (*point[axis], *(pair[axis - 1] for pair in point.single))])
        for axis in (1, 2)
    ]
    keys = [_key(point) for point in points]
    with drawing(identity, _HEIGHT) as (figure, output):
        axes = figure.subplots()
        for point, key in zip(points, keys, strict=True):
            color = placeholder(key.role)
            for x, y in _lines(point):
                axes.plot(x, y, color=color, linewidth=1.2, alpha=0.6)
            for x, y in point.single:
                axes.plot(x, y, color=color, marker="o", markersize=3, alpha=0.6)
            axes.plot(point.x[0], point.y[0], color=color, marker=_MARKERS[key.marker], markersize=7)
        places = _places(points, limits)
        for number, (point, key, offset) in enumerate(zip(points, keys, places, strict=True)):
            if offset is not None:
                # The style sheet draws an edge around texts with such an id.
                style = {"ha": "center", "va": "center", "color": placeholder(key.role), "gid": f"class-{number}"}
                origin = point.x[0], point.y[0]
                axes.annotate(point.text, origin, offset, textcoords="offset points", fontsize=9, **style)
        axes.set(xlim=limits[0], ylim=limits[1], xlabel=x_label, ylabel=y_label)
        axes.locator_params(nbins=6)
        for axis, ends in zip((axes.xaxis, axes.yaxis), limits, strict=True):
            axis.set_ticks([tick for tick in axis.get_ticklocs() if max(0, ends[0]) <= tick <= min(1, ends[1])])
            axis.set_major_formatter(PercentFormatter(1.0, decimals=None, symbol=" %"))
    return Plot(output.text, tuple(keys) if None in places else ())


def _key(point: Point) -> Key:
    rounds, color = divmod(point.style_number, SERIES_COUNT)
    return Key(point.text, series(point.style_number), -1, (color + rounds) % len(_MARKERS))


def _limits(values: list[float | None]) -> tuple[float, float]:
    """Return the ends of an axis: at least 10 points apart, with a margin in which names find room."""
    clipped = [min(1.0, max(0.0, value)) for value in values if value is not None]
    low, high = min(clipped), max(clipped)
    margin = max(0.12 * (high - low), (0.1 - (high - low)) / 2)
    return low - margin, high + margin


def _lines(point: Point) -> list[tuple[tuple, tuple]]:
    """Return the intervals as lines: (both x, both y)."""
    (x, *across), (y, *up) = point.x, point.y
    lines = [(across, (y, y))] if None not in across else []
    return lines + ([((x, x), up)] if None not in up else [])


def _places(points: list[Point], limits: list[tuple[float, float]]) -> list[tuple[float, float] | None]:
    """Return the offset of each name from its mark, in points; None where all room is taken.

    A name covers no mark and no other name, and no interval if that is possible.
    """

    def on_paper(value: float, axis: int) -> float:
        low, high = limits[axis]
        return _AXES[axis] * (value - low) / (high - low)

    centers = [(on_paper(point.x[0], 0), on_paper(point.y[0], 1)) for point in points]
    taken = [_box(x, y, 9, 9) for x, y in centers]
    crosses = [
        (on_paper(x[0], 0) - 1, on_paper(y[0], 1) - 1, on_paper(x[1], 0) + 1, on_paper(y[1], 1) + 1)
        for point in points
        for x, y in _lines(point)
    ]
    name_offsets = []
    for point, (x, y) in zip(points, centers, strict=True):
        width = _LETTER * len(point.text) + 4
        aside = width / 2 + _GAP
        ends = [on_paper(end, 1) - y for end in point.y if end is not None]
        offsets = [(sign * aside, up) for up in (0, 10, -10) for sign in (1, -1)]
        offsets += [(0, max(*ends, 4) + 9), (0, min(*ends, -4) - 9)]
        boxes = {offset: _box(x + offset[0], y + offset[1], width, _LINE) for offset in offsets}
        free = (
            offset
            for obstacles in ([*taken, *crosses], taken)
            for offset, box in boxes.items()
            if _is_inside(box) and not any(_overlap(box, other) for other in obstacles)
        )
        name_offsets.append(next(free, None))
        if name_offsets[-1] is not None:
            taken.append(boxes[name_offsets[-1]])
    return name_offsets


def _box(x: float, y: float, width: float, height: float) -> Box:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _is_inside(box: Box) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= _AXES[0] and box[3] <= _AXES[1]


def _overlap(box: Box, other: Box) -> bool:
    return box[0] < other[2] and box[2] > other[0] and box[1] < other[3] and box[3] > other[1]
