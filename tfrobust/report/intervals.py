"""Which kind of 95 % interval a number has: said wherever one is shown."""

from tfrobust.report import reading
from tfrobust.structs import Measurement, Series

_UNKNOWN = "of a kind not recorded"


def kind(item: Measurement | Series | None) -> str:
    """Over what the interval is, and of which kind: "over images, Wilson"; "" where there is none."""
    if item is None or (isinstance(item, Measurement) and (item.low is None or item.high is None)):
        return ""
    said = item.settings.get("interval")
    return said.removeprefix("95 % ") if isinstance(said, str) and said else _UNKNOWN


def kinds(items) -> str:
    """The kinds that occur among measurements or series, each once; "" where nothing has an interval."""
    return "; ".join(dict.fromkeys(filter(None, map(kind, items))))


def in_brackets(measurement: Measurement) -> str:
    """The interval of a fraction for the middle of a sentence, with a blank before it; "" where there is none."""
    margin = reading.interval(measurement)
    return f" (95 % interval {margin} %, {kind(measurement)})" if margin else ""


def of_each(measurements) -> str:
    """The kinds in one line, most numbers' first, the others behind what they are of; "" without an interval."""
    names: dict[str, dict[str, None]] = {}
    for one in measurements:
        if kind(one):
            names.setdefault(kind(one), {})[reading.label(one)] = None
    common, *others = sorted(names, key=lambda found: -len(names[found])) or [""]
    return "; ".join([common, *(f"{', '.join(names[found])}: {found}" for found in others)])
