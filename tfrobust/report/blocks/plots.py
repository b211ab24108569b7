"""The report's plots. Each function returns inline SVG text that works in light and dark mode, and its legend."""

import textwrap
from typing import NamedTuple

from tfrobust.report.blocks.palette import LEVEL_COUNT, SERIES_COUNT, meaning, placeholder, series
from tfrobust.report.blocks.svg import WIDTH, drawing

_DASHES = ("solid", (0, (5, 2)), (0, (1.2, 1.6)), (0, (6, 2, 1.2, 2)))
_MARKERS = ("o", "s", "^", "D", "v")
BAR, BAND = len(_MARKERS), len(_MARKERS) + 1  # markers of legends for bars and bands
ENDS = {"values": "value", "low": "low", "high": "high"}  # arguments of `bars` -> fields of a measurement
_NAMED_CLASSES = 20
# Of the bold names on a map, in points.
_LETTER, _LETTER_HEIGHT, _ROUNDS = 6.4, 13, 100
_LEGEND_CLASSES = 10
_LONGEST_NAME = 80
_MAXIMUM_POINTS = 1500


class Key(NamedTuple):
    """One legend entry: text, color role, and the dash and marker of the series (-1 = none; also `BAR`, `BAND`)."""

    text: str
    role: str
    dash: int = 0
    marker: int = -1


_INTERVAL = Key("95 % interval", "ink")


class Plot(NamedTuple):
    """Inline SVG and the legend of its colors."""

    svg: str
    legend: tuple[Key, ...] = ()


class Line(NamedTuple):
    """One curve: equally long x and y (None = missing), and a band if `low` and `high` are given.

    Attributes:
        text: legend entry.
        x: x values.
        y: y values.
        low: lower edge of the band, or None.
        high: upper edge of the band, or None.
        style_number: index that selects color, dash and marker; None = the position among the lines drawn.
        role: of the color; "": by the meaning of `text`, else by `style_number`.
        joined: False for separate points, with their intervals as bars.
    """

    text: str
    x: list
    y: list
    low: list | None = None
    high: list | None = None
    style_number: int | None = None
    role: str = ""
    joined: bool = True


def curves(
    identity: str,
    lines: list[Line],
    *,
    x_label: str,
    y_label: str,
    percent: bool = False,
    full_axis: bool = True,
    percent_x: bool = False,
    logarithmic: bool = False,
    mark: tuple[float, str] | None = None,
    height: float = 3.0,
) -> Plot:
    """Draw curves over one axis, with intervals as bands.

    Args:
        identity: unique in the page; prefixes the SVG's ids.
        lines: the curves.
        x_label: label of the x axis, with its unit.
        y_label: label of the y axis, with its unit.
        percent: True if y holds fractions, shown in per cent.
        full_axis: True for an axis of fractions up to 100 %, False up to their largest.
        percent_x: True if x holds fractions, shown in per cent.
        logarithmic: True for a logarithmic y scale.
        mark: x position and legend entry of a dotted vertical line, or None.
        height: height in inches.
    """
    with drawing(identity, height) as (figure, output):
        axes = figure.subplots()
        keys = _draw_lines(axes, lines)
        if mark is not None:
            axes.axvline(mark[0], color=placeholder("ink"), linewidth=0.9, linestyle=(0, (1, 2)))
            keys = (*keys, Key(mark[1], "ink", 2))
        _finish(axes, x_label, y_label, percent, full_axis)
        if percent_x:
            axes.xaxis.set_major_formatter(_percent_formatter())
        if logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(lambda value, _: "")
        elif not (percent and full_axis):
            _from_zero(axes)
    return Plot(output.text, tuple(dict.fromkeys(keys)))


