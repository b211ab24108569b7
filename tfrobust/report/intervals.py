"""Names for the kinds of 95 % intervals. A page names the most frequent kind once, and sections name the others."""

import collections
import re

from tfrobust.report import catalog, formats, reading
from tfrobust.report.schema import Report
from tfrobust.structs import Measurement, Series

_UNKNOWN = "of a kind not recorded"


def kind(item: Measurement | Series | None) -> str:
    """Return what the interval is over and its kind, such as "over images, Wilson"; "" without an interval."""
    if item is None or (isinstance(item, Measurement) and (item.low is None or item.high is None)):
        return ""
    interval = item.settings.get("interval")
    return interval.removeprefix("95 % ") if isinstance(interval, str) and interval else _UNKNOWN


def common(report: Report) -> str:
    """Return the most frequent kind among a report's measurements; "" if none has an interval."""
    counts = collections.Counter(filter(None, map(kind, report.measurements)))
    return counts.most_common(1)[0][0] if counts else ""


def statement(report: Report) -> str:
    """State the most frequent kind of a report in one sentence; "" if it has no interval."""
    return f"Intervals are 95 % {_in_sentence(common(report))}." if common(report) else ""


def unusual_kinds(report: Report, measurements) -> str:
    """State the kinds of those intervals that differ from the most frequent one of the report; "" without any.

    Over the images of one class, group or bin, the same kind of interval does not count as another.
    """
    names: dict[str, dict[str, None]] = {}
    for measurement in measurements:
        kind_text = re.sub(" of the (class|group|bin)(?=, )", "", kind(measurement))
        if kind_text not in ("", common(report)):
            name = (
                "relative drops"
                if catalog.read(measurement).measure == "drop"
                else reading.label(measurement).split(" under ")[0]
            )
            names.setdefault(kind_text, {})[name] = None
    clauses = [
        f"{', '.join(filter(None, subjects)) or 'this section'}: {_in_sentence(kind_text)}"
        for kind_text, subjects in names.items()
    ]
    return f"Intervals of {'; of '.join(clauses)}." if clauses else ""


def _in_sentence(kind: str) -> str:
    """Return a kind for use in a sentence: "over images (Wilson)" for "over images, Wilson"."""
    over, _, how = kind.partition(", ")
    return f"{over} ({how})" if how else over


def in_brackets(measurement: Measurement) -> str:
    """Format a fraction's interval in brackets for use inside a sentence, with a leading space; "" without one."""
    margin = formats.interval(measurement)
    return f" (95 % interval {margin} %)" if margin else ""


def of_each(measurements) -> str:
    """Describe the kinds in one line: the most frequent first, the others after the numbers they apply to.

    Returns "" if no measurement has an interval.
    """
    names: dict[str, dict[str, None]] = {}
    for measurement in measurements:
        if kind(measurement):
            names.setdefault(kind(measurement), {})[reading.label(measurement)] = None
    most, *rest = sorted(names, key=lambda text: -len(names[text])) or [""]
    return "; ".join([most, *(f"{', '.join(names[text])}: {text}" for text in rest)])
