"""The section on utility and sensitivity: its pictures are the pixels of the series."""

import re

import numpy as np
import pytest
import scipy.stats
from report.synthetic import extended, images, written

from tfrobust.common import thumbnails
from tfrobust.report.sections.sensitivity import Sensitivity
from tfrobust.structs import Measurement, Series

HEIGHT, WIDTH = 3, 5


def series(pictures=2, channels=1, names=("utility", "sensitivity"), seed=0):
    generator = np.random.default_rng(seed)
    rows, columns = np.indices((HEIGHT, WIDTH)).reshape(2, -1)
    maps = {
        "picture": np.repeat(np.arange(pictures), len(rows)).tolist(),
        "label": np.repeat(np.arange(pictures), len(rows)).tolist(),
        "row": rows.tolist() * pictures,
        "column": columns.tolist() * pictures,
    }
    for name in (*(f"channel_{channel}" for channel in range(channels)), *names):
        maps[name] = generator.random(pictures * len(rows)).round(3).tolist()
    return Series("sensitivity.maps", "Maps", maps)


def report(shown, **changes):
    numbers = [
        Measurement("sensitivity.utility_concentration", 0.62, "ratio", 256, 0.6, 0.64),
        Measurement("sensitivity.agreement", 0.45, "ratio", 256, 0.43, 0.47),
    ]
    return extended(numbers, (shown,), **changes)


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_show_each_pixel_at_its_place(channels):
    shown = series(channels=channels)
    _, body = written(Sensitivity, report(shown))
    drawn, marked = images(body)[:6], images(body)[6:]
    assert {picture.shape for picture in drawn} == {(HEIGHT, WIDTH, 3)}
    for number in (0, 1):
        pixels = slice(number * HEIGHT * WIDTH, (number + 1) * HEIGHT * WIDTH)
        values = [np.reshape(shown.columns[f"channel_{c}"][pixels], (HEIGHT, WIDTH)) for c in range(channels)]
        expected = np.stack(values * (3 // channels), axis=-1) * 255
        np.testing.assert_allclose(drawn[3 * number].astype(float), expected, atol=1.1)
        for offset, name in ((1, "utility"), (2, "sensitivity")):
            # Brighter is more, and the largest value is the brightest colour of all.
            brightness = drawn[3 * number + offset].astype(float) @ [0.2126, 0.7152, 0.0722]
            values = shown.columns[name][pixels]
            assert scipy.stats.spearmanr(brightness.ravel(), values).statistic > 0.99
            assert brightness.argmax() == np.argmax(values) and brightness.max() > 240
    np.testing.assert_array_equal(marked, drawn[::3])


def test_the_most_and_the_least_useful_pixels_are_marked():
    shown = series(pictures=1)
    utility = np.full((HEIGHT, WIDTH), 0.5)
    utility[0, 0], utility[2, 4], utility[0, 4], utility[2, 0] = 0.9, 0.8, 0.0, 0.1
    _, body = written(Sensitivity, report(Series(shown.id, "", {**shown.columns, "utility": utility.ravel()})))
    corners = {}
    for data, role in re.findall(r'<path d="([^"]*)"[^>]*style="fill: var\(--(series-\d)\)[^"]*opacity: 0.85', body):
        points = np.array(re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", data), float).reshape(-1, 4, 2)
        corners[role] = points.min(axis=1)
        side = np.ptp(points, axis=1).mean()
    corner = np.minimum.reduce([places.min(axis=0) for places in corners.values()])
    pixels = {
        role: {tuple(pixel[::-1]) for pixel in np.rint((at - corner) / side).astype(int)}
        for role, at in corners.items()
    }
    assert pixels == {"series-3": {(0, 0), (2, 4)}, "series-2": {(0, 4), (2, 0)}}


def test_pixels_of_equal_utility_are_not_taken_in_their_order():
    shown = series(pictures=1)
    flat = Series(shown.id, "", {**shown.columns, "utility": [0.0] * HEIGHT * WIDTH})
    _, body = written(Sensitivity, report(flat))
    assert body == written(Sensitivity, report(flat))[1]
    (most,) = [d for d in re.findall(r'<path d="([^"]*)"[^>]*series-2\)[^"]*opacity: 0.85', body)]
    columns = {x for x, _ in re.findall(r"M ([-\d.]+) ([-\d.]+)", most)}
    rows = {y for _, y in re.findall(r"M ([-\d.]+) ([-\d.]+)", most)}
    assert len(columns) + len(rows) > 3  # not two neighbours in the first row


def classes(count=7, channels=1):
    generator, rows = np.random.default_rng(1), []
    for label in range(count):
        image, utility = (generator.integers(0, 256, (HEIGHT, WIDTH, c)) / 255 for c in (channels, 1))
        size = {"height": HEIGHT, "width": WIDTH, "channels": channels}
        drawn = {"image": thumbnails.encode(image), "utility": thumbnails.encode(utility)}
        rows.append({"label": label, "images": 4, **size, **drawn, "largest_utility": 1.0})
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return Series("sensitivity.classes", "Utility of each class", columns)


@pytest.mark.parametrize("channels", [1, 3])
def test_each_class_has_its_mean_image_above_its_mean_utility(channels):
    shown = classes(channels=channels)
    shown_report = report(shown)
    _, body = written(Sensitivity, shown_report)
    drawn = images(body)
    assert len(drawn) == 14 and "Utility of each class" in body and all(f">class {n}<" in body for n in range(7))
    expected = [
        np.broadcast_to(thumbnails.decode(text, HEIGHT, WIDTH, channels), (HEIGHT, WIDTH, 3))
        for text in shown.columns["image"]
    ]
    # Five to a row; drawn from the upper left, row by row.
    places = [(part, band) for band in (range(5), range(5, 7)) for part in ("image", "utility")]
    order = [(part, label) for part, band in places for label in band]
    for (part, label), picture in zip(order, drawn, strict=True):
        if part == "image":
            np.testing.assert_allclose(picture / 255, expected[label], atol=1.1 / 255)
        else:
            values = np.ravel(thumbnails.decode(shown.columns["utility"][label], HEIGHT, WIDTH, 1))
            assert scipy.stats.spearmanr(picture.astype(float).sum(-1).ravel(), values).statistic > 0.99


def test_a_class_without_a_picture_is_left_out():
    shown = classes(count=2)
    broken = Series(shown.id, "", {**shown.columns, "utility": ["AAAA", shown.columns["utility"][1]]})
    _, body = written(Sensitivity, report(broken))
    assert len(images(body)) == 2 and ">class 1<" in body and ">class 0<" not in body