def stacked_curves(identity: str, panels: list[tuple[str, list[Line], bool]], *, x_label: str) -> Plot:
    """Draw panels over a shared x axis, one per (y label, lines, percent); lines of the same name look the same."""
    with drawing(identity, 1.0 + 1.45 * len(panels)) as (figure, output):
        all_axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        keys, names = [], []
        for axes, (y_label, lines, percent) in zip(all_axes, panels, strict=True):
            names += [line.text for line in lines if line.text not in names]
            keys += _draw_lines(axes, [line._replace(style_number=names.index(line.text)) for line in lines])
            _finish(axes, x_label if axes is all_axes[-1] else "", y_label, percent)
            if not percent:
                _from_zero(axes)
        figure.align_ylabels(all_axes)
    return Plot(output.text, tuple(dict.fromkeys(keys)))


def reliability(
    identity: str,
    confidence: list,
    accuracy: list,
    count: list,
    low: list | None = None,
    high: list | None = None,
    *,
    role: str = "clean",
    examples: str = "images",
) -> Plot:
    """Draw accuracy against confidence per bin of at least 2 examples, with the ideal diagonal and the bin's size.

    Args:
        identity: unique in the page.
        confidence: mean confidence per bin.
        accuracy: accuracy per bin.
        count: number of examples per bin.
        low: lower end of each accuracy's interval, drawn as a thin line; None if unknown.
        high: upper end of each accuracy's interval; None if unknown.
        role: "clean" or "attacked".
        examples: their name.
    """
    empty = [None] * len(count)
    columns = zip(confidence, accuracy, count, low or empty, high or empty, strict=True)
    bins = sorted(row for row in columns if row[0] is not None and row[1] is not None and row[2] and row[2] > 1)
    with drawing(identity, 3.7) as (figure, output):
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        upper.plot([0, 1], [0, 1], color=placeholder("ink"), linewidth=0.9, linestyle=(0, (1, 2)))
        for c, a, _, *interval in bins:
            upper.plot([c, c], [c, a], color=placeholder("unknown"), linewidth=2.5, alpha=0.55)
            if None not in interval:
                upper.plot([c, c], interval, color=placeholder("ink"), linewidth=0.9)
        line = Line("accuracy in the bin", [b[0] for b in bins], [b[1] for b in bins], role=role)
        keys = _draw_lines(upper, [line])
        for (start, end), (_, _, size, *_) in zip(_spans([b[0] for b in bins], len(confidence)), bins, strict=True):
            lower.bar(start, size, width=end - start, align="edge", color=placeholder(role), alpha=0.7)
        _finish(upper, "", "accuracy", True)
        _finish(lower, "confidence (mean of the bin)", examples, False)
        # A network is confident of nearly everything: on a linear scale all other bars would be invisible.
        lower.set_yscale("log")
        lower.set_ylim(bottom=0.5)
        lower.minorticks_off()
        lower.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        lower.yaxis.set_minor_formatter(lambda value, _: "")
        lower.set_xlim(-0.02, 1.02)
        lower.xaxis.set_major_formatter(_percent_formatter())
    more = [
        Key("ideal", "ink", 2),
        Key("gap between the two", "unknown"),
        Key(f"{examples} of the bin", role, -1, BAR),
    ]
    more += [_INTERVAL] if any(None not in row[3:] for row in bins) else []
    return Plot(output.text, (*keys, *more))


def _spans(centers: list[float], count: int) -> list[tuple[float, float]]:
    """Return the left and right ends of bars around ascending centers: at most a bin wide, and without overlap."""
    half, spans = 0.4 / max(10, count), []
    middles = [(first + second) / 2 for first, second in zip(centers, centers[1:], strict=False)]
    for center, start, end in zip(centers, [-1.0, *middles], [*middles, 2.0], strict=False):
        spans.append((max(center - half, start + half / 20), min(center + half, end - half / 20)))
    return spans


