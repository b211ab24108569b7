"""Adversarial accuracy: at one epsilon, and as a curve over epsilon."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np

from tfrobust.attacks.ensemble import AutoAttack, Ensemble
from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.common import configured
from tfrobust.common.kinds import CLIPS, kind_of
from tfrobust.common.settings import require_least
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import chunks, statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.engine.searching import search
from tfrobust.evaluation.evaluators import accuracy
from tfrobust.evaluation.evaluators.certified import CertifiedAccuracy, covers
from tfrobust.report.catalog.under_attack import ATTACK, CURVE, MEMBER, PASSES
from tfrobust.structs import Finding, Measurement, Series

# Values of epsilon in a curve, as multiples of the attack's own epsilon.
CURVE_FACTORS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
# Settings that a report lists for every attack, also where a subclass fixes them.
_ALWAYS = ("steps", "step_size", "restarts", "random_start")
# Arguments that are no settings: threat models, which others describe, and members.
_PARTS = ("threat", "threats", "attacks")
# Settings of the loss in evaluation, which the last points of an attack do not have.
_OF_TARGETS = ("targets", "candidates", "include_true_class", "fallback")
# Certified images that are attacked nevertheless.
_ATTACKED_CERTIFIED = 100
# Points in the curve of a minimal-norm attack, which take no additional search.
_MINIMAL_POINTS = 40


def attack_label(attack: Attack, label: str | None = None) -> str:
    """Return the attack's part of an id: the label, with "{steps}" replaced by its steps, or else its `name`."""
    label = label or attack.name
    return label.replace("{steps}", str(attack.steps)) if "{steps}" in label else label


def id_settings(attack: Attack, label: str | None = None) -> dict:
    """Return the settings that are in the ids of an attack's numbers; the label only if it is not the attack's name."""
    threat, written = attack.threat, attack_label(attack, label)
    settings = {"attack": attack.name, "norm": threat.norm, "epsilon": threat.epsilon, **threat.frame_settings}
    return settings if written == attack.name else settings | {"label": written}


def curve_epsilons(attack: Attack, epsilons: tuple[float, ...] | None) -> tuple[float, ...]:
    """Return the given epsilons in ascending order, or multiples of the attack's own from 0 to 2, within the box."""
    if epsilons is None:
        return attack.threat.possible(factor * float(attack.threat.epsilon) for factor in CURVE_FACTORS)
    return tuple(sorted(float(epsilon) for epsilon in epsilons))


def check_epsilons(owner: str, epsilons: tuple[float, ...] | None) -> None:
    """Raise ValueError unless epsilons are None or distinct numbers >= 0."""
    if epsilons is not None and (not epsilons or min(epsilons) < 0 or len(set(epsilons)) < len(epsilons)):
        raise InputError(f"{owner}.epsilons is {tuple(epsilons)}; it must hold distinct numbers >= 0.")


def attack_settings(attack: Attack, setting: Setting, complete: bool = True, label: str | None = None) -> dict:
    """Return an attack's settings for a report: threat, effort, objective, seed; `bound` if it did not finish."""
    settings = id_settings(attack, label)
    if attack.members:
        settings["members"] = [member.name for member in attack.members]
        settings |= _efforts(attack, len(attack.members))
    if attack.searches_surrogate:
        settings["surrogate"] = setting.predictor.surrogate.name
        attack = attack.search
    for name in (*_ALWAYS, *configured.constructor_arguments(type(attack))):
        if name in attack.clip_settings and kind_of(setting.images.shape[1:]) is not CLIPS:
            continue
        if name not in _PARTS and not (attack.members and name in _ALWAYS) and hasattr(attack, name):
            # The attack's own default, resolved, so that readers of the report need not know it.
            value = getattr(attack, f"resolved_{name}", getattr(attack, name))
            settings[name] = value(setting.images.shape[1:]) if inspect.ismethod(value) else value
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


def settings_of_radii(attack: Attack, settings: dict) -> dict:
    """Return the settings of an attack at several radii: without those that differ from radius to radius.

    Args:
        attack: the attack.
        settings: its `attack_settings`.
    """
    scaled = ("step_size", "deviation")
    varying = [name for name in scaled if name == "step_size" or getattr(attack, name, None) is None]
    return {name: value for name, value in settings.items() if name not in ("epsilon", *varying)}


