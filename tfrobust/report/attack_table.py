"""Rows of attacks: accuracy and relative drop under each, the strongest of several, and the bounds from below."""

from __future__ import annotations

import dataclasses

from tfrobust.common.norm_table import DIRECTED
from tfrobust.report import catalog
from tfrobust.report.catalog.expected_robustness import EXPECTED
from tfrobust.report.catalog.spelling import NORM_NAMES, attack_label, attack_name, budget, budget_of, frames, size
from tfrobust.report.catalog.under_attack import (
    ATTACK,
    CERTIFIED,
    CURVE,
    MEMBER,
    PASSES,
    VIDEO_ATTACK,
    VIDEO_MEMBER,
)
from tfrobust.report.catalog.union import UNION
from tfrobust.structs import Measurement

# The column of `AttackRow.passes`, means over the images; of a member of an ensemble, with those of all before it.
PASSES_HEADING = "Passes, forward + backward"
# APGD-T in AutoAttack: its steps, and the smallest number of its targets (that of L1).
_STRONG = {"steps": 100, "targets": 5}
# Records of the accuracies of single attacks and ensembles, at one epsilon or over several.
_SEARCHES = (ATTACK, MEMBER, CURVE, EXPECTED, VIDEO_ATTACK, VIDEO_MEMBER)


@dataclasses.dataclass(frozen=True)
class AttackRow:
    """The accuracy under one attack (or one member of an ensemble), with its relative drop if measured."""

    attack: str
    norm: str
    epsilon: str
    frames: str
    member: str | None
    accuracy: Measurement
    drop: Measurement | None

    @property
    def name(self) -> str:
        """The attack's display name: "multi-targeted PGD"."""
        return attack_name(self.attack, self.accuracy.settings)

    @property
    def ball(self) -> tuple[str, str, str]:
        """Norm, epsilon and frames as in ids, which are equal in attacks and certificates of one threat model."""
        return self.norm, self.epsilon, self.frames

    @property
    def budget(self) -> str:
        """The norm and size of the perturbation: "L∞ ε = 0.2", "L2 ε = 1 per frame, in at most 2 frames"."""
        return budget(self.norm, self.epsilon, self.frames)

    @property
    def title(self) -> str:
        """The attack and its budget: "PGD-100, L∞ ε = 0.2"."""
        return f"{self.name}, {self.budget}"

    @property
    def effort(self) -> str:
        """Steps, restarts and queries, as `effort` formats them."""
        return effort(self.accuracy.settings)

    @property
    def passes(self) -> str:
        """Mean forward and backward passes per image, "1834 + 1790"; "" if unknown."""
        counts = [self.accuracy.settings.get(name) for name in PASSES]
        return " + ".join(f"{count:.0f}" for count in counts) if all(map(_is_count, counts)) else ""

    @property
    def is_upper_bound(self) -> bool:
        """True if a time budget ended the attack."""
        return self.accuracy.settings.get("bound") == "upper"

    @property
    def is_strong(self) -> bool:
        """True for AutoAttack, and for APGD-T and MALT with its effort; False if a time budget ended the attack."""
        settings = self.accuracy.settings
        name = str(settings.get("attack", self.attack))
        if self.is_upper_bound or name not in ("apgd_t", "malt"):
            return not self.is_upper_bound and name.startswith("autoattack")
        counts = [(settings.get(setting), least) for setting, least in _STRONG.items()]
        return all(isinstance(count, (int, float)) and count >= least for count, least in counts)


def effort(settings: dict) -> str:
    """Format steps, restarts and queries as far as an attack's settings have them: "100 steps, 1 restart"."""
    members = settings.get("member_efforts")
    if "members" in settings and isinstance(members, list):
        return ", ".join(attack_name(str(member)) for member in members)
    parts = []
    for name in ("steps", "restarts", "queries"):
        count = settings.get(name)
        if _is_count(count):
            parts.append(f"{count:g} {name if count != 1 else name.rstrip('s')}")
    return ", ".join(parts)


