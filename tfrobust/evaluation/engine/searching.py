"""Attacks on the images of a setting: stored chunk by chunk, shared between evaluators, or reduced to last iterates."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared import objectives, runner
from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.shared.engine import Engine, onto_grid
from tfrobust.common import configured, fingerprint
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import chunks
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.predictor import Predictor
from tfrobust.ops import randomness
from tfrobust.structs import AttackResult

# Progress of one member on one chunk, in steps of its task.
_PART = 1000


@dataclasses.dataclass(frozen=True)
class AttackTask:
    """An attack as the task of a progress callback; as text it is "pgd linf 0.2".

    Attributes:
        attack: single or an ensemble.
        images: number of examples.
        remaining: number of examples that are still correctly classified.
        number: place among the attacks of the evaluation, from 1; 0 for an attack that an evaluator runs besides.
        count: number of different attacks of the evaluation.
        member: name of the member of an ensemble that runs, or "".
        examples: what the images are called: "images", "clips" or "sentences".
    """

    attack: Attack
    images: int
    remaining: int
    number: int = 0
    count: int = 0
    member: str = ""
    examples: str = "images"

    def __str__(self) -> str:
        threat = self.attack.threat
        return f"{self.attack.name}{self.member and ': ' + self.member} {threat.budget}"


def attack_result(setting: Setting, attack: Attack, limit: int | None) -> tuple[np.ndarray, AttackResult]:
    """Return the result of an attack on at most `limit` images, computed once per setting.

    Returns:
        (positions int64 [m], result over these m images).

    Raises:
        ValueError: the attack needs gradients and the predictor has none.
    """
    positions = setting.subset(limit)
    name = f"attacked {_identity(attack)} {len(positions)}"
    return positions, setting.cached(name, lambda: run(setting, attack, positions))


def check_gradients(setting: Setting, attack: Attack) -> None:
    """Raise ValueError if the attack needs gradients or a surrogate and the predictor has none."""
    predictor = setting.predictor
    if any(member.searches_surrogate for member in (attack, *attack.members)):
        _check_surrogate(predictor)
    if not predictor.differentiable and attack.needs_gradient:
        raise InputError(
            f"{type(attack).__name__} needs input gradients, which {predictor.name} does not have; only "
            "attacks without gradients can evaluate it."
        )


def _check_surrogate(predictor: Predictor) -> None:
    surrogate = predictor.surrogate
    if surrogate is None:
        reason = predictor.no_gradient and f" ({predictor.no_gradient})"
        raise InputError(
            f"Transfer needs a surrogate of {predictor.name}{reason}: name one with --surrogate, such as the model "
            "that it was converted from."
        )
    if not surrogate.differentiable:
        raise InputError(
            f"The surrogate {surrogate.name} has no input gradients ({surrogate.no_gradient}); leave --surrogate out, "
            "or name another one."
        )


def run(setting: Setting, attack: Attack, positions: np.ndarray) -> AttackResult:
    """Run an attack on the images at `positions`, in memory; errors as in `attack_result`."""
    check_gradients(setting, attack)
    task = functools.partial(AttackTask, attack, len(positions), examples=setting.examples)
    report = setting.progress and (lambda done, total, rows_left: setting.progress(task(rows_left), done, total))
    return runner.compile_attack(attack, setting.predictor.logits, **_options(setting)).run(
        setting.images[positions],
        setting.labels[positions],
        seed=setting.seed,
        batch_size=setting.batch_size,
        index=positions,
        progress=report,
    )


def search(
    setting: Setting,
    attack: Attack,
    positions: np.ndarray,
    *,
    seconds: float | None = None,
    shard: chunks.Shard = chunks.Shard(1, 1),  # noqa: B008 - immutable
) -> chunks.SearchResult:
    """Run an attack chunk by chunk; chunks in the setting's store are not searched again.

    Random draws depend on each image's position, so the chunks do not affect the results (up to rounding in kernels).

    Args:
        setting: predictor, images, labels, seed, chunk size and store.
        attack: the attack, single or ensemble.
        positions: int64 [m], m >= 1, positions of the images.
        seconds: wall time after which images are only predicted, not searched; None: no limit.
        shard: the shard whose chunks are searched; by default all.

    Returns:
        Results in the order of `positions` (those of the shard).

    Raises:
        ValueError: as `attack_result`.
    """
    check_gradients(setting, attack)
    own_chunks = shard.select(chunks.split(positions, setting.chunk_size))
    deadline = None if seconds is None else time.monotonic() + seconds
    watched = _Watched(setting, attack, sum(map(len, own_chunks)), len(own_chunks))
    results = []
    for number, chunk in enumerate(own_chunks):

        def run_member(member, remaining, number=number, chunk=chunk):
            member_attack = (attack.members or (attack,))[member]
            watched.begin(number, member, member_attack.name if attack.members else "", len(remaining))
            result = _chunk_result(setting, member_attack, chunk[remaining], deadline, watched.report and watched)
            watched.end(int(result.success.sum()))
            return result

        if attack.members:
            # Members are stored separately: the images that remain before a member follow from the stored results.
            results.append(chunks.SearchResult(*runner.cascade(len(attack.members), len(chunk), run_member)))
        else:
            results.append(run_member(0, np.arange(len(chunk))))
    watched.finish()
    return _joined_results(results)


def seconds_until(deadline: float | None) -> float | None:
    """Return the seconds until a time of `time.monotonic`, 0 if it has passed; None without a deadline."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


