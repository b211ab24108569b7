"""Formats of numbers, settings and names, shared by console, Markdown, HTML and comparison."""

from __future__ import annotations

import re

from tfrobust.common.console import duration
from tfrobust.structs import Measurement


def number(measurement: Measurement | None) -> str:
    """Format the value with its unit: "63.1 %", "0.482", "41 s"; "-" if unknown, "<= ..." for an upper bound."""
    if measurement is None or measurement.value is None:
        return "-"
    bound = {"upper": "<= ", "lower": ">= "}.get(measurement.settings.get("bound"), "")
    return bound + quantity(measurement.value, measurement.unit)


def interval(measurement: Measurement | None) -> str:
    """Format the 95 % interval in the unit of `number`, without repeating it: "57.9 to 68.0"; "" if unknown."""
    if measurement is None or measurement.low is None or measurement.high is None:
        return ""
    if measurement.unit.startswith("fraction"):
        return " to ".join(per_cents(measurement.low, measurement.high))
    ends = [f"{end:.3g}" for end in (measurement.low, measurement.high)]
    digits = max(len(end.partition(".")[2]) for end in ends)
    if not any("e" in end for end in ends):
        ends = [f"{end:.{digits}f}" for end in (measurement.low, measurement.high)]
    return " to ".join(ends)


def quantity(value: float, unit: str) -> str:
    """Format a number in its unit: fractions in per cent, seconds as a duration, the rest with 3 digits."""
    if unit.startswith("fraction"):
        return f"{per_cent(value)} %"
    if unit in ("s", "second", "seconds"):
        return duration(value)
    return f"{value:.3g} {unit}".rstrip() if unit not in ("ratio", "1") else f"{value:.3g}"


def per_cent(value: float | None) -> str:
    """Format a fraction in per cent as `per_cents` does, usually to one decimal: "63.1"; "-" if unknown."""
    return "-" if value is None else per_cents(value)[0]


def share(value: float | None) -> str:
    """Format a fraction with its unit, "63.1 %"; "-" if unknown."""
    return "-" if value is None else quantity(value, "fraction")


def per_cents(*values: float, sign: str = "") -> list[str]:
    """Format fractions in per cent to one decimal, or to as many (at most four) as distinguish each from 0 and 1.

    All values get the same number of decimals. Four decimals distinguish one in a million. A smaller distance from 0 or
    1 is floating-point error and asks for no more decimals.

    Args:
        *values: fractions of any size.
        sign: "+" to write the sign of positive values too.
    """
    shown = [next((digits for digits in range(1, 5) if _is_distinguished(value, digits)), 1) for value in values]
    return [format(100 * value, f"{sign}.{max(shown)}f") for value in values]


def _is_distinguished(value: float, digits: int) -> bool:
    """Return True if `digits` decimals of the percentage distinguish the fraction from 0 % and 100 %."""
    return abs(value) in (0, 1) or round(abs(100 * value), digits) not in (0, 100)


def flat(mapping: dict, prefix: str = "") -> list[tuple[str, str]]:
    """Flatten a nested dictionary to (name, text) rows in its own order: {"a": {"b": 1}} -> ("a.b", "1")."""
    rows = []
    for name, value in mapping.items():
        if isinstance(value, dict) and value:
            rows += flat(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", words(value)))
    return rows


def by_size(mapping: dict) -> tuple[dict, dict]:
    """Split into the entries that fit into a table and the nested dictionaries with more than six values."""
    large = {name: value for name, value in mapping.items() if isinstance(value, dict) and len(flat(value)) > 6}
    return {name: value for name, value in mapping.items() if name not in large}, large


def words(value) -> str:
    """Format a JSON value for display: "-" for null, yes / no, 6 significant digits, lists with commas."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ") if abs(value) >= 100_000 else str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(words(item) for item in value)
    return str(value)


_NICE = {"val": "validation", "r_div": "R-DIV", "intra": "within a class", "inter": "between classes"}


def nice(name: str) -> str:
    """Return a column or setting name for display: "val_r_div" becomes "validation R-DIV"."""
    for machine, human in _NICE.items():
        name = re.sub(rf"(^|_){machine}(_|$)", rf"\1{human}\2", name)
    return name.replace("_", " ")