def _is_count(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def attack_rows(measurements, members: bool = False) -> list[AttackRow]:
    """Return the attacks of a report in the order measured; members of ensembles only if `members`."""
    pairs: dict[tuple, dict[str, Measurement]] = {}
    for measurement in measurements:
        entry = catalog.read(measurement)
        if entry.record is ATTACK or (members and entry.record is MEMBER):
            member = entry.settings["attack"] if entry.record is MEMBER else None
            key = (attack_label(entry.settings), *ball_of(entry.settings), member)
            pairs.setdefault(key, {})[entry.name] = measurement
    return [AttackRow(*key, pair["accuracy"], pair.get("drop")) for key, pair in pairs.items() if "accuracy" in pair]


def ball_of(settings: dict) -> tuple[str, str, str]:
    """Return norm, epsilon and frames of a measurement or series, as in `AttackRow.ball`."""
    return settings["norm"], size(settings["epsilon"]), frames(settings)


@dataclasses.dataclass(frozen=True)
class Bracket:
    """The accuracy under all attacks within a budget, bounded from both sides.

    Attributes:
        certified: the lower bound, which holds against every attack.
        attacked: the row of the strongest attack measured, the upper bound; None without any.
        undecided: the share that a complete method left undecided; None of another method.
    """

    certified: Measurement
    attacked: AttackRow | None
    undecided: Measurement | None = None

    @property
    def budget(self) -> str:
        """The norm and size of the perturbation: "L∞ ε = 0.2"."""
        return budget_of(catalog.read(self.certified).settings)

    @property
    def method(self) -> str:
        """The method of the bound: "CROWN-IBP"."""
        return str(self.certified.settings.get("method", "")).upper().replace("_", "-")

    @property
    def upper(self) -> float:
        """The upper bound: under the strongest attack, or what a complete method did not break."""
        attacked = 1.0 if self.attacked is None else self.attacked.accuracy.value
        return attacked if self.undecided is None else min(attacked, self.certified.value + self.undecided.value)

    @property
    def unknown(self) -> float:
        """The share between both bounds."""
        return max(0.0, self.upper - self.certified.value)


def brackets(measurements, series=()) -> list[Bracket]:
    """Return a bracket per certified accuracy, in the order measured.

    Args:
        measurements: sequence of Measurement.
        series: sequence of Series; from the outcomes of all images follows the accuracy under an attack on a sample.
    """
    outcomes, images = (
        {item.id: row for item in series for row in item.columns.get(name, ())[:1] if isinstance(row, str)}
        for name in ("right", "images")
    )
    rows = [row for row in attack_rows(measurements) if row.accuracy.value is not None]
    entries = [(m, catalog.read(m)) for m in measurements if m.value is not None]
    bounds = [(m, entry) for m, entry in entries if entry.record is CERTIFIED]
    undecided = {entry.prefix: m for m, entry in bounds if entry.name == "unknown"}
    return [
        Bracket(
            m,
            strongest(_on_images_of(m, [row for row in rows if row.ball == ball_of(entry.settings)], outcomes, images)),
            undecided.get(entry.prefix),
        )
        for m, entry in bounds
        if entry.name == "accuracy"
    ]


def _on_images_of(
    bound: Measurement, rows: list[AttackRow], outcomes: dict[str, str], images: dict[str, str]
) -> list[AttackRow]:
    """Return the attacks on the images of a bound (the first, or "1" in `images`), with their accuracies on these."""
    on_images, count = [row for row in rows if is_on_images_of(row.accuracy, bound)], bound.n or 0
    if "sample" not in bound.settings or not count:
        return on_images
    drawn = images.get(f"outcomes.{bound.id}", "")
    for row in rows:
        correct = outcomes.get(f"outcomes.{row.accuracy.id}", "")
        if row not in on_images and len(correct) > count and len(correct) >= len(drawn):
            chosen = [digit for digit, is_drawn in zip(correct, drawn, strict=False) if is_drawn == "1"]
            bounded = chosen if drawn else correct[:count]
            share = bounded.count("1") / count
            accuracy = dataclasses.replace(row.accuracy, value=share, n=count, low=None, high=None)
            on_images.append(dataclasses.replace(row, accuracy=accuracy))
    return on_images


def strongest(rows: list[AttackRow]) -> AttackRow | None:
    """Return the attack with the lowest accuracy; None if none was measured."""
    measured = [row for row in rows if row.accuracy.value is not None]
    return min(measured, key=lambda row: row.accuracy.value, default=None)


def compared_with(attack: AttackRow, rows: list[AttackRow]) -> list[AttackRow]:
    """Return the attacks, itself among them, that ran on the same images: accuracies on others say nothing about it."""
    return [row for row in rows if row.accuracy.value is not None and is_on_images_of(row.accuracy, attack.accuracy)]


def is_on_images_of(first: Measurement, second: Measurement) -> bool:
    """Return True if two measurements of one report are on the same images: equally many, drawn or the first ones."""
    return (first.n, first.settings.get("sample")) == (second.n, second.settings.get("sample"))


def weakly_attacked(measurements) -> list[str]:
    """Return the budgets within which attacks were run, but none was as strong as APGD-T or AutoAttack.

    On the digits, accuracies under APGD-T are close to AutoAttack's, and those under PGD several points higher.
    """
    rows = [row for row in attack_rows(measurements, members=True) if row.accuracy.value is not None]
    strong = {row.budget for row in rows if row.is_strong}
    return [budget for budget in dict.fromkeys(row.budget for row in rows) if budget not in strong]


def searches(items) -> list[dict]:
    """Return the settings of all attacks under which accuracies were measured, also over radii or of a union.

    Args:
        items: measurements, and series, of which the curves over epsilon count.
    """
    settings = []
    for item in items:
        entry = catalog.read(item)
        if any(entry.record is record for record in _SEARCHES):
            settings.append(entry.settings)
        elif entry.record is UNION:
            attacks = {name: entry.settings.get(name) for name in ("attacks", "member_efforts")}
            settings += [attacks | threat for threat in entry.settings["threats"]]
    return settings


def names_in(settings: dict) -> set[str]:
    """Return the names of the attack of a search, and of the members of an ensemble or a union."""
    listed = [settings.get(name) for name in ("members", "attacks", "member_efforts")]
    members = [member for names in listed if isinstance(names, list) for member in names]
    return {str(name) for name in (settings.get("attack"), *members) if name}


def unmeasured_norms(tried: list[dict]) -> list[str]:
    """Return the names of the main norms that none of some `searches` took."""
    # A ball of the whole clip lies in the balls of its frames, but not in the set of few changed frames.
    measured = {settings["norm"] for settings in tried if "_max_frames_" not in frames(settings)}
    return [NORM_NAMES[norm] for norm in DIRECTED if norm not in measured]
