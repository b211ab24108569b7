"""Accuracy under attack: at one size, and as a curve."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfrobust.attacks.base import Attack
from tfrobust.attacks.ensemble import AutoAttack
from tfrobust.errors import InputError
from tfrobust.evaluation import accuracy, chunks, statistics
from tfrobust.evaluation.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.searching import search
from tfrobust.ops import configured
from tfrobust.structs import Finding, Measurement, Series

# Sizes of a curve, as multiples of the attack's own epsilon.
CURVE_FACTORS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
# What a report says of every attack, also where a subclass has fixed it.
_ALWAYS = ("steps", "step_size", "restarts", "random_start")
# Of the curve of a minimal-norm attack, whose points cost nothing.
_MINIMAL_POINTS = 40


def attack_label(attack: Attack, label: str | None = None) -> str:
    """How ids call an attack: the label given, with its steps for "{steps}" in it, else its own `name`."""
    label = label or attack.name
    return label.replace("{steps}", str(attack.steps)) if "{steps}" in label else label


def attack_id(attack: Attack, label: str | None = None) -> str:
    """`attack.<label>_<norm>_<epsilon>`, epsilon written to six significant digits."""
    return f"attack.{attack_label(attack, label)}_{attack.threat.norm}_{attack.threat.epsilon:.6g}"


def curve_epsilons(attack: Attack, epsilons: tuple[float, ...] | None) -> tuple[float, ...]:
    """The sizes asked for, ascending, or multiples of the attack's own from 0 to 2."""
    if epsilons is None:
        return tuple(factor * float(attack.threat.epsilon) for factor in CURVE_FACTORS)
    return tuple(sorted(float(epsilon) for epsilon in epsilons))


def check_epsilons(owner: str, epsilons: tuple[float, ...] | None) -> None:
    """Raises ValueError for sizes that no curve can have."""
    if epsilons is not None and (not epsilons or min(epsilons) < 0 or len(set(epsilons)) < len(epsilons)):
        raise InputError(f"{owner}.epsilons is {tuple(epsilons)}; it must hold distinct numbers >= 0.")


def attack_settings(attack: Attack, setting: Setting, complete: bool = True) -> dict:
    """What a report says of an attack: threat, effort, objective, seed; `bound` where it did not finish."""
    threat = attack.threat
    settings = {"attack": attack.name, "norm": threat.norm, "epsilon": threat.epsilon}
    if attack.members:
        settings["members"] = [member.name for member in attack.members]
        settings |= _efforts(attack, len(attack.members))
    for name in (*_ALWAYS, *configured.constructor_arguments(type(attack))):
        if name not in ("threat", "attacks") and not (attack.members and name in _ALWAYS) and hasattr(attack, name):
            # The attack's own default, resolved: a reader of the report should not have to know it.
            settings[name] = getattr(attack, f"resolved_{name}", getattr(attack, name))
    settings = {name: value for name, value in settings.items() if value is not None}
    if attack.needs_gradient and not attack.members:
        settings["objective"] = getattr(attack, "objective", "cross_entropy")
    words = attack.fallback(setting.predictor.class_count) if hasattr(attack, "fallback") else ""
    if words:
        settings["fallback"] = words
    settings |= {"seed": setting.seed, "batch_norm": "inference"}
    if not complete:
        settings["bound"] = "upper"
    return settings


def _efforts(attack: Attack, count: int) -> dict:
    """What the first members of an ensemble are; {} for AutoAttack, whose version says it, as in older reports."""
    return {} if type(attack) is AutoAttack else {"member_efforts": [_effort(one) for one in attack.members[:count]]}


