"""Names for the kinds of 95 % intervals, shown wherever an interval is."""

from tfrobust.report import reading
from tfrobust.structs import Measurement, Series

_UNKNOWN = "of a kind not recorded"


def kind(item: Measurement | Series | None) -> str:
    """Return what the interval is over and its kind, such as "over images, Wilson"; "" without an interval."""
    if item is None or (isinstance(item, Measurement) and (item.low is None or item.high is None)):
        return ""
    said = item.settings.get("interval")
    return said.removeprefix("95 % ") if isinstance(said, str) and said else _UNKNOWN


def kinds(items) -> str:
    """Return the kinds that occur among measurements or series, each once; "" if none has an interval."""
    return "; ".join(dict.fromkeys(filter(None, map(kind, items))))


def in_brackets(measurement: Measurement) -> str:
    """Format a fraction's interval in brackets for use inside a sentence, with a leading space; "" without one."""
    margin = reading.interval(measurement)
    return f" (95 % interval {margin} %, {kind(measurement)})" if margin else ""


def of_each(measurements) -> str:
    """Describe the kinds in one line: the most frequent first, the others after the numbers they apply to.

    Returns "" if no measurement has an interval.
    """
    names: dict[str, dict[str, None]] = {}
    for one in measurements:
        if kind(one):
            names.setdefault(kind(one), {})[reading.label(one)] = None
    common, *others = sorted(names, key=lambda found: -len(names[found])) or [""]
    return "; ".join([common, *(f"{', '.join(names[found])}: {found}" for found in others)])
