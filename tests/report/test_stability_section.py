"""The section on stability: every number at its place, once, in HTML and Markdown."""

import re

from report.synthetic import extended, fraction, written

from tfrobust.report.blocks import plots
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


def test_bars_are_as_long_as_flips_are_likely():
    _, body = written(Stability, report())
    patches = re.findall(r'<path d="M ([\d.]+) [\d.]+ L ([\d.]+) [^"]*"[^>]*style="[^"]*fill: var\(--series-2\)', body)
    patches += re.findall(r'<path d="M ([\d.]+) [\d.]+ L [\d.]+ [\d.]+ L ([\d.]+) [^"]*"[^>]*--series-2', body)
    lengths = sorted({round(abs(float(end) - float(start)), 1) for start, end in patches} - {0.0}, reverse=True)
    assert len(lengths) == 3
    for length, value in zip(lengths, FLIPS.values(), strict=True):
        assert abs(length / lengths[0] - value / FLIPS["gaussian_noise"]) < 0.01


def test_ticks_are_called_what_they_are():
    """Up to 18 % they stand 2.5 % apart."""
    svg = plots.bars("flips", ["translate"], [0.18], [0.17], [0.19], x_label="flip probability").svg
    assert ">17.5 %<" in svg and ">18 %<" not in svg


def test_parts_may_be_missing():
    _, body = written(Stability, report(means=False))
    assert "<svg" in body and "Mean flip" not in body
    _, body = written(Stability, report(cells=False))
    assert "<svg" not in body and "Mean flip rate" in body