def _effort(member: Attack) -> str:
    """All that a member was given, unless its class has it so: "apgd_t (100 steps, 1 restart, 5 targets)"."""
    counts = {name: getattr(member, name) for name in ("steps", "restarts", "targets") if hasattr(member, name)}
    said = [f"{count} {name if count != 1 else name[:-1]}" for name, count in counts.items()]
    for name, parameter in configured.constructor_arguments(type(member)).items():
        value = getattr(member, name, parameter.default)
        if name not in ("threat", *counts) and str(value) != str(parameter.default):
            said.append(f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}")
    return f"{member.name} ({', '.join(said)})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttackAccuracy(Evaluator):
    """`attack.<label>_<norm>_<epsilon>.accuracy` and `.drop`: what an attack leaves of the accuracy.

    drop = (clean - robust) / clean over the same images (paper 004, eq. 3). An ensemble also gives, cumulative
    and in order, `attack.<label>_<norm>_<epsilon>.<member>.accuracy`: what is left after that member. A
    minimal-norm attack gives the accuracy of those whose nearest point found lies beyond epsilon, and
    `attack.<label>_<norm>_<epsilon>.median_distance` over all images. The series
    `attack.<label>_<norm>_<epsilon>.classes` has the accuracy of each class.

    Attributes:
        attack: who attacks, with its own threat.
        label: what tells it apart in the ids, "{steps}" in it its steps; None: the attack's own name.
        seconds: wall time after which the search ends. Whoever still stands then counts as robust, and the
            settings say that the accuracy is an upper bound; run again, it goes on with the chunks that are missing.
        per_class: also measure `attack.<label>_<norm>_<epsilon>.class.<label of the class>`, for a gate to ask.
    """

    attack: Attack
    label: str | None = None
    seconds: float | None = None
    per_class: bool = False

    def __post_init__(self):
        if self.seconds is not None and self.seconds <= 0:
            raise InputError(f"AttackAccuracy.seconds is {self.seconds}; a time budget is more than 0, or None.")

    def run(self, setting: Setting) -> Outcome:
        ((attack, positions),) = self.attacks(setting)
        result = search(setting, attack, positions, seconds=self.seconds)
        robust = ~fallen(attack, result)
        settings = attack_settings(attack, setting, result.complete)
        if not result.complete:
            settings["seconds"] = self.seconds
        name = attack_id(attack, self.label)
        found = [accuracy.accuracy(f"{name}.accuracy", robust, settings), self._drop(setting, robust, settings)]
        for number, member in enumerate(attack.members):
            standing = ~(result.success & (result.member <= number))
            after = {**attack_settings(member, setting, result.complete), "ensemble": attack.name, "cumulative": True}
            after |= _efforts(attack, number + 1)
            found.append(accuracy.accuracy(f"{name}.{member.name}.accuracy", standing, after))
        if attack.minimal:
            found.append(self._median(name, result, settings))
        classes = accuracy.by_class(name, robust, setting.labels)
        if self.per_class:
            found += accuracy.class_measurements(classes, settings)
        series = [classes, accuracy.outcomes(f"{name}.accuracy", robust)]
        return Outcome(found, series, [] if result.complete else [self._cut_short(name, result)])

    def _cut_short(self, name: str, result: chunks.Found) -> Finding:
        count = f"{result.success.sum()} of {len(result.success)} images had fallen"
        evidence = f"{name} was ended after {self.seconds:g} s; {count}."
        return Finding(
            "complete_search", "warn", evidence, "Give it more time, or run again to go on: this is a bound."
        )

    def _drop(self, setting: Setting, robust: np.ndarray, settings: dict) -> Measurement:
        drop, low, high = statistics.relative_drop(setting.clean_correct, robust)
        settings = {**settings, "interval": "95 % over images, Wilson among the rightly classified"}
        if "bound" in settings:
            settings["bound"] = "lower"
        identifier = f"{attack_id(self.attack, self.label)}.drop"
        return Measurement(identifier, drop, "fraction of clean", len(robust), low, high, settings)

    def _median(self, name: str, result: chunks.Found, settings: dict) -> Measurement:
        # Whom nothing was found for lies farther than all others; with more than half of them there is no median.
        distances = np.where(result.success, result.distance, np.inf)
        value, low, high = statistics.median(distances)
        unit = "changed values" if self.attack.threat.norm == "l0" else "pixel units"
        settings = {**settings, "interval": "95 % over images, order statistics", "found": float(result.success.mean())}
        return Measurement(f"{name}.median_distance", value, unit, len(distances), low, high, settings)

    def attacks(self, setting: Setting) -> tuple[tuple[Attack, np.ndarray], ...]:
        return ((self.attack, np.arange(len(setting.images))),)

    def without_gradients(self) -> tuple[Evaluator, ...]:
        members = [member for member in self.attack.members if not member.needs_gradient]
        if not members or not self.attack.needs_gradient:
            return super().without_gradients()
        # What is left of an ensemble is not the ensemble: each goes by its own name.
        return tuple(AttackAccuracy(attack=member, seconds=self.seconds) for member in members)

    def ids(self) -> tuple[str, ...]:
        name = attack_id(self.attack, self.label)
        extra = [f"{name}.{member.name}.accuracy" for member in self.attack.members]
        if self.attack.minimal:
            extra.append(f"{name}.median_distance")
        return (f"{name}.accuracy", f"{name}.drop", *extra)


