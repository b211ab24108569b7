"""Plots show the numbers they are given."""

import re

import pytest

from tfrobust.report.blocks import palette, plots
from tfrobust.report.history import history_groups


def path_points(svg, width="1.8"):
    """The vertices of the curves (drawn thicker than axes), in SVG units."""
    curves = []
    for data, style in re.findall(r'<path d="([^"]*)"[^>]*style="([^"]*)"', svg):
        if f"stroke-width: {width}" in style and re.search("series|clean|attacked", style):
            curves.append([tuple(map(float, pair)) for pair in re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", data)])
    return curves


def test_a_line_goes_through_its_points():
    line = plots.Line("a", [0.0, 0.1, 0.2, 0.4], [1.0, 0.8, 0.6, 0.2])
    plot = plots.curves("test", [line], x_label="x", y_label="y", percent=True)
    (points,) = path_points(plot.svg)
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = points
    # Linear axes: equal steps in the data are equal steps on paper, y pointing down.
    assert abs((x3 - x0) - 4 * (x1 - x0)) < 0.1 and abs((y3 - y0) - 4 * (y1 - y0)) < 0.1
    assert x1 > x0 and y1 > y0
    assert plot.legend == (plots.Key("a", "series-2", 0, 0),)


def test_bands_and_marks_have_legends():
    line = plots.Line("a", [0.0, 1.0], [0.5, 0.5], [0.4, 0.3], [0.6, 0.8])
    plot = plots.curves("test", [line], x_label="x", y_label="y", mark=(0.5, "half"))
    assert [key.text for key in plot.legend] == ["a", "95 % interval", "half"]
    kinds = ["clean", "under attack", "under attack"]
    plot = plots.bars("test", list("abc"), [0.9, 0.5, 0.4], [0.8] * 3, [0.95] * 3, x_label="x", kinds=kinds, top=1.0)
    assert [key.text for key in plot.legend] == ["clean", "under attack", "95 % interval"]


def test_bars_of_bins_do_not_overlap_and_bins_of_one_image_are_left_out():
    spans = plots._spans([0.5, 0.51, 0.9], 10)
    assert spans[0][1] < spans[1][0] and spans[1][1] < spans[2][0] and all(start < end for start, end in spans)
    columns = {"confidence": [0.1, 0.2, None, 0.9], "accuracy": [0.0, 0.4, None, 1.0], "count": [1, 5, 0, 7]}
    plot = plots.reliability("test", **columns)
    assert [len(points) for points in path_points(plot.svg)] == [2]


def test_missing_values_are_skipped():
    line = plots.Line("a", [0.0, 0.1, 0.2, 0.3], [1.0, None, 0.6, "text"])
    (points,) = path_points(plots.curves("test", [line], x_label="x", y_label="y").svg)
    assert len(points) == 2


def test_the_band_encloses_the_curve():
    line = plots.Line("a", [0.0, 1.0], [0.5, 0.5], [0.4, 0.3], [0.6, 0.8])
    svg = plots.curves("test", [line], x_label="x", y_label="y", percent=True).svg
    (curve,) = path_points(svg)
    defined, shift = re.search(
        r'<path id="[^"]*" d="([^"]*)"/></defs><g[^>]*><use[^>]* y="(\d+)" style="[^"]*fill-opacity: 0.16"', svg
    ).groups()
    corners = [(float(x), float(y) + float(shift)) for x, y in re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", defined)]
    unit = (max(y for _, y in corners) - curve[1][1]) / 0.2  # the lower bound at x = 1 is 0.2 below the value
    for (x, y), above, below in zip(curve, (0.1, 0.3), (0.1, 0.2), strict=True):
        heights = sorted({round(corner_y, 1) for corner_x, corner_y in corners if corner_x == x})
        assert heights == [pytest.approx(y - above * unit, abs=0.2), pytest.approx(y + below * unit, abs=0.2)]


def test_series_differ_in_more_than_colour():
    lines = [plots.Line(str(i), [0, 1], [i, i]) for i in range(10)]
    keys = plots.curves("test", lines, x_label="x", y_label="y").legend
    assert len({(key.dash, key.marker) for key in keys}) == 10 and len({key.role for key in keys}) == 10
    assert all(key.role in palette.ROLES for key in keys)


def test_feature_map_draws_every_point_with_its_shape():
    columns = {
        "x": [0.0, 1.0, 2.0, 3.0, 4.0],
        "y": [0.0, 1.0, 0.0, 1.0, 0.0],
        "label": [0, 0, 1, 1, 1],
        "adversarial": [0, 0, 0, 1, 1],
        "entropy": [0.0, 0.1, 0.5, 1.0, 2.0],
    }
    svg = plots.feature_map("map", columns, ["cat", "dog"]).svg
    # Two natural cats, one natural dog and two adversarial ones, these in the color of their class, too.
    assert [len(re.findall(rf"<use[^>]*--{role}", svg)) for role in ("series-0", "series-1")] == [2, 3]
    assert ">cat<" in svg and ">dog<" in svg
    legend = plots.feature_map("map", columns, ["cat", "dog"]).legend
    assert [key.text for key in legend] == ["natural images", "adversarial images", "cat", "dog"]
    entropy = plots.entropy_map("entropy", columns).svg
    assert len(re.findall(r"<use[^>]*--level-0", entropy)) == 2 and len(re.findall(r"<use[^>]*--level-7", entropy)) == 1


def test_many_points_are_thinned_evenly():
    count = 7000
    columns = {name: [float(i % 10) for i in range(count)] for name in ("x", "y", "label", "adversarial", "entropy")}
    columns["adversarial"] = [0] * count
    svg = plots.entropy_map("entropy", columns).svg
    assert 1000 < svg.count("<use") <= 1500


def test_history_columns_are_told_apart():
    columns = "epoch loss ce ce_adv kl vat val_clean_accuracy val_robust_accuracy accuracy val_r_div learning_rate"
    columns += " positives_clean negatives_adversarial seconds contrastive regularization"
    groups = history_groups({name: [1.0, 2.0] for name in columns.split()} | {"empty": [None, None]})
    assert groups["losses"] == ["loss", "ce", "ce_adv", "kl", "vat", "contrastive", "regularization"]
    assert groups["accuracy"] == ["val_clean_accuracy", "val_robust_accuracy", "accuracy"]
    assert groups["pairs"] == ["positives_clean", "negatives_adversarial"]
    assert groups["divergence"] == ["val_r_div"]


def test_names_on_a_map_do_not_overlap():
    """Two clusters in one place, and one beside them: their boxes are moved apart, and a lonely one stays."""
    centers = {0: (0.0, 0.0), 1: (0.5, 0.1), 2: (1.0, 0.0), 3: (50.0, 50.0)}
    sizes = dict.fromkeys(centers, (4.0, 1.0))
    moved = plots.apart(centers, sizes)
    assert moved[3] == (50.0, 50.0)
    for first in range(4):
        for second in range(first):
            gaps = [abs(a - b) for a, b in zip(moved[first], moved[second], strict=True)]
            assert gaps[0] >= 4 - 1e-6 or gaps[1] >= 1 - 1e-6
    assert all(abs(y) < 3 for _, y in [*moved.values()][:3])
    columns = {
        "x": [0, 1, 0, 1] * 3,
        "y": [0, 0, 1, 1] * 3,
        "label": [0] * 4 + [1] * 4 + [2] * 4,
        "adversarial": [0] * 12,
    }
    svg = plots.feature_map("map", columns, ["coat", "pullover", "shirt"]).svg
    heights = [float(height) for height in re.findall(r'<g id="map-class-.*?translate\([\d.]+ ([\d.]+)\)', svg)]
    heights = heights or [
        float(height) for height in re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>(?:coat|pullover|shirt)<', svg)
    ]
    assert len(heights) == 3 and min(abs(a - b) for a in heights for b in heights if a != b) > 9