def last_point_settings(attack: Attack, setting: Setting, label: str | None = None) -> dict:
    """Return an attack's settings for numbers of its last points, which maximize the cross-entropy from one start."""
    settings = attack_settings(attack, setting, label=label)
    searched = {"objective": "cross_entropy", "restarts": 1}
    settings |= {name: value for name, value in searched.items() if name in settings}
    return {name: value for name, value in settings.items() if name not in _OF_TARGETS}


def pass_settings(passes: np.ndarray | None) -> dict:
    """Return the mean passes of the images, forward and backward; {} if they are not known of every image.

    Args:
        passes: [m, 2], or [m, members, 2], whose sum over the members counts; or None.
    """
    if passes is None or not np.all(np.isfinite(passes)):
        return {}
    means = passes.reshape(len(passes), -1, 2).sum(axis=1).mean(axis=0)
    return dict(zip(PASSES, map(float, means), strict=True))


def _efforts(attack: Attack, count: int) -> dict:
    """Return the efforts of the first members of an ensemble; {} for AutoAttack, as its version determines them."""
    return (
        {} if type(attack) is AutoAttack else {"member_efforts": [effort_of(part) for part in attack.members[:count]]}
    )


def effort_of(member: Attack) -> str:
    """Return an attack's arguments other than its defaults, as text: "apgd_t (100 steps, 1 restart, 5 targets)"."""
    title, member = member.name, member.search if member.searches_surrogate else member
    counts = {name: getattr(member, name) for name in ("steps", "restarts", "targets") if hasattr(member, name)}
    arguments = [f"{count} {name if count != 1 else name[:-1]}" for name, count in counts.items()]
    for name, parameter in configured.constructor_arguments(type(member)).items():
        value = getattr(member, name, parameter.default)
        if name not in (*_PARTS, *counts) and str(value) != str(parameter.default):
            shown = f"{value:.6g}" if isinstance(value, float) else str(value)
            arguments.append(name if value is True else f"{name} {shown}")
    return f"{title} ({', '.join(arguments)})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttackAccuracy(Evaluator):
    """Accuracy under attack, `attack.<label>_<norm>_<epsilon>.accuracy`, and its relative drop, `.drop`.

    drop = (clean - robust) / clean over the same images (Gupta et al. 2023, eq. 3). An ensemble also gives, cumulative
    and in order, `attack.<label>_<norm>_<epsilon>.<member>.accuracy`: the accuracy after that member. A minimal-norm
    attack gives the accuracy of images whose nearest misclassified point found lies beyond epsilon, and
    `attack.<label>_<norm>_<epsilon>.median_distance` over all images. The series
    `attack.<label>_<norm>_<epsilon>.classes` has the accuracy of each class, and `.groups` that of each group, if the
    data have groups.

    Example:
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.FGSM(robust.attacks.ThreatModel(epsilon=0.1))
        >>> robust.evaluators.AttackAccuracy(attack=attack, label="one_step").ids()
        ('attack.one_step_linf_0.1.accuracy', 'attack.one_step_linf_0.1.drop')

    Attributes:
        attack: the attack, with its own threat model.
        label: the attack's part of the ids, in which "{steps}" is replaced by its steps; None: the attack's own name.
        seconds: wall time after which the search ends. Remaining images then count as robust, and the settings state
            that the accuracy is an upper bound. A further run continues with the missing chunks.
        per_class: True: also measure `attack.<label>_<norm>_<epsilon>.class.<label of the class>`, for use in a gate.
        limit: maximum number of images, drawn by the seed; None: all. Comparisons with other reports are then not
            paired, nor are they with `Setting.limit`.
        first: number of images from the beginning of the test split, as most published tables take them; None: all.
            Comparisons are paired with reports that have the same images.
        spare_certified: evaluator whose certified images are left out, since no attack can succeed on them; None: none
            are. A hundred of them, drawn by the seed, are attacked nevertheless, so that the doctor can find a wrong
            certificate. The setting `spared` counts the others.
    """

    attack: Attack
    label: str | None = None
    seconds: float | None = None
    per_class: bool = False
    limit: int | None = None
    first: int | None = None
    spare_certified: CertifiedAccuracy | None = None

    def __post_init__(self):
        if self.seconds is not None and self.seconds <= 0:
            raise InputError(f"AttackAccuracy.seconds is {self.seconds}; a time budget is more than 0, or None.")
        for name in ("limit", "first"):
            if getattr(self, name) is not None:
                require_least(getattr(self, name), f"AttackAccuracy.{name}", 1)
        if self.limit is not None and self.first is not None:
            raise InputError("AttackAccuracy has limit and first; images are drawn, or taken from the beginning.")
        if self.spare_certified is not None:
            self._check_certificate(self.spare_certified.threat)

    def run(self, setting: Setting) -> Outcome:
        """Run the attack and measure the accuracy it leaves."""
        attack, positions = self.attack, self._positions(setting)
        spared = self._spared(setting, positions)
        result = self._search(setting, positions[~spared])
        result = result if not spared.any() else _with_spared(result, spared, len(attack.members))
        robust = ~succeeded(attack, result)
        settings = attack_settings(attack, setting, result.complete, self.label) | setting.vote_settings
        settings |= pass_settings(result.passes)
        if self.spare_certified is not None:
            settings["spared"] = int(spared.sum())
        if not result.complete:
            settings["seconds"] = self.seconds
        if len(positions) < len(setting.images) and self.first is not None:
            settings["sample"] = f"first {len(positions)}"
        name = ATTACK.id("", settings)
        measurements = [
            accuracy.accuracy(ATTACK.id("accuracy", settings), robust, settings, setting.examples),
            self._drop(setting.clean_correct[positions], robust, settings, setting),
        ]
        for number, member in enumerate(attack.members):
            correct = ~(result.success & (result.member <= number))
            after = attack_settings(member, setting, result.complete) | self._in_ensemble(member)
            after |= setting.vote_settings | {"cumulative": True} | _efforts(attack, number + 1)
            after |= pass_settings(None if result.passes is None else result.passes[:, : number + 1])
            measurements.append(accuracy.accuracy(MEMBER.id("accuracy", after), correct, after, setting.examples))
        if attack.minimal:
            measurements.append(self._median(result, settings, setting))
        classes = accuracy.by_class(name, robust, setting.labels[positions], setting.examples)
        if self.per_class:
            measurements += accuracy.class_measurements(classes, settings)
        names = setting.group_names
        names = None if names is None else names[positions]
        series = [classes, *accuracy.by_group(name, robust, names, setting.examples)]
        if self.first is not None or len(positions) == len(setting.images):  # drawn images are others of another seed
            series.append(accuracy.outcomes(ATTACK.id("accuracy", settings), robust))
        findings = [] if result.complete else [self._cut_short(name, result, setting.examples)]
        return Outcome(measurements, series, findings)

    def _in_ensemble(self, member: Attack) -> dict:
        """Return the settings that are in the ids of a member's numbers."""
        label = {name: text for name, text in id_settings(self.attack, self.label).items() if name == "label"}
        return id_settings(member) | label | {"ensemble": self.attack.name}

    def _cut_short(self, name: str, result: chunks.SearchResult, examples: str) -> Finding:
        count = f"{result.success.sum()} of {len(result.success)} {examples}"
        evidence = f"{name} was ended after {self.seconds:g} s; the attack had succeeded on {count}."
        return Finding(
            "complete_search", "warn", evidence, "Give it more time, or run again to resume; this is a bound."
        )

    def _drop(self, clean: np.ndarray, robust: np.ndarray, settings: dict, setting: Setting) -> Measurement:
        drop, low, high = statistics.relative_drop(clean, robust)
        # An image on which a stochastic model was wrong without an attack may be correct in the draws of the attack.
        kind = "delta method" if np.any(robust & ~clean) else "Wilson among the correctly classified"
        settings = {**settings, "interval": setting.interval(kind)}
        if "bound" in settings:
            settings["bound"] = "lower"
        return Measurement(ATTACK.id("drop", settings), drop, "fraction of clean", len(robust), low, high, settings)

    def _median(self, result: chunks.SearchResult, settings: dict, setting: Setting) -> Measurement:
        # Images without a misclassified point count as farther than all others; if they are the majority, there is no
        # median.
        distances = np.where(result.success, result.distance, np.inf)
        value, low, high = statistics.median(distances)
        unit = "changed values" if self.attack.threat.norm == "l0" else "pixel units"
        more = {"interval": setting.interval("order statistics"), "found": float(result.success.mean())}
        settings = {**settings, **more}
        return Measurement(ATTACK.id("median_distance", settings), value, unit, len(distances), low, high, settings)

    def attacks(self, setting: Setting) -> tuple[tuple[Attack, np.ndarray], ...]:
        """Return the attack, on all images, on the first or on those drawn by the seed."""
        return ((self.attack, self._positions(setting)),)

    def searches(self, setting: Setting) -> tuple[tuple[Attack, np.ndarray], ...]:
        """Return the attack on the images that are not spared."""
        ((attack, positions),) = self.attacks(setting)
        return ((attack, positions[~self._spared(setting, positions)]),)

    def _search(self, setting: Setting, positions: np.ndarray) -> chunks.SearchResult:
        """Run the attack on the images at these positions."""
        return search(setting, self.attack, positions, seconds=self.seconds)

    def _positions(self, setting: Setting) -> np.ndarray:
        return setting.subset(self.limit, first=self.first)

    def _spared(self, setting: Setting, positions: np.ndarray) -> np.ndarray:
        """Return which of the images are left out because they are certified, bool [m]."""
        if self.spare_certified is None:
            return np.zeros(len(positions), bool)
        certified = self.spare_certified.images(setting)
        order = setting.order("certified images that are attacked")
        certified[order[certified[order] & np.isin(order, positions)][:_ATTACKED_CERTIFIED]] = False
        return certified[positions]

    def _check_certificate(self, certified: ThreatModel) -> None:
        """Raise ValueError unless certificates for a threat model hold against the attack, and concern its success."""
        threat, bound = self.attack.threat, {"norm": certified.norm, "epsilon": certified.epsilon}
        if self.attack.minimal or not covers(bound, id_settings(self.attack)):
            kind = "a minimal-norm attack" if self.attack.minimal else f"an attack within {threat.budget}"
            raise InputError(
                f"AttackAccuracy.spare_certified certifies within {certified.budget}, which says nothing about {kind}."
            )

    def without_gradients(self) -> tuple[Evaluator, ...]:
        """Return the members of an ensemble that need no gradients, as separate evaluators; see `Evaluator`."""
        members = [member for member in self.attack.members if not member.needs_gradient]
        if not members or not self.attack.needs_gradient:
            return super().without_gradients()
        if len(members) > 1 and isinstance(self.attack, Ensemble):
            label = f"{self.label or self.attack.name}_without_gradients"
            return (dataclasses.replace(self, attack=Ensemble(members), label=label),)
        # The remaining members are not the ensemble, so each has its own name.
        return tuple(dataclasses.replace(self, attack=member, label=None, per_class=False) for member in members)

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the accuracies, the drop and the median distance."""
        settings = id_settings(self.attack, self.label)
        quantities = ("accuracy", "drop", *(["median_distance"] if self.attack.minimal else []))
        first, second, *rest = (ATTACK.id(quantity, settings) for quantity in quantities)
        members = (MEMBER.id("accuracy", self._in_ensemble(member)) for member in self.attack.members)
        return (first, second, *members, *rest)


def _with_spared(result: chunks.SearchResult, spared: np.ndarray, members: int) -> chunks.SearchResult:
    """Return the result of a search with rows of the images that it left out, on which no attack succeeds.

    Args:
        result: of the images that were attacked.
        spared: bool [m], those that were not.
        members: number of members of an ensemble, 0 for a single attack.
    """

    def filled(column, empty):
        rows = np.broadcast_to(empty, (len(spared), *np.shape(empty))).copy()
        if column is not None and len(column):
            rows[~spared] = column
        return rows

    passes = np.zeros([members, 2] if members else 2)
    if result.passes is None and not spared.all():
        passes = passes + np.nan
    return chunks.SearchResult(
        filled(result.success, False),
        filled(result.distance, np.float32(0.0)),
        result.complete,
        filled(result.member, -1) if members else None,
        filled(result.passes, passes),
    )


def succeeded(attack: Attack, result, epsilon: float | None = None) -> np.ndarray:
    """Return where an attack succeeded within epsilon (None: its own), bool [m]; minimal-norm results are cut there."""
    if not attack.minimal:
        return np.asarray(result.success)
    epsilon = attack.threat.epsilon if epsilon is None else epsilon
    return np.asarray(result.success) & (np.asarray(result.distance) <= epsilon * (1 + 1e-6))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracyCurve(Evaluator):
    """Accuracy against epsilon, the series `attack.<label>_<norm>.curve`; every point is a separate attack.

    Results are not carried from one epsilon to the next. That a larger epsilon never leaves more accuracy is then
    evidence (the doctor checks it), not true by construction. A minimal-norm attack is run once, and its distances are
    counted at every epsilon.

    Attributes:
        attack: the attack; it runs at its own epsilon times 0, 1/4, 1/2, 3/4, 1, 3/2, 2, or at `epsilons`.
        epsilons: values >= 0, with 0 for the clean accuracy; None: the multiples above.
        label: the attack's part of the id, in which "{steps}" is replaced by its steps; None: the attack's own name.
        limit: maximum number of images, drawn by the seed; None: all.
    """

    attack: Attack
    epsilons: tuple[float, ...] | None = None
    label: str | None = None
    limit: int | None = 1000

    def __post_init__(self):
        check_epsilons("AccuracyCurve", self.epsilons)

    def run(self, setting: Setting) -> Outcome:
        """Measure the accuracy at every epsilon."""
        columns = {"epsilon": [], "accuracy": [], "low": [], "high": [], "n": []}
        positions = setting.subset(self.limit)
        once = search(setting, self.attack, positions) if self.attack.minimal else None
        for epsilon in self._sizes(once):
            if epsilon == 0:
                robust = setting.clean_correct[positions]
            elif once is not None:
                robust = ~succeeded(self.attack, once, epsilon)
            else:
                robust = ~search(setting, self.attack.with_epsilon(epsilon), positions).success
            low, high = statistics.wilson_interval(int(robust.sum()), len(robust))
            point = (epsilon, float(robust.mean()), low, high, len(robust))
            for name, value in zip(columns, point, strict=True):
                columns[name].append(value)
        settings = attack_settings(self.attack, setting, label=self.label) | setting.vote_settings
        settings["interval"] = setting.interval("Wilson")
        settings = settings_of_radii(self.attack, settings)
        return Outcome(series=[Series(self._id(), "Accuracy against epsilon", columns, settings)])

    def _sizes(self, once: chunks.SearchResult | None) -> tuple[float, ...]:
        """Return the epsilons; for a minimal-norm attack without given ones, also up to the largest distance found."""
        sizes = curve_epsilons(self.attack, self.epsilons)
        if once is None or self.epsilons is not None or not np.any(once.distance[once.success] > 0):
            return sizes
        largest = float(once.distance[once.success].max())
        usual = [size for size in sizes if size < largest]
        points = np.unique([*np.linspace(0, largest, _MINIMAL_POINTS + 1), *usual])
        if self.attack.threat.norm == "l0":  # epsilon counts values
            points = np.unique(points.round())
        return tuple(map(float, points))

    def attacks(self, setting: Setting) -> tuple[tuple[Attack, np.ndarray], ...]:
        """Return the attack at every epsilon > 0, on the images of the curve."""
        if self.attack.minimal:
            return ((self.attack, setting.subset(self.limit)),)
        sizes = [epsilon for epsilon in curve_epsilons(self.attack, self.epsilons) if epsilon > 0]
        return tuple((self.attack.with_epsilon(epsilon), setting.subset(self.limit)) for epsilon in sizes)

    def ids(self) -> tuple[str, ...]:
        """Return the id of the series."""
        return (self._id(),)

    def _id(self) -> str:
        return CURVE.id("curve", id_settings(self.attack, self.label))
