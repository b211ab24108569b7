"""The section on stability: every number at its place, once, in HTML and Markdown."""

import re

from report.synthetic import extended, fraction, written

from tfrobust.report import formats, reading
from tfrobust.report.blocks import plain, plots
from tfrobust.report.renderers import html, markdown
from tfrobust.report.renderers.console import console_table
from tfrobust.report.sections.stability import Stability
from tfrobust.structs import Measurement

FLIPS = {"gaussian_noise": 0.125, "rotate": 0.0625, "tilt": 0.031}


def report(rates=True, means=True, cells=True):
    numbers = []
    for name, value in FLIPS.items() if cells else ():
        reference = "first frame" if "noise" in name else "previous frame"
        numbers.append(fraction(f"stability.{name}.flip_probability", value, reference=reference))
        if rates:
            unit = "fraction of the baseline's flip probability"
            rate = Measurement(f"stability.{name}.flip_rate", 4 * value, unit, 360, settings={"baseline": "a<b>"})
            numbers.append(rate)
    if means:
        numbers.append(fraction("stability.mean.flip_probability", 0.073))
        unit, settings = "fraction of the baseline's flip probability", {"baseline": "a<b>"}
        numbers.append(Measurement("stability.mfr", 0.58, unit, 360, settings=settings))
    return extended(numbers)


def test_the_table():
    _, grid, _ = Stability(report()).blocks()
    assert grid.header == ["Sequence", "Reference", "Flip probability", "Flip rate"]
    ends = [f" ({formats.interval(fraction('a', value))})" for value in FLIPS.values()]
    assert [[plain(cell) for cell in row] for row in grid.rows] == [
        ["gaussian noise", "first", f"12.5 %{ends[0]}", "50.0 %"],
        ["rotate", "previous", f"6.2 %{ends[1]}", "25.0 %"],
        ["tilt", "previous", f"3.1 %{ends[2]}", "12.4 %"],
    ]
    assert Stability(report(rates=False)).blocks()[1].header[-1] == "Flip probability"


def test_bars_are_as_long_as_flips_are_likely():
    _, body = written(Stability, report())
    patches = re.findall(r'<path d="M ([\d.]+) [\d.]+ L ([\d.]+) [^"]*"[^>]*style="[^"]*fill: var\(--series-2\)', body)
    patches += re.findall(r'<path d="M ([\d.]+) [\d.]+ L [\d.]+ [\d.]+ L ([\d.]+) [^"]*"[^>]*--series-2', body)
    lengths = sorted({round(abs(float(end) - float(start)), 1) for start, end in patches} - {0.0}, reverse=True)
    assert len(lengths) == 3
    for length, value in zip(lengths, FLIPS.values(), strict=True):
        assert abs(length / lengths[0] - value / FLIPS["gaussian_noise"]) < 0.01


def test_whose_flips_are_the_measure():
    for page in (html.render(report()), markdown.render(report())):
        assert page.count("Flip rates are relative to a&lt;b&gt;.") == 1
        assert page.count("Mean flip rate (mFR), against a&lt;b&gt;") >= 1
    assert "are relative to" not in html.render(report(rates=False))
    mce = fraction("corruption.mce", 0.7, baseline="AlexNet")
    assert reading.label(mce) == "Mean corruption error (mCE), against AlexNet"


def test_ticks_are_called_what_they_are():
    """Up to 18 % they stand 2.5 % apart."""
    svg = plots.bars("flips", ["translate"], [0.18], [0.17], [0.19], x_label="flip probability").svg
    assert ">17.5 %<" in svg and ">18 %<" not in svg


def test_parts_may_be_missing():
    _, body = written(Stability, report(means=False))
    assert "<svg" in body and "Mean flip" not in body
    _, body = written(Stability, report(cells=False))
    assert "<svg" not in body and "Mean flip rate" in body


def test_markdown_and_console():
    card = markdown.render(report())
    (line,) = [line for line in card.splitlines() if line.startswith("| rotate")]
    assert [cell.strip() for cell in line.strip("|").split("|")][:3] == ["rotate", "previous", "6.2 % (4.2 to 9.2)"]
    assert "stability.rotate" not in card and "stability.rotate" not in html.render(report())
    assert re.search(r"Mean flip probability +7.3 %", console_table(report()))