class _Watched:
    """The progress of a search over chunks and members of an ensemble, as one task."""

    def __init__(self, setting: Setting, attack: Attack, images: int, count: int):
        identities = list(dict.fromkeys(_identity(planned) for planned in setting.evaluation_attacks))
        number = identities.index(_identity(attack)) + 1 if _identity(attack) in identities else 0
        self._task = AttackTask(attack, images, images, number, len(identities), examples=setting.examples)
        self.report, self._members = setting.progress, len(attack.members or (attack,))
        self._total = _PART * self._members * count

    def begin(self, chunk: int, member: int, name: str, size: int) -> None:
        """Note that a member begins with the `size` images of a chunk that remain before it."""
        self._task = dataclasses.replace(self._task, member=name)
        self._before, self._size = _PART * (chunk * self._members + member), size

    def __call__(self, done: int, total: int, rows_left: int) -> None:
        """Report on the member that runs; arguments as in `Engine.run`."""
        share = min(_PART * done // total, _PART - 1)  # only `finish` reaches the end
        remaining = self._task.remaining - self._size + rows_left
        self.report(dataclasses.replace(self._task, remaining=remaining), self._before + share, self._total)

    def end(self, succeeded: int) -> None:
        """Note that the member has ended and succeeded on that many images."""
        self._task = dataclasses.replace(self._task, remaining=self._task.remaining - succeeded)

    def finish(self) -> None:
        """Report the end."""
        if self.report is not None and self._total:
            self.report(dataclasses.replace(self._task, member=""), self._total, self._total)


def search_shard(setting: Setting, searches: Iterable[tuple[Attack, np.ndarray]], shard: chunks.Shard) -> int:
    """Search and store a shard's chunks of some (attack, positions of the images); return the number of its images."""
    return sum(len(search(setting, *arguments, shard=shard).success) for arguments in searches)


def _chunk_result(
    setting: Setting, attack: Attack, chunk: np.ndarray, deadline: float | None, progress: Callable | None
) -> chunks.SearchResult:
    """Return a single attack's results on a chunk: read if stored, else searched and stored."""
    # Without a store, chunks are kept in memory: a curve counts the distances of a search that was already made.
    memory = setting.cached(f"finished {_identity(attack)}", dict) if setting.store is None else {}
    stored = setting.store.read(attack, chunk) if setting.store else memory.get(chunk.tobytes())
    if stored is not None:
        return stored
    store = setting.store
    resumed: dict[str, Any] = {}
    if store is not None:
        resumed = {
            "begun": store.read_part(attack, chunk),
            "keep": functools.partial(store.write_part, attack, chunk),
        }
    result = _engine(setting, attack).run(
        setting.images[chunk],
        setting.labels[chunk],
        seed=setting.seed,
        batch_size=setting.batch_size,
        index=chunk,
        progress=progress,
        seconds=seconds_until(deadline),
        **resumed,
    )
    stored = chunks.SearchResult(result.success, result.distance, bool(result.complete), passes=result.passes)
    if store is not None:
        store.write(attack, chunk, stored)
    elif result.complete:
        memory[chunk.tobytes()] = stored
    return stored


def _engine(setting: Setting, attack: Attack) -> Engine:
    """Return the attack compiled for the setting's predictor, once: an ensemble uses it for every chunk."""
    return setting.cached(
        f"engine {_identity(attack)}", lambda: Engine(attack, setting.predictor.logits, **_options(setting))
    )


def _options(setting: Setting) -> dict:
    """Return the options of `Engine` for the setting's predictor."""
    surrogate = setting.predictor.surrogate
    return {
        "known_logits": True,
        "surrogate": surrogate and surrogate.logits,
        "grid": setting.predictor.grid,
        "votes": tuple(setting.judged_by),
    }


def _joined_results(results: list[chunks.SearchResult]) -> chunks.SearchResult:
    if not results:
        return chunks.SearchResult(np.zeros(0, bool), np.zeros(0, np.float32))
    success, distance = (
        np.concatenate([getattr(result, name) for result in results]) for name in ("success", "distance")
    )
    complete = all(result.complete for result in results)
    member, passes = (
        None if any(column is None for column in columns) else np.concatenate(columns)
        for columns in zip(*((result.member, result.passes) for result in results), strict=True)
    )
    return chunks.SearchResult(success, distance, complete, member, passes)


class LastPoints(NamedTuple):
    """Last points of an attack on some images.

    Attributes:
        positions: int64 [m].
        images: float32 [m, h, w, c].
        logits: float32 [m, k].
    """

    positions: np.ndarray
    images: np.ndarray
    logits: np.ndarray


def last_points(setting: Setting, attack: Attack, limit: int | None) -> LastPoints:
    """Return `perturbed` on at most `limit` images with their logits, computed once per setting."""
    positions = setting.subset(limit)

    def make():
        images = perturbed(setting, attack, positions)
        return LastPoints(positions, images, setting.predict(images, "predictions under attack"))

    return setting.cached(f"last points {_identity(attack)} {len(positions)}", make)


def check_last_points(owner: str, attack: Attack) -> None:
    """Raise ValueError for an attack without a last point of every image in one threat model, even where it fails."""
    if len(getattr(attack, "threats", ())) > 1:
        raise InputError(
            f"{owner}.attack is {type(attack).__name__} in several threat models, and a number belongs to one; use an "
            "attack in one of them, such as PGD."
        )
    if attack.members or attack.minimal or attack.needs_answers or not attack.needs_gradient:
        raise InputError(
            f"{owner}.attack is {type(attack).__name__}, which has no last point of every image; use one "
            "that maximizes the loss, such as PGD."
        )


def perturbed(setting: Setting, attack: Attack, positions: np.ndarray) -> np.ndarray:
    """Return the attack's last iterate for every image, also where the prediction was wrong throughout.

    This is the transformation T(x) of Bui et al. 2021, section 2. `run_attack` instead stops at the first success and
    does not attack misclassified images, which is right for accuracies, but not for distances between features.

    Args:
        setting: predictor, images, labels and seed.
        attack: an attack with `perturb`; it maximizes the cross-entropy.
        positions: int64 [m], positions of the images.

    Returns:
        float32 [m, h, w, c].
    """
    size = min(setting.batch_size, len(positions))
    function = setting.cached(
        f"perturb {_identity(attack)} {size}",
        lambda: _compiled_perturb(attack, setting.predictor.logits, (size, *setting.images.shape[1:])),
    )
    key = randomness.make_key(setting.seed, "evaluation", "perturb")
    report = setting.reporter(f"adversaries {attack.threat.budget}")
    batches = []
    for start in range(0, len(positions), size):
        rows = positions[np.minimum(np.arange(start, start + size), len(positions) - 1)]
        answer = function(
            tf.constant(setting.images[rows]),
            tf.constant(setting.labels[rows]),
            key,
            tf.constant(rows, tf.int64),
        )
        if setting.predictor.grid:
            answer = onto_grid(setting.images[rows], answer, setting.predictor.grid, attack.threat.bounds)
        batches.append(answer.numpy()[: len(positions) - start])
        if report is not None:
            report(min(start + size, len(positions)), len(positions))
    return np.concatenate(batches)


def _compiled_perturb(attack: Attack, predict: Callable, shape: tuple[int, ...]) -> Callable:
    def perturb(images, labels, key, index):
        objective = objectives.cross_entropy(objectives.ranged(predict), labels)
        return attack.perturb(objective, images, randomness.example_keys(key, index))

    # Traced here, once: one function per epsilon would look like needless retracing to TensorFlow.
    return tf.function(perturb, autograph=False).get_concrete_function(
        tf.TensorSpec(shape),
        tf.TensorSpec(shape[:1], tf.int32),
        tf.TensorSpec([2], tf.int32),
        tf.TensorSpec(shape[:1], tf.int64),
    )


def _identity(attack: Attack) -> str:
    return fingerprint.json_sha256(configured.identity(attack))
