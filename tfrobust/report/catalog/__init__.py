"""The catalogue of measurements: one record per kind, which says how its ids are written and how its numbers are read.

    evaluator ── settings ──> Record.id ──> "attack.pgd_linf_0.2.accuracy"
                    │                              │
                    └───────> Measurement <────────┘
                                   │
       sections, gate, comparison: read(measurement) ──> Entry: label, better direction, place, what must agree

An id is never taken apart: a measurement is of the kind whose record writes its id from its settings. Only the ids of
earlier versions, whose settings lack something, go through `earlier`. A new kind is a `Record` in a module of this
package.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import pkgutil
from collections.abc import Iterable

from tfrobust.report.catalog import earlier
from tfrobust.report.catalog.record import Absence, Entry, Family, Quantity, Record
from tfrobust.structs import Measurement, Series

# Settings that are recorded for the sake of the id alone, so that equal ids have equal ones.
IN_ID = ("label", "set", "class")
# Prefix of the ids of another model's accuracies.
REFERENCE = "reference."
_REFERENCE_FAMILY = Family(name="reference", place=math.inf, is_ranked=False)

_MEMO: dict[int, tuple[Measurement, Entry]] = {}
_MEMO_SIZE = 10_000


@functools.cache
def records() -> tuple[Record, ...]:
    """Return the records of all modules of this package, by their places in the catalogue."""
    modules = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    defined = {id(value): value for module in modules for value in vars(module).values() if isinstance(value, Record)}
    return tuple(sorted(defined.values(), key=lambda record: record.family.place))


def read(item: Measurement | Series) -> Entry:
    """Return the entry of a measurement or a series; of an unknown kind, one that says what its words allow."""
    if not isinstance(item, Measurement):  # few, and large to keep
        return _read(item.id, item.settings)
    memo = _MEMO.get(id(item))  # a page reads each measurement some fifty times
    if memo is None:
        if len(_MEMO) >= _MEMO_SIZE:
            _MEMO.clear()
        is_reference = item.id.startswith(REFERENCE)
        # The item is kept, so that no other object gets its id.
        memo = _MEMO[id(item)] = item, _of_reference(item) if is_reference else _read(item.id, item.settings)
    return memo[1]


def families(measurements: Iterable[Measurement]) -> set[str]:
    """Return the families of which a report has numbers."""
    return {read(measurement).family for measurement in measurements}


def natural_families(measurements: Iterable[Measurement]) -> list[str]:
    """Return the measured changes of images without an attacker, in words."""
    measured = families(measurements)
    return [family.natural for family in _families() if family.natural and family.name in measured]


def other_radii(items: Iterable[Measurement | Series]) -> list[str]:
    """Return the radii, in words, within which attacks were run that have no row in the table of attacks."""
    measured = [read(item).record for item in items if not isinstance(item, Measurement) or item.value is not None]
    measured.sort(key=lambda record: record.family.place)
    return list(dict.fromkeys(record.radii for record in measured if record.radii))


def absences(examples: str, measured: set[str]) -> list[Absence]:
    """Return the sentences on families that a report lacks.

    Args:
        examples: kind of its examples, "images", "clips" or "sentences".
        measured: the families that it has.
    """
    missing = [family for family in _families() if examples in family.absences and family.name not in measured]
    return sorted((family.absences[examples] for family in missing), key=lambda absence: absence.order)


@functools.cache
def _families() -> tuple[Family, ...]:
    return tuple({record.family.name: record.family for record in records()}.values())


def _read(identity: str, settings: dict) -> Entry:
    return (
        _recorded(identity, settings)
        or _recorded(identity, earlier.completed(identity, settings))
        or _unrecorded(identity, settings)
    )


def _recorded(identity: str, settings: dict) -> Entry | None:
    """Return the entry of the record that writes the id from the settings; None if none does."""
    entries = (record.read(identity, settings) for record in records())
    return next((entry for entry in entries if entry is not None), None)


def _of_reference(item: Measurement) -> Entry:
    """Return the entry of another model's accuracy: it is listed after all others and has that model's name."""
    inner = _read(item.id.removeprefix(REFERENCE), item.settings)

    def label(settings: dict, quantity: Quantity) -> str:
        name = inner.record.label(settings, quantity)
        return f"{name}, of {settings.get('reference', 'the reference')}"

    record = dataclasses.replace(inner.record, family=_REFERENCE_FAMILY, label=label, radii="")
    quantity = dataclasses.replace(inner.quantity, headline=None)
    return dataclasses.replace(inner, record=record, quantity=quantity, prefix=f"{REFERENCE}{inner.prefix}")


def _unrecorded(identity: str, settings: dict) -> Entry:
    """Return the entry of an id that no record writes: its family and quantity are those that its words name."""
    name, (prefix, measure) = earlier.family_of(identity), earlier.quantity_of(identity)
    new = Family(name=name, place=math.inf, is_ranked=False)
    family = next((family for family in _families() if family.name == name), new)
    radii = {record.radii for record in records() if record.family.name == name}
    common = radii.pop() if len(radii) == 1 else ""
    record = Record(family=family, prefix=prefix, quantities={}, must_agree=_every_setting(), radii=common)
    return Entry(record, measure, _quantity_named(measure, name), settings, prefix)


@functools.cache
def _every_setting() -> tuple[str, ...]:
    """Return the settings that must agree in numbers of any kind."""
    return tuple(dict.fromkeys(name for record in records() for name in record.must_agree))


@functools.cache
def _quantity_named(name: str, family: str) -> Quantity:
    """Return what every quantity of that name has in common: the better direction, and if it may be negative."""
    quantities = [
        (record, quantity)
        for record in records()
        for ending, quantity in record.quantities.items()
        if ending.rpartition(".")[2] == name
    ]
    headlines = [
        quantity.headline
        for record, quantity in quantities
        if record.family.name == family and not isinstance(record.prefix, str)
    ]
    better = next((quantity.better for _, quantity in quantities if quantity.better), 0)
    return Quantity(
        better=better,
        headline=next((rank for rank in headlines if rank is not None), None),
        signed=any(quantity.signed for _, quantity in quantities),
    )
