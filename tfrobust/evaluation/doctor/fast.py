"""Accuracy under a short ensemble, whose attack without gradients sees few images unless gradients are masked."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfrobust.attacks.ensemble import Ensemble
from tfrobust.attacks.malt import linear_distances
from tfrobust.attacks.shared.attack import Attack
from tfrobust.common import fingerprint
from tfrobust.errors import InputError
from tfrobust.evaluation.doctor import model as doctor_model
from tfrobust.evaluation.doctor.limits import verdict
from tfrobust.evaluation.engine import chunks
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.engine.searching import search, seconds_until
from tfrobust.evaluation.evaluators.adversarial import AttackAccuracy
from tfrobust.structs import Finding

# Classes whose distances are compared, those with the largest logits.
_CANDIDATES = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class FastAccuracy(AttackAccuracy):
    """Accuracy under an ensemble whose last member, which needs no gradients, sees few images unless they are masked.

    The measurements are those of `AttackAccuracy`. The last member attacks the images that are likeliest to be
    misclassified: of those that remain, the share `nearest` with the smallest distance to another class under a linear
    model at the unmodified image, as `MALT` measures it. It attacks all remaining images if it succeeds on many of
    these, or if the doctor's checks `gradients`, `ascent`, `deterministic` or `batch_independent` do not pass. The
    finding `masked_gradients` says which, and why. `seconds` limits the attacks together; if they end the attacks with
    gradients, the last member's successes say nothing about masked gradients, and the finding says so.

    It is an upper bound of the accuracy under AutoAttack, which has more attacks; published numbers are AutoAttack's.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> threat = robust.attacks.ThreatModel(epsilon=0.1)
        >>> members = (robust.attacks.PMA(threat, steps=10), robust.attacks.Square(threat, steps=20))
        >>> evaluator = robust.evaluators.FastAccuracy(attack=robust.attacks.Ensemble(members), label="fast")
        >>> images = np.random.default_rng(0).random((20, 8, 8, 1), "float32")
        >>> predict = lambda images: tf.reduce_mean(images, axis=[1, 2]) * [1.0, -1.0]
        >>> outcome = robust.evaluate(predict, images, np.zeros(20, int), epsilon=0.1, evaluators=(evaluator,))
        >>> outcome["attack.fast_linf_0.1.accuracy"].value
        1.0

    Attributes:
        attack: an ensemble, whose last member needs no gradients.
        nearest: share of the remaining images that the last member attacks in any case, in (0, 1].
    """

    nearest: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        if not self.attack.members or self.attack.members[-1].needs_gradient:
            raise InputError(
                f"FastAccuracy.attack is {self.attack.name}; it must be an Ensemble whose last member needs no "
                "gradients, such as Square."
            )
        if not 0 < self.nearest <= 1:
            raise InputError(f"FastAccuracy.nearest is {self.nearest!r}; it is a share above 0, at most 1.")

    def run(self, setting: Setting) -> Outcome:
        """Run the checks and the attacks, and measure the accuracy they leave."""
        outcome = super().run(setting)
        ((_, positions),) = self.searches(setting)
        attacked = self._cached(setting, positions)
        outcome.findings.append(attacked.finding)
        for measured in outcome.measurements:
            if "ensemble" not in measured.settings:
                measured.settings["black_box"] = attacked.extent
        return outcome

    def attacks(self, setting: Setting) -> tuple[tuple[Attack, np.ndarray], ...]:
        """Return the members with gradients, on the images that they attack; see `AttackAccuracy`."""
        ((_, positions),) = super().attacks(setting)
        # A cost estimate, which has no model, counts the largest cost.
        return ((self._climbing if hasattr(setting, "predictor") else self.attack, positions),)

    def without_gradients(self) -> tuple[Evaluator, ...]:
        """Return the accuracy under the last member alone; see `Evaluator`."""
        settings = {name: getattr(self, name) for name in ("seconds", "limit", "first")}
        return (AttackAccuracy(attack=self.attack.members[-1], **settings),)

    @property
    def _climbing(self) -> Attack:
        first, *further = self.attack.members[:-1]
        return Ensemble((first, *further)) if further else first

    def _search(self, setting: Setting, positions: np.ndarray) -> chunks.SearchResult:
        return self._cached(setting, positions).result

    def _cached(self, setting: Setting, positions: np.ndarray) -> _Attacked:
        """Return the result of all attacks, once for each setting."""
        name = f"fast {self.get_config()} {fingerprint.weights_sha256([positions])}"
        return setting.cached(name, lambda: self._run_attacks(setting, positions))

    def _run_attacks(self, setting: Setting, positions: np.ndarray) -> _Attacked:
        deadline = None if self.seconds is None else time.monotonic() + self.seconds
        result = self._climbed(setting, positions, deadline)
        remaining = positions[~result.success]
        nearest = self._nearest(setting, remaining)
        climbed, result = result, self._joined(setting, positions, result, nearest, deadline)
        hit = int(result.success.sum() - climbed.success.sum())
        finding = self._finding(setting, hit, len(nearest), len(remaining), (climbed.complete, result.complete))
        if finding.verdict == "pass" or not result.complete:
            return _Attacked(result, finding, f"nearest {self.nearest:.3g} of the remaining")
        farther = np.setdiff1d(remaining, nearest)
        return _Attacked(self._joined(setting, positions, result, farther, deadline), finding, "all remaining")

    def _climbed(self, setting: Setting, positions: np.ndarray, deadline: float | None) -> chunks.SearchResult:
        """Return the result of the members with gradients, with a column of passes for the last member."""
        result = search(setting, self._climbing, positions, seconds=seconds_until(deadline))
        members = len(self.attack.members)
        passes = np.zeros([len(positions), members, 2])
        if len(positions):
            passes[:, :-1] = np.nan if result.passes is None else result.passes.reshape(len(positions), -1, 2)
        # Those of `_nearest`, on the remaining images.
        passes[~result.success, -1] = 1, min(_CANDIDATES, setting.predictor.class_count - 1)
        member = np.where(result.success & (result.distance > 0), 0, -1) if result.member is None else result.member
        return result._replace(member=member, passes=passes)

    def _joined(
        self,
        setting: Setting,
        positions: np.ndarray,
        result: chunks.SearchResult,
        part: np.ndarray,
        deadline: float | None,
    ) -> chunks.SearchResult:
        """Return a result with that of the last member on some of the remaining images, at the positions `part`."""
        if not len(part):
            return result
        blind = search(setting, self.attack.members[-1], part, seconds=seconds_until(deadline))
        rows = np.searchsorted(positions, part)
        columns = {name: getattr(result, name).copy() for name in ("success", "distance", "member", "passes")}
        columns["success"][rows], columns["distance"][rows] = blind.success, blind.distance
        columns["member"][rows[blind.success]] = len(self.attack.members) - 1
        columns["passes"][rows, -1] += np.nan if blind.passes is None else blind.passes
        return result._replace(complete=result.complete and blind.complete, **columns)

    def _nearest(self, setting: Setting, remaining: np.ndarray) -> np.ndarray:
        """Return the positions of the remaining images that are nearest to another class, ascending."""
        if not len(remaining):
            return remaining
        predict, norm = setting.predictor.logits, self.attack.threat.norm

        def nearest_class(images, labels):
            return tf.reduce_min(linear_distances(predict, images, labels, norm, _CANDIDATES)[1], axis=1)

        # TensorFlow counts traces by code object, and would warn of those of several models; a partial has none.
        compiled = tf.function(functools.partial(nearest_class), autograph=False, reduce_retracing=True)
        chunk = setting.batch_size
        parts = [remaining[start : start + chunk] for start in range(0, len(remaining), chunk)]
        distances = np.concatenate([compiled(setting.images[rows], setting.labels[rows]).numpy() for rows in parts])
        count = int(np.ceil(self.nearest * len(remaining)))
        return np.sort(remaining[np.argsort(distances, kind="stable")[:count]])

    def _finding(
        self, setting: Setting, hit: int, nearest: int, remaining: int, complete: tuple[bool, bool]
    ) -> Finding:
        """Return the finding on what the last member attacks; it passes if that is the nearest images alone.

        Args:
            setting: the setting.
            hit: number of the nearest images on which the last member succeeds.
            nearest: number of the nearest images.
            remaining: number of images that the attacks with gradients leave.
            complete: True where the time was sufficient, for these attacks and for all attacks so far.
        """
        checks = (
            doctor_model.check_gradients(setting),
            doctor_model.check_ascent(setting, self.attack.threat),
            doctor_model.check_deterministic(setting),
            doctor_model.check_batch_independent(setting),
        )
        failed = [finding.check for finding in checks if finding is not None and finding.verdict != "pass"]
        name = self.attack.members[-1].name.capitalize()
        evidence = (
            f"{name} succeeds on {hit} of the {nearest} {setting.examples} nearest to another class, of {remaining} "
            "that attacks with gradients leave"
        )
        few = verdict("masked_gradients", hit / max(1, nearest), hit) == "pass"
        is_unknown = not complete[0] or (few and not complete[1])
        if is_unknown:
            evidence = f"{self.seconds:g} s ended the search before successes of {name} could reveal masked gradients"
        if failed:
            evidence += f", and checks do not pass: {', '.join(failed)}"
        if few and not failed and not is_unknown:
            return Finding("masked_gradients", "pass", f"{evidence}: it left out the others.")
        if is_unknown:
            remedy = "Give it more time, or run again to resume; the accuracy is an upper bound."
            return Finding("masked_gradients", "warn", f"{evidence}.", remedy)
        remedy = "Read the accuracy as an upper bound, and run gin/eval/autoattack.gin."
        extent = ": it ran on all" if complete[1] else ""
        return Finding("masked_gradients", "warn", f"{evidence}{extent}.", remedy)


class _Attacked(NamedTuple):
    """Keep the results of the attacks and what the last one attacked.

    Attributes:
        result: of all attacks.
        finding: on what the last one attacked.
        extent: the same for the settings.
    """

    result: chunks.SearchResult
    finding: Finding
    extent: str