def bars(
    identity: str,
    names: list[str],
    values: list,
    low: list,
    high: list,
    *,
    x_label: str,
    kinds: list[str] | None = None,
    top: float | None = None,
) -> Plot:
    """Draw fractions as horizontal bars with their intervals as thin lines; None draws nothing.

    Args:
        identity: unique in the page.
        names: one per bar.
        values: fractions.
        low: lower ends of the intervals.
        high: upper ends of the intervals.
        x_label: label of the x axis.
        kinds: legend entry of each bar, which selects its color; None for bars of one kind.
        top: upper end of the x axis; None: the largest value.
    """
    kinds = kinds or [""] * len(names)
    roles = {kind: meaning(kind) or series(number) for number, kind in enumerate(dict.fromkeys(kinds))}
    with drawing(identity, 0.8 + 0.26 * max(4, len(names))) as (figure, output):
        axes = figure.subplots()
        for row, kind, value, *interval in zip(range(len(names)), kinds, values, low, high, strict=True):
            axes.barh(row, value or 0.0, height=0.62, color=placeholder(roles[kind]), alpha=0.75)
            if None not in interval:
                axes.plot(interval, [row, row], color=placeholder("strong"), linewidth=1.2)
        axes.set_yticks(range(len(names)), [textwrap.fill(name, 26) for name in names])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0.0, top)
        axes.set_xlabel(x_label)
        axes.xaxis.set_major_formatter(_percent_formatter())
    keys = [Key(kind, role, -1, BAR) for kind, role in roles.items() if kind]
    keys += [_INTERVAL] if any(None not in interval for interval in zip(low, high, strict=True)) else []
    return Plot(output.text, tuple(keys))


def stacked_bars(
    identity: str,
    names: list[str],
    shares: list[tuple[float, ...]],
    kinds: tuple[str, ...],
    *,
    examples: str = "images",
) -> Plot:
    """Draw one horizontal bar per name, divided into shares of 100 %.

    Args:
        identity: unique in the page.
        names: one per bar.
        shares: fractions of each bar that add up to 1, one per kind.
        kinds: legend entries.
        examples: their name.
    """
    roles = [meaning(kind) or series(number) for number, kind in enumerate(kinds)]
    with drawing(identity, 0.8 + 0.3 * max(2, len(names))) as (figure, output):
        axes = figure.subplots()
        for row, parts in enumerate(shares):
            start = 0.0
            for role, part in zip(roles, parts, strict=True):
                axes.barh(row, part, left=start, height=0.62, color=placeholder(role), alpha=0.75)
                start += part
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0.0, 1.0)
        axes.set_xlabel(f"share of the test {examples}")
        axes.xaxis.set_major_formatter(_percent_formatter())
    return Plot(output.text, tuple(Key(kind, role, -1, BAR) for kind, role in zip(kinds, roles, strict=True)))


def feature_map(identity: str, columns: dict, class_names: list | None = None, *, examples: str = "images") -> Plot:
    """Draw two-dimensional embeddings, colored by true class: natural ones as dots, adversarial ones as triangles."""
    x, y, labels, adversarial = (_thin(columns[name]) for name in ("x", "y", "label", "adversarial"))
    classes = sorted({label for label in labels if label is not None})
    names = [_class_name(label, class_names) for label in classes]
    roles = [f"series-{position % SERIES_COUNT}" for position in range(len(classes))]
    with drawing(identity, _map_height(x, y)) as (figure, output):
        axes = figure.subplots()
        for flag, marker in ((False, {"s": 9, "alpha": 0.6}), (True, {"s": 16, "marker": "^"})):
            for role, label in zip(roles, classes, strict=True):
                rows = [i for i, other in enumerate(labels) if other == label and bool(adversarial[i]) == flag]
                color = placeholder(role)
                axes.scatter([x[i] for i in rows], [y[i] for i in rows], color=color, linewidth=0, **marker)
        if len(classes) <= _NAMED_CLASSES:
            _name_clusters(axes, x, y, labels, adversarial, dict(zip(classes, names, strict=True)))
        bare(axes)
    keys = _kinds_of_points(examples, adversarial)
    if len(classes) <= _LEGEND_CLASSES:
        keys += [Key(name, role, -1, BAR) for name, role in zip(names, roles, strict=True)]
    else:
        keys.append(Key(f"colors: the {len(classes)} classes", "series-0", -1, BAR))
    return Plot(output.text, tuple(keys))


