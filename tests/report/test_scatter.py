"""The scatter plot: marks where their numbers are, names that cover nothing."""

import re

from tfrobust.report.blocks import scatter
from tfrobust.report.blocks.scatter import Point


def point(name, x, y, style_number=0, **options):
    return Point(name, (x, x - 0.02, x + 0.02), (y, None, None), style_number, **options)


def drawn(points):
    return scatter.scatter("test", points, x_label="clean accuracy", y_label="robust accuracy")


def test_marks_have_their_names_where_they_lie_apart_else_a_legend():
    plot = drawn([point("first", 0.8, 0.2), point("second", 0.95, 0.6, 1)])
    assert plot.legend == () and all(name in plot.svg for name in ("first", "second"))
    assert {"series-2", "series-3"} <= set(re.findall(r"var\(--([a-z]+-\d)\)", plot.svg))
    plot = drawn([point(f"a long name of number {number}", 0.9, 0.5, number) for number in range(12)])
    assert len(plot.legend) == 12 and len({(key.role, key.marker) for key in plot.legend}) == 12


def test_names_cover_no_mark_and_no_name():
    points = [point(f"model {number}", 0.9 + 0.01 * number, 0.5 + 0.005 * (number % 3), number) for number in range(8)]
    limits = [(0.85, 1.0), (0.4, 0.6)]
    centers = [
        [
            size * (value - low) / (high - low)
            for size, value, (low, high) in zip(scatter._AXES, at, limits, strict=True)
        ]
        for at in ((mark.x[0], mark.y[0]) for mark in points)
    ]
    boxes = [scatter._box(*center, 9, 9) for center in centers]
    for mark, (x, y), offset in zip(points, centers, scatter._places(points, limits), strict=True):
        if offset is not None:
            boxes.append(scatter._box(x + offset[0], y + offset[1], 4.9 * len(mark.text) + 4, 11))
    assert len(boxes) > 12
    overlaps = [(i, j) for i, mark in enumerate(boxes) for j in range(i) if scatter._overlap(mark, boxes[j])]
    assert all(i < 8 for i, _ in overlaps)  # marks may overlap


def test_axes_end_at_all_and_none():
    plot = drawn([point("all", 1.0, 0.0), point("some", 0.97, 0.9, 1)])
    ticks = [float(number) for number in re.findall(r">(-?\d+(?:\.\d+)?) %<", plot.svg)]
    assert min(ticks) == 0 and max(ticks) == 100