def fallen(attack: Attack, result, epsilon: float | None = None) -> np.ndarray:
    """Whom an attack brought down within epsilon (None: its own), bool [m]; a minimal-norm one is cut there."""
    if not attack.minimal:
        return np.asarray(result.success)
    epsilon = attack.threat.epsilon if epsilon is None else epsilon
    return np.asarray(result.success) & (np.asarray(result.distance) <= epsilon * (1 + 1e-6))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracyCurve(Evaluator):
    """The series `attack.<label>_<norm>.curve`: accuracy against epsilon, every point attacked on its own.

    Points are not carried from one size to the next: that a larger budget never leaves more accuracy is then
    evidence (the doctor looks at it), not a construction. A minimal-norm attack is run once, and its distances
    are counted at every size.

    Attributes:
        attack: attacks at its own epsilon times 0, 1/4, 1/2, 3/4, 1, 3/2, 2, or at `epsilons`.
        epsilons: sizes >= 0, 0 being the clean accuracy; None: the multiples above.
        label: what tells it apart in the id, "{steps}" in it its steps; None: the attack's own name.
        limit: at most so many images, drawn by the seed; None: all.
    """

    attack: Attack
    epsilons: tuple[float, ...] | None = None
    label: str | None = None
    limit: int | None = 1000

    def __post_init__(self):
        check_epsilons("AccuracyCurve", self.epsilons)

    def run(self, setting: Setting) -> Outcome:
        columns = {"epsilon": [], "accuracy": [], "low": [], "high": [], "n": []}
        positions = setting.subset(self.limit)
        once = search(setting, self.attack, positions) if self.attack.minimal else None
        for epsilon in self._sizes(once):
            if epsilon == 0:
                robust = setting.clean_correct[positions]
            elif once is not None:
                robust = ~fallen(self.attack, once, epsilon)
            else:
                robust = ~search(setting, self.attack.with_epsilon(epsilon), positions).success
            low, high = statistics.wilson_interval(int(robust.sum()), len(robust))
            point = (epsilon, float(robust.mean()), low, high, len(robust))
            for name, value in zip(columns, point, strict=True):
                columns[name].append(value)
        settings = attack_settings(self.attack, setting) | {"interval": "95 % over images, Wilson"}
        # Every point has its own epsilon, and its own step with it.
        settings = {name: value for name, value in settings.items() if name not in ("epsilon", "step_size")}
        return Outcome(series=[Series(self._id(), "Accuracy against epsilon", columns, settings)])

    def _sizes(self, once: chunks.Found | None) -> tuple[float, ...]:
        """The epsilons; of a minimal-norm attack, where none are given, up to the largest distance found."""
        if once is None or self.epsilons is not None or not np.any(once.distance[once.success] > 0):
            return curve_epsilons(self.attack, self.epsilons)
        largest = float(once.distance[once.success].max())
        if self.attack.threat.norm == "l0":  # counts of values
            return tuple(map(float, np.unique(np.linspace(0, largest, _MINIMAL_POINTS + 1).round())))
        return tuple(largest * number / _MINIMAL_POINTS for number in range(_MINIMAL_POINTS + 1))

    def attacks(self, setting: Setting) -> tuple[tuple[Attack, np.ndarray], ...]:
        if self.attack.minimal:
            return ((self.attack, setting.subset(self.limit)),)
        sizes = [epsilon for epsilon in curve_epsilons(self.attack, self.epsilons) if epsilon > 0]
        return tuple((self.attack.with_epsilon(epsilon), setting.subset(self.limit)) for epsilon in sizes)

    def ids(self) -> tuple[str, ...]:
        return (self._id(),)

    def _id(self) -> str:
        return f"attack.{attack_label(self.attack, self.label)}_{self.attack.threat.norm}.curve"
