"""Accuracy under attack: at one size, and as a curve."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfrobust.attacks import objectives, runner
from tfrobust.attacks.base import Attack
from tfrobust.evaluation import accuracy, chunks, statistics
from tfrobust.evaluation.base import Evaluator, Outcome, Setting
from tfrobust.ops import configured, fingerprint, randomness
from tfrobust.structs import AttackResult, Measurement, Series

# Sizes of a curve, as multiples of the attack's own epsilon.
CURVE_FACTORS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)


def attack_label(attack: Attack, label: str | None = None) -> str:
    """How ids call an attack: the label given, else its own `name`."""
    return label or attack.name


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
        raise ValueError(f"{owner}.epsilons is {tuple(epsilons)}; it must hold distinct numbers >= 0.")


def attack_settings(attack: Attack, setting: Setting, complete: bool = True) -> dict:
    """What a report says of an attack: threat, effort, objective, seed; `bound` where it did not finish."""
    threat = attack.threat
    settings = {"attack": attack.name, "norm": threat.norm, "epsilon": threat.epsilon}
    for name in ("steps", "step_size", "restarts", "random_start", "include_true_class"):
        if hasattr(attack, name):
            settings[name] = getattr(attack, name)
    if settings.get("step_size", 0) is None:
        # The attack's own default, resolved: a reader of the report should not have to know it.
        settings["step_size"] = 2.5 * threat.epsilon / attack.steps
    settings["objective"] = getattr(attack, "objective", "cross_entropy")
    settings |= {"seed": setting.seed, "batch_norm": "inference"}
    if not complete:
        settings["bound"] = "upper"
    return settings


def attacked(setting: Setting, attack: Attack, limit: int | None) -> tuple[np.ndarray, AttackResult]:
    """The result of an attack on at most `limit` images, computed once per setting.

    Returns:
        (positions int64 [m], result over these m images).

    Raises:
        ValueError: the attack needs gradients and the predictor has none.
    """
    positions = setting.subset(limit)
    name = f"attacked {_identity(attack)} {len(positions)}"
    return positions, setting.keep(name, lambda: run(setting, attack, positions))


def check_gradients(setting: Setting, attack: Attack) -> None:
    """Raises ValueError if the attack needs gradients and the predictor has none."""
    predictor = setting.predictor
    if not predictor.differentiable and getattr(attack, "needs_gradient", True):
        raise ValueError(
            f"{type(attack).__name__} needs input gradients, which {predictor.name} does not give; only "
            "attacks that need none can judge it."
        )


def run(setting: Setting, attack: Attack, positions: np.ndarray) -> AttackResult:
    """Runs an attack on the images at `positions`, in memory; Raises as `attacked`."""
    check_gradients(setting, attack)
    report = setting.reporter(_task(attack))
    return runner.run_attack(
        attack,
        setting.predictor.logits,
        setting.images[positions],
        setting.labels[positions],
        seed=setting.seed,
        batch_size=setting.batch_size,
        index=positions,
        progress=None if report is None else (lambda done, total, standing: report(done, total)),
    )


def search(
    setting: Setting,
    attack: Attack,
    positions: np.ndarray,
    *,
    seconds: float | None = None,
    shard: chunks.Shard = chunks.Shard(1, 1),  # noqa: B008 - immutable
) -> chunks.Found:
    """Whom an attack brings down, chunk by chunk; a chunk that the setting's store holds is not searched again.

    Draws follow from each image's position, so that the chunks make no difference (up to how kernels round).

    Args:
        setting: gives predictor, images, labels, seed, chunk size and store.
        attack: who attacks.
        positions: int64 [m], m >= 1, which images.
        seconds: wall time after which images are only predicted, not searched; None: no end.
        shard: only this one's share of the chunks.

    Returns:
        Results in the order of `positions` (of the shard's own ones).

    Raises:
        ValueError: as `attacked`.
    """
    check_gradients(setting, attack)
    own = shard.own(chunks.split(positions, setting.chunk_size))
    found = [setting.store and setting.store.read(attack, chunk) for chunk in own]
    missing = [number for number, kept in enumerate(found) if kept is None]
    engine = runner.Engine(attack, setting.predictor.logits) if missing else None
    deadline = None if seconds is None else time.monotonic() + seconds
    done, total = 0, sum(len(own[number]) for number in missing)
    for number in missing:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        result = engine.run(
            setting.images[own[number]],
            setting.labels[own[number]],
            seed=setting.seed,
            batch_size=setting.batch_size,
            index=own[number],
            progress=_progress(setting.reporter(_task(attack)), done, len(own[number]), total),
            seconds=left,
        )
        found[number] = chunks.Found(result.success, result.distance, bool(result.complete))
        if setting.store is not None:
            setting.store.write(attack, own[number], found[number])
        done += len(own[number])
    joined = [np.concatenate(column) for column in zip(*(one[:2] for one in found), strict=True)]
    joined = joined or [np.zeros(0, bool), np.zeros(0, np.float32)]
    return chunks.Found(*joined, all(one.complete for one in found))


def _progress(report: Callable | None, before: int, size: int, total: int) -> Callable | None:
    """A chunk's progress as that of everything that is left to search, so that the time left is right."""
    if report is None:
        return None
    # A chunk's own total is its size times the steps of one image.
    return lambda done, steps, standing: report(done + steps // size * before, steps // size * total)


def _task(attack: Attack) -> str:
    return f"{attack.name} {attack.threat.norm} {attack.threat.epsilon:.6g}"


def perturbed(setting: Setting, attack: Attack, positions: np.ndarray) -> np.ndarray:
    """The attack's last iterate for every image, also where the prediction was wrong all along.

    This is the transformation T(x) of paper 003, section 2: `run_attack` stops at the first success and
    leaves misclassified images alone: right for accuracies, wrong for distances between features.

    Args:
        setting: gives predictor, images, labels and seed.
        attack: one with a `perturb` face that climbs the cross-entropy.
        positions: int64 [m], which images.

    Returns:
        float32 [m, h, w, c].
    """
    size = min(setting.batch_size, len(positions))
    function = setting.keep(
        f"perturb {_identity(attack)} {size}",
        lambda: _compiled_perturb(attack, setting.predictor.logits, (size, *setting.images.shape[1:])),
    )
    key = randomness.make_key(setting.seed, "evaluation", "perturb")
    report = setting.reporter(f"adversaries {attack.threat.norm} {attack.threat.epsilon:.6g}")
    found = []
    for start in range(0, len(positions), size):
        rows = positions[np.minimum(np.arange(start, start + size), len(positions) - 1)]
        answer = function(
            tf.constant(setting.images[rows]),
            tf.constant(setting.labels[rows]),
            key,
            tf.constant(rows, tf.int64),
        )
        found.append(answer.numpy()[: len(positions) - start])
        if report is not None:
            report(min(start + size, len(positions)), len(positions))
    return np.concatenate(found)


def _compiled_perturb(attack: Attack, predict: Callable, shape: tuple[int, ...]) -> Callable:
    def perturb(images, labels, key, index):
        objective = objectives.cross_entropy(predict, labels)
        return attack.perturb(objective, images, randomness.example_keys(key, index))

    # Traced here and now, once: one function per epsilon would look like needless retracing to TensorFlow.
    return tf.function(perturb, autograph=False).get_concrete_function(
        tf.TensorSpec(shape),
        tf.TensorSpec(shape[:1], tf.int32),
        tf.TensorSpec([2], tf.int32),
        tf.TensorSpec(shape[:1], tf.int64),
    )


def _identity(attack: Attack) -> str:
    return fingerprint.json_sha256(configured.serialize(attack))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttackAccuracy(Evaluator):
    """`attack.<label>_<norm>_<epsilon>.accuracy` and `.drop`: what an attack leaves of the accuracy.

    drop = (clean - robust) / clean over the same images (paper 004, eq. 3).

    Attributes:
        attack: who attacks, with its own threat.
        label: what tells it apart in the ids; None: the attack's own name.
        seconds: wall time after which the search ends. Whoever still stands then counts as robust, and the
            settings say that the accuracy is an upper bound; run again, it goes on with the chunks that are missing.
    """

    attack: Attack
    label: str | None = None
    seconds: float | None = None

    def __post_init__(self):
        if self.seconds is not None and self.seconds <= 0:
            raise ValueError(f"AttackAccuracy.seconds is {self.seconds}; a time budget is more than 0, or None.")

    def run(self, setting: Setting) -> Outcome:
        ((attack, positions),) = self.attacks(setting)
        result = search(setting, attack, positions, seconds=self.seconds)
        robust = ~result.success
        settings = attack_settings(self.attack, setting, result.complete)
        if not result.complete:
            settings["seconds"] = self.seconds
        name = attack_id(self.attack, self.label)
        drop, low, high = statistics.relative_drop(setting.clean_correct, robust)
        settings_of_drop = {**settings, "interval": "95 % over images, Wilson among the rightly classified"}
        if not result.complete:
            settings_of_drop["bound"] = "lower"
        measured = Measurement(f"{name}.drop", drop, "fraction of clean", len(robust), low, high, settings_of_drop)
        return Outcome([accuracy.accuracy(f"{name}.accuracy", robust, settings), measured])

    def attacks(self, setting: Setting) -> tuple[tuple[Attack, np.ndarray], ...]:
        return ((self.attack, np.arange(len(setting.images))),)

    def ids(self) -> tuple[str, ...]:
        name = attack_id(self.attack, self.label)
        return (f"{name}.accuracy", f"{name}.drop")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracyCurve(Evaluator):
    """The series `attack.<label>_<norm>.curve`: accuracy against epsilon, every point attacked on its own.

    Points are not carried from one size to the next: that a larger budget never leaves more accuracy is then
    evidence (the doctor looks at it), not a construction.

    Attributes:
        attack: attacks at its own epsilon times 0, 1/4, 1/2, 3/4, 1, 3/2, 2, or at `epsilons`.
        epsilons: sizes >= 0, 0 being the clean accuracy; None: the multiples above.
        label: what tells it apart in the id; None: the attack's own name.
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
        for epsilon in curve_epsilons(self.attack, self.epsilons):
            if epsilon == 0:
                robust = setting.clean_correct[positions]
            else:
                robust = ~search(setting, self.attack.with_epsilon(epsilon), positions).success
            low, high = statistics.wilson_interval(int(robust.sum()), len(robust))
            point = (epsilon, float(robust.mean()), low, high, len(robust))
            for name, value in zip(columns, point, strict=True):
                columns[name].append(value)
        return Outcome(series=[Series(self._id(), "Accuracy against epsilon", columns)])

    def attacks(self, setting: Setting) -> tuple[tuple[Attack, np.ndarray], ...]:
        sizes = [epsilon for epsilon in curve_epsilons(self.attack, self.epsilons) if epsilon > 0]
        return tuple((self.attack.with_epsilon(epsilon), setting.subset(self.limit)) for epsilon in sizes)

    def ids(self) -> tuple[str, ...]:
        return (self._id(),)

    def _id(self) -> str:
        return f"attack.{attack_label(self.attack, self.label)}_{self.attack.threat.norm}.curve"


def robust_at(setting: Setting, attack: Attack, epsilon: float, limit: int | None) -> np.ndarray:
    """Which of at most `limit` images stay rightly classified; size 0 is the clean prediction; bool [m]."""
    if epsilon == 0:
        return setting.clean_correct[setting.subset(limit)]
    _, result = attacked(setting, attack.with_epsilon(epsilon), limit)
    return ~np.asarray(result.success)
