"""The record of one kind of measurement, and the entry of a measurement in the catalogue."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

# What settings of another program may raise in a function that writes an id or a label.
_UNFIT = (KeyError, TypeError, ValueError, AttributeError)
# Settings that a label without details leaves out.
_DETAILS = ("steps", "reference")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantity:
    """One of the numbers of a kind, such as the accuracy and the relative drop under an attack.

    Attributes:
        label: display name of the number; "" where the id is shown.
        better: 1 if larger is better, -1 if smaller is; 0 if neither is known.
        headline: rank among the numbers of the family that models are compared by; None for all others.
        signed: True for a fraction that may be below 0.
        corruptions: number of corruptions in the benchmark's mean; a label names the count where fewer were measured.
        has_frost: True for a number that contains frost wherever frost was measured.
    """

    label: str = ""
    better: int = 0
    headline: int | None = None
    signed: bool = False
    corruptions: int = 0
    has_frost: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Absence:
    """The sentence under "not measured" of a report without any number of a family.

    Attributes:
        sentence: for the list.
        words: the subject in a few words, for the opening; "" for a minor one.
        order: place among the other sentences where it is not that of the family; smaller comes first.
    """

    sentence: str
    words: str = ""
    order: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """Kinds of measurements that are listed and counted together.

    Attributes:
        name: the first word of their ids.
        place: in the catalogue, which orders lists and sentences.
        is_ranked: True to list its numbers at its place; False to list them after all others.
        natural: its name in the threat statement of a report without attacks; "" for others.
        absences: kind of examples -> `Absence` of a report of these examples without the family.
        other_images: name of the images in a model card if they are not those of the test set; "" otherwise.
    """

    name: str
    place: float
    is_ranked: bool = True
    natural: str = ""
    absences: dict[str, Absence] = dataclasses.field(default_factory=dict)
    other_images: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """One kind of measurement or series: everything that readers of a report know about it.

    An id is the prefix, which follows from the settings, a dot and the name of the quantity.

    Attributes:
        family: kinds that are listed together.
        prefix: of the ids, without the quantity: a text, or a function of the settings.
        quantities: name of a quantity -> what is known about it; "" if the prefix is the whole id.
        label: display name from settings and quantity; that of the quantity by default.
        must_agree: settings in which two measurements of one id must agree for gate and comparison. Under an attack it
            is all settings that describe the search.
        radii: the radii of its attacks, in a sentence, if they have no single one; "" for others.
    """

    family: Family
    prefix: str | Callable[[dict], str]
    quantities: dict[str, Quantity]
    label: Callable[[dict, Quantity], str] = lambda settings, quantity: quantity.label
    must_agree: tuple[str, ...] = ()
    radii: str = ""

    def id(self, quantity: str = "", settings: dict | None = None) -> str:
        """Return the id of a number.

        Args:
            quantity: its name.
            settings: of the measurement; those that the id does not contain do not count.
        """
        prefix = self.prefix if isinstance(self.prefix, str) else self.prefix(settings or {})
        return f"{prefix}.{quantity}" if quantity else prefix

    def read(self, identity: str, settings: dict) -> Entry | None:
        """Return the entry of a number of this kind; None if these settings do not give this id."""
        try:
            prefix = self.id("", settings)
        except _UNFIT:
            return None
        if not identity.startswith(prefix):  # saves the comparisons below
            return None
        for name, quantity in self.quantities.items():
            if identity == (f"{prefix}.{name}" if name else prefix):
                return Entry(self, name, quantity, settings, prefix)
        return None


@dataclasses.dataclass(frozen=True)
class Entry:
    """The entry of a measurement or a series in the catalogue.

    Attributes:
        record: its kind.
        name: of its quantity, the end of its id.
        quantity: what is known about that.
        settings: its settings, and those that an earlier version wrote into the id alone.
        prefix: its id without the quantity.
    """

    record: Record
    name: str
    quantity: Quantity
    settings: dict
    prefix: str

    @property
    def family(self) -> str:
        """The name of its family."""
        return self.record.family.name

    @property
    def is_headline(self) -> bool:
        """True for a number that models are compared by."""
        return self.quantity.headline is not None

    @property
    def sort_key(self) -> tuple[float, float]:
        """The place in a list of measurements: by family, and within a family the headlines before the rest."""
        family = self.record.family
        place = family.place if family.is_ranked else math.inf
        return place, self.quantity.headline if self.is_headline else math.inf

    @property
    def measure(self) -> str:
        """The kind of number: the last word of the quantity's name, "accuracy" for "mean.accuracy"."""
        return self.name.rpartition(".")[2]

    def sibling(self, measure: str) -> str:
        """Return the id of another measure of the same kind and settings, such as the drop of an accuracy."""
        subject = self.name.rpartition(".")[0]
        return ".".join(filter(None, (self.prefix, subject, measure)))

    def label(self, *, details: bool = True) -> str:
        """Return the display name; "" if there is none."""
        settings = self.settings
        if not details:
            settings = {name: value for name, value in settings.items() if name not in _DETAILS}
        return self.record.label(settings, self.quantity) if self.quantity.label else ""