def _kinds_of_points(examples: str, adversarial: list) -> list[Key]:
    """Return the legend of natural and, if there are any, adversarial examples."""
    keys = [Key(f"natural {examples}", "ink", -1, 0)]
    return keys + ([Key(f"adversarial {examples}", "ink", -1, 2)] if any(adversarial) else [])


def _map_height(x: list[float], y: list[float]) -> float:
    """Return the height in inches of a figure that a map of these points fills."""
    width, height = (max(axis) - min(axis) for axis in (x, y))
    return WIDTH * min(1.0, max(0.5, height / width if width > 0 else 1.0))


def entropy_map(identity: str, columns: dict, *, examples: str = "images") -> Plot:
    """Draw the map of `feature_map` with every point shaded by the entropy of its prediction (nats)."""
    x, y, adversarial, entropy = (_thin(columns[name]) for name in ("x", "y", "adversarial", "entropy"))
    highest = max((value for value in entropy if value is not None), default=0.0) or 1.0
    levels = [min(LEVEL_COUNT - 1, int(LEVEL_COUNT * (value or 0.0) / highest)) for value in entropy]
    with drawing(identity, _map_height(x, y)) as (figure, output):
        axes = figure.subplots()
        for flag, marker, size in ((False, "o", 9), (True, "^", 14)):
            for level in range(LEVEL_COUNT):
                rows = [i for i, other in enumerate(levels) if other == level and bool(adversarial[i]) == flag]
                axes.scatter(
                    [x[i] for i in rows],
                    [y[i] for i in rows],
                    s=size,
                    marker=marker,
                    color=placeholder(f"level-{level}"),
                    linewidth=0,
                )
        bare(axes)
    keys = _kinds_of_points(examples, adversarial)
    for level in range(LEVEL_COUNT):
        low, high = (highest * end / LEVEL_COUNT for end in (level, level + 1))
        keys.append(Key(f"{low:.2f} to {high:.2f}", f"level-{level}", -1, BAR))
    return Plot(output.text, tuple(keys))


def _draw_lines(axes, lines: list[Line]) -> tuple[Key, ...]:
    keys = []
    if all(isinstance(value, int) for line in lines for value in line.x):
        axes.xaxis.get_major_locator().set_params(integer=True)  # no half epochs
    for order, line in enumerate(lines):
        position = order if line.style_number is None else line.style_number
        points = [i for i, value in enumerate(line.y) if _is_number(value) and _is_number(line.x[i])]
        dash, marker = position % len(_DASHES), position % len(_MARKERS)
        role = line.role or meaning(line.text) or series(position)
        if not line.joined:
            _draw_points(axes, line, points, role, marker)
            keys.append(Key(line.text, role, -1, marker))
            continue
        if len(points) > 25:
            marker = -1
        axes.plot(
            [line.x[i] for i in points],
            [line.y[i] for i in points],
            color=placeholder(role),
            linestyle=_DASHES[dash],
            marker=_MARKERS[marker] if marker >= 0 else "",
        )
        if line.low and line.high:
            banded = [i for i in points if _is_number(line.low[i]) and _is_number(line.high[i])]
            axes.fill_between(
                [line.x[i] for i in banded],
                [line.low[i] for i in banded],
                [line.high[i] for i in banded],
                color=placeholder(role),
                alpha=0.16,
                linewidth=0,
            )
        keys.append(Key(line.text, role, dash, marker))
    if any(line.low and line.high for line in lines):
        keys.append(Key("95 % interval", keys[0].role if len(lines) == 1 else "ink", -1, BAND))
    return tuple(keys)


