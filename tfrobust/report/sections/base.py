"""The base class of sections, and the parts of reports that several sections read."""

from __future__ import annotations

import abc
import functools
from collections.abc import Sequence
from typing import NamedTuple

from tfrobust.report import catalog, intervals, reading
from tfrobust.report.blocks import Block, Numbers, measurements_of
from tfrobust.report.catalog.spelling import curve_key
from tfrobust.report.catalog.under_attack import CURVE
from tfrobust.report.parts import has_numbers
from tfrobust.report.schema import Report
from tfrobust.structs import Measurement, Series


class Section(abc.ABC):
    """A section of a report, which applies if it has blocks.

    Attributes:
        anchor: unique in the page; the section's place follows from it (`sections.ORDER`).
        heading: title.
        sentence: finding that a reader should see first; may be "". Read only if the section applies.
        lead: paragraph on how to read the section; may be "".
        report: the report.
        everything: all sections of the report, this one included.
    """

    anchor: str
    heading: str
    sentence: str = ""
    lead: str = ""

    def __init__(self, report: Report, everything: Sequence[Section] = ()):
        self.report = report
        self.everything = everything

    @abc.abstractmethod
    def blocks(self) -> list[Block]:
        """Return the section's blocks below the lead; [] if it does not apply."""

    @functools.cached_property
    def content(self) -> list[Block]:
        """The blocks, built once, without lists of no measurements."""
        return [block for block in self.blocks() if block != Numbers([])]

    @property
    def introduction(self) -> str:
        """The lead, and the kinds of those of its intervals that differ from most in the report."""
        kinds = intervals.unusual_kinds(self.report, measurements_of(self.content))
        return " ".join(filter(None, (self.lead, kinds)))

    @functools.cached_property
    def examples(self) -> str:
        """Name of the report's examples: "images", "clips" or "sentences"."""
        return reading.examples_of(self.report.data)

    @property
    def example(self) -> str:
        """Name of one of them."""
        return self.examples.removesuffix("s")

    def measured(self, family: str) -> list[Measurement]:
        """Return the report's measurements of a family, in order."""
        return [m for m in reading.in_order(self.report) if catalog.read(m).family == family]


def joined(parts) -> str:
    """Join clauses to one sentence with a capital and a full stop; "" without any."""
    text = "; ".join(filter(None, parts))
    return f"{text[0].upper()}{text[1:]}." if text else ""


def columns_of(report: Report, identity: str, *needed: str) -> dict:
    """Return the columns of a series; {} unless it has all columns needed."""
    series = report.get_series(identity)
    return series.columns if series is not None and set(needed) <= series.columns.keys() else {}


def ends(series: Series) -> list[str]:
    """Return the names of the columns with the ends of intervals."""
    return [name for name in ("low", "high") if name in series.columns]


class MeasuredCurve(NamedTuple):
    """A measured curve of accuracy against epsilon.

    Attributes:
        key: attack and norm, "pgd_linf".
        settings: of the attack.
        columns: of the series.
    """

    key: str
    settings: dict
    columns: dict


def accuracy_curves(report: Report) -> list[MeasuredCurve]:
    """Return the measured curves of accuracy against epsilon."""
    curves = []
    for series in report.series:
        entry = catalog.read(series)
        if entry.record is CURVE and has_numbers(series, "epsilon", "accuracy", *ends(series)):
            curves.append(MeasuredCurve(curve_key(entry.settings), entry.settings, series.columns))
    return curves


def image_of(pixels: list) -> list:
    """Convert pixels [h][w][c] for drawing: three or more channels to colors, fewer to the first channel as gray."""
    colored = len(pixels[0][0]) >= 3
    return [[pixel[:3] if colored else pixel[0] for pixel in line] for line in pixels]
