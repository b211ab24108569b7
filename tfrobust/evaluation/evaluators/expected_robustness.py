"""Expected robustness: the area under accuracy against epsilon, as one number."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfrobust.attacks.shared.attack import Attack
from tfrobust.evaluation.engine import statistics
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.engine.searching import search
from tfrobust.evaluation.evaluators.adversarial import (
    attack_settings,
    check_epsilons,
    curve_epsilons,
    id_settings,
    settings_of_radii,
    succeeded,
)
from tfrobust.report.catalog.expected_robustness import EXPECTED
from tfrobust.structs import Measurement


def trapezoid_weights(radii: np.ndarray) -> np.ndarray:
    """Return the weights by which values at some radii give their mean over all radii between, by the trapezoidal rule.

    Args:
        radii: float [m] in ascending order, m >= 2.

    Returns:
        float64 [m], sum 1: half the distance of both neighbors, divided by the distance of the ends.
    """
    gaps = np.diff(np.asarray(radii, np.float64))
    return (np.append(gaps, 0.0) + np.append(0.0, gaps)) / (2 * gaps.sum())


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExpectedRobustness(Evaluator):
    """Expected robustness, `expected_robustness.<label>_<norm>_<epsilon>.accuracy`: the mean accuracy over radii.

        1 / epsilon * integral from 0 to epsilon of accuracy(r) dr

    It is the area under the curve of `AccuracyCurve` up to the attack's own epsilon, divided by epsilon: the accuracy
    expected against an attacker whose radius is uniformly distributed. The trapezoidal rule integrates between the
    curve's radii. A minimal-norm attack needs no rule: an image with the distance d of the nearest misclassified point
    found counts min(d, epsilon) / epsilon. Every point is an upper bound, as the accuracy under any attack, and so is
    the mean. The interval is over images, each of which counts the share of the radii at which it is correct.

    Attributes:
        attack: the attack; it runs at its own epsilon times 1/4, 1/2, 3/4, 1, or at `epsilons`.
        epsilons: radii of the curve. Those above the attack's own are left out; 0 and its own are added. None: the
            multiples above.
        label: the attack's part of the id, in which "{steps}" is replaced by its steps; None: the attack's own name.
        limit: maximum number of images, drawn by the seed; None: all. With that of `AccuracyCurve`, both share their
            searches.
    """

    attack: Attack
    epsilons: tuple[float, ...] | None = None
    label: str | None = None
    limit: int | None = 1000

    def __post_init__(self):
        check_epsilons("ExpectedRobustness", self.epsilons)

    def run(self, setting: Setting) -> Outcome:
        """Attack at every radius and average."""
        positions = setting.subset(self.limit)
        settings = settings_of_radii(self.attack, attack_settings(self.attack, setting, label=self.label))
        settings |= {"epsilon": self.attack.threat.epsilon, **setting.vote_settings}
        if self.attack.minimal:
            shares, settings["radii"] = self._by_distance(setting, positions), "all"
        else:
            shares, settings["radii"] = self._by_radius(setting, positions), list(self._radii)
        settings["interval"] = setting.interval(statistics.share_kind(setting.example))
        value, (low, high) = float(shares.mean()), statistics.share_interval(shares)
        (identity,) = self.ids()
        return Outcome([Measurement(identity, value, "fraction", len(shares), low, high, settings)])

    def attacks(self, setting: Setting) -> tuple[tuple[Attack, np.ndarray], ...]:
        """Return the attack at every radius above 0, on the images of the curve."""
        positions = setting.subset(self.limit)
        if self.attack.minimal:
            return ((self.attack, positions),)
        return tuple((self.attack.with_epsilon(radius), positions) for radius in self._radii[1:])

    def ids(self) -> tuple[str, ...]:
        """Return the id of the measurement."""
        return (EXPECTED.id("accuracy", id_settings(self.attack, self.label)),)

    @property
    def _radii(self) -> tuple[float, ...]:
        largest = float(self.attack.threat.epsilon)
        inner = [radius for radius in curve_epsilons(self.attack, self.epsilons) if 0 < radius < largest]
        return (0.0, *inner, largest)

    def _by_radius(self, setting: Setting, positions: np.ndarray) -> np.ndarray:
        """Return, for each image, the share of the radii at which it is correct, by the trapezoidal rule."""
        correct = [setting.clean_correct[positions]]
        for attack, _ in self.attacks(setting):
            correct.append(~succeeded(attack, search(setting, attack, positions)))
        return trapezoid_weights(np.array(self._radii)) @ np.array(correct)

    def _by_distance(self, setting: Setting, positions: np.ndarray) -> np.ndarray:
        """Return, for each image, the share of the radii below its distance from a misclassified point."""
        result, largest = search(setting, self.attack, positions), float(self.attack.threat.epsilon)
        distances = np.where(result.success, result.distance, np.inf)
        return np.minimum(distances, largest) / largest