def _draw_points(axes, line: Line, points: list[int], role: str, marker: int) -> None:
    """Draw the points of a line that is not joined, with their intervals as bars."""
    x, y = [line.x[i] for i in points], [line.y[i] for i in points]
    color = placeholder(role)
    axes.plot(x, y, color=color, linestyle="", marker=_MARKERS[marker], zorder=3)
    if line.low and line.high:
        for i in points:
            if _is_number(line.low[i]) and _is_number(line.high[i]):
                axes.plot([line.x[i]] * 2, [line.low[i], line.high[i]], color=color, linewidth=1.0)


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _finish(axes, x_label: str, y_label: str, percent: bool, full_axis: bool = True) -> None:
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if x_label == "epoch":
        axes.locator_params(axis="x", integer=True)
    if percent:
        axes.yaxis.set_major_formatter(_percent_formatter())
    if percent and full_axis:
        axes.set_ylim(-0.02, 1.02)


def _from_zero(axes) -> None:
    """Extend the y axis to include 0 and leave room above the highest marker."""
    low, high = axes.get_ylim()
    low = min(0.0, low)
    axes.set_ylim(low, high + 0.04 * (high - low))


def _percent_formatter():
    return lambda value, _: f"{100 * value:.4g} %"


def bare(axes) -> None:
    """Remove ticks, grid and frame and equalize the scales, since a map has no units."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    axes.margins(0.02)
    axes.set_aspect("equal", adjustable="datalim")
    for spine in axes.spines.values():
        spine.set_visible(False)


def _class_name(label: int, class_names: list | None) -> str:
    is_named = class_names and 0 <= int(label) < len(class_names)
    return str(class_names[int(label)])[:_LONGEST_NAME] if is_named else str(int(label))


def _name_clusters(axes, x, y, labels, adversarial, names: dict[int, str]) -> None:
    """Write the name of each class at the median of its natural examples, shifted where names would overlap."""
    centers, texts = {}, {}
    for label, name in names.items():
        rows = [i for i, other in enumerate(labels) if other == label and not adversarial[i]]
        if rows:
            centers[label] = [sorted(axis[i] for i in rows)[len(rows) // 2] for axis in (x, y)]
            texts[label] = textwrap.fill(name, 14)
    spans = [max(axis) - min(axis) or 1.0 for axis in (x, y)]
    unit = max(spans[0], spans[1] / _map_height(x, y) * WIDTH) / (72 * WIDTH)  # of one point of the plot
    sizes = {
        label: (unit * _LETTER * max(map(len, text.split("\n"))), unit * _LETTER_HEIGHT * len(text.split("\n")))
        for label, text in texts.items()
    }
    for label, (middle_x, middle_y) in apart(centers, sizes).items():
        style = {"ha": "center", "va": "center", "fontweight": "bold", "fontsize": 10, "color": placeholder("strong")}
        axes.text(middle_x, middle_y, texts[label], gid=f"class-{int(label)}", **style)


def apart(centers: dict, sizes: dict) -> dict:
    """Move boxes apart until none overlap, as far as some rounds suffice; each along the axis of the smaller overlap.

    Args:
        centers: name -> (x, y).
        sizes: name -> (width, height).

    Returns:
        name -> (x, y).
    """
    moved = {name: list(center) for name, center in centers.items()}
    pairs = [(first, second) for first in moved for second in moved if first < second]
    for _ in range(_ROUNDS):
        overlapping = False
        for first, second in pairs:
            gaps = [moved[second][axis] - moved[first][axis] for axis in (0, 1)]
            depths = [(sizes[first][axis] + sizes[second][axis]) / 2 - abs(gaps[axis]) for axis in (0, 1)]
            if min(depths) <= 1e-9:
                continue
            overlapping, axis = True, depths.index(min(depths))
            step = (1 if gaps[axis] >= 0 else -1) * depths[axis] / 2
            moved[first][axis] -= step
            moved[second][axis] += step
        if not overlapping:
            break
    return {name: tuple(center) for name, center in moved.items()}


def _thin(values: list) -> list:
    """Return at most `_MAXIMUM_POINTS` evenly chosen values, the same rows of every column."""
    step = -(-len(values) // _MAXIMUM_POINTS)
    return values[:: max(1, step)]
