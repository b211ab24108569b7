"""Engine: an attack compiled for a model, which runs over a data set in one refilled batch.

An example leaves the batch when the attack succeeds or a round ends, and the next waiting example takes its slot. When
none waits any more, the batch shrinks. The graphs are traced once, for any batch size. An example's outcome follows
from its own key, not from the other examples in the batch.

    verify clean inputs                 those that are classified correctly wait for their first round
    while an example waits, has a slot, or is pending:
        _fill                           attack.start: a state for each free slot
        _stage                          attack.advance: a tenth of a round, in calls of a few seconds
        _harvest                        attack.candidate: verify claims of success at once;
                                        attack.refuse: if one fails, the round continues;
                                        at the end of a round the example leaves, and its candidate is pending
        _settle                         verify pending candidates, a batch at a time

                 _fill             _harvest             _settle
      waiting ----------> slots ----------------> pending ------> success, or no round left
         ^                  |  (nothing to verify)   |
         +------------------+------------------------+
                    remains, and has another round
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared import checks
from tfrobust.attacks.shared.goal import Goal
from tfrobust.attacks.shared.modes import as_predict
from tfrobust.attacks.shared.passes import PassCounter
from tfrobust.common.settings import as_plain
from tfrobust.errors import InputError
from tfrobust.ops import randomness
from tfrobust.ops.gradients import straight_through
from tfrobust.ops.shapes import select
from tfrobust.structs import AttackResult

if TYPE_CHECKING:
    from tfrobust.attacks.shared.attack import Attack

# Half of the 5 s within which progress is shown and signals are handled: a call may be slower than the last.
_CALL_SECONDS = 2.5
# Slots are emptied and filled after a tenth of a round. Fewer steps would make the copies expensive; more steps would
# waste passes on examples that are already misclassified.
_STAGES = 10
_SHORTEST_STAGE, _LONGEST_STAGE = 5, 50
# Number of batch sizes while the batch shrinks: kernels are prepared anew for every shape.
_SIZES = 8
# Points tried beyond a minimal-norm attack's candidate, and how far the first lies beyond it, in units of its distance.
_FARTHER, _FIRST_FARTHER = 15, 0.02
# An interrupted run loses at most the rounds of so many seconds, and those of the batch.
KEEP_SECONDS = 60.0


def stage_steps(steps: int) -> int:
    """Return the steps between two looks at the batch, for rounds of so many steps."""
    return min(max(_SHORTEST_STAGE, -(-steps // _STAGES)), _LONGEST_STAGE)


class Begun(NamedTuple):
    """The intermediate results of a run, from which another run continues.

    Attributes:
        success: bool [n].
        distance: float32 [n].
        rounds: int64 [n], rounds that each example has finished.
        passes: float64 [n, 2], forward and backward passes that these rounds took; NaN if unknown.
    """

    success: np.ndarray
    distance: np.ndarray
    rounds: np.ndarray
    passes: np.ndarray


class Votes(NamedTuple):
    """The rule by which a candidate counts for a stochastic model: misclassified in at least `needed` of `draws` calls.

    Attributes:
        draws: predictions of each candidate, and of each clean input, >= 1.
        needed: number of them that must reach the goal, from 1 to `draws`.
    """

    draws: int = 1
    needed: int = 1

    @classmethod
    def of(cls, votes) -> Votes:
        """Return (draws, needed) as votes, or raise ValueError unless they are integers with 1 <= needed <= draws."""
        numbers = [as_plain(number) for number in votes] if isinstance(votes, (tuple, list)) else []
        if [type(number) for number in numbers] != [int, int] or not 1 <= numbers[1] <= numbers[0]:
            raise InputError(
                f"votes is {str(votes)[:60]}; it is (draws, needed), integers with 1 <= needed <= draws, as in (10, 5)."
            )
        return cls(*numbers)


_ONE_VOTE = Votes()


class Engine:
    """Attack compiled for a model; it can run repeatedly, and the weights may change in between.

    Args:
        attack: the attack, with its threat model.
        predict: a built Keras model (called with training=False; no variable is updated), or a function inputs ->
            logits [b, k] made of TensorFlow operations.
        known_logits: True if the outputs are already known, from more examples, to be logits: none are then rejected
            for looking like probabilities.
        surrogate: the model that a transfer attack searches, as `predict`; None: the model itself.
        grid: gap between the values that the model's input can take, of which the clean inputs consist; 0: any value.
        votes: (draws, needed): a candidate counts if it reaches the goal in at least `needed` of `draws` predictions.
            (10, 5) suits stochastic models, (1, 1) all others. The search itself sees one prediction a pass.
    """

    def __init__(
        self,
        attack: Attack,
        predict,
        *,
        known_logits: bool = False,
        surrogate=None,
        grid: float = 0.0,
        votes: tuple[int, int] = (1, 1),
    ):
        self.attack, self.known_logits, self.grid, self.votes = attack, known_logits, grid, Votes.of(votes)
        self.counter = PassCounter()
        self._predict = self.counter.counted(as_predict(predict))
        self._surrogate = self._predict if surrogate is None else self.counter.counted(as_predict(surrogate))
        self._graphs: dict[tuple[tuple[int, ...], bool], Graphs] = {}

    def run(
        self,
        inputs: np.ndarray,
        labels: np.ndarray,
        *,
        seed: int = 0,
        key: tf.Tensor | None = None,
        batch_size: int = 128,
        index: np.ndarray | None = None,
        targets: np.ndarray | None = None,
        progress: Callable | None = None,
        seconds: float | None = None,
        begun: Begun | None = None,
        keep: Callable[[Begun], None] | None = None,
    ) -> AttackResult:
        """Attack every correctly classified example, round by round, until the attack succeeds or its rounds end.

        Args:
            inputs: float [n, ...] inside the threat's bounds.
            labels: int [n], or one-hot [n, k].
            seed: together with the attack's name, the round and the example's index it determines all random draws. The
                outcome does not depend on `batch_size` or on the other examples (up to rounding in kernels).
            key: int32 [2], used in place of the one made of the seed and the attack's name.
            batch_size: examples per graph call, >= 1.
            index: int [n], the examples' positions in their split; None: 0 .. n-1. Shards pass their own.
            targets: int [n], the classes to be reached, or one-hot [n, k]; None: any wrong class.
            progress: called as progress(done, total, remaining) after every graph call: example-steps done and in
                total, and the number of remaining (not yet misclassified) examples.
            seconds: wall time after which the search ends; examples that then remain were not searched fully.
            begun: what an interrupted run has found; its rounds are not searched again. None: nothing.
            keep: called with what this run has found, every `KEEP_SECONDS` and at a time limit; or None.

        Returns:
            NumPy arrays. `complete` is False where the time limit ended the search. Where `begun` has a success,
            `adversarial` is the input.

        Raises:
            ValueError: invalid inputs, labels or outputs; see `checks`.
        """
        data = checked_arguments(self.attack, inputs, labels, index, targets, batch_size)
        deadline = time.monotonic() + (float("inf") if seconds is None else seconds)
        key = randomness.make_key(seed, "attack", self.attack.name) if key is None else key
        run = _Run(self, data, key, min(batch_size, len(data.inputs)), progress)
        complete = run.until(deadline, begun, keep)
        return AttackResult(run.adversarial, run.success, run.distance, complete, passes=run.passes)

    def graphs(self, shape: Sequence[int], targeted: bool) -> Graphs:
        """Return the attack's graphs for batches of any size, traced once per shape of an example."""
        signature = (tuple(shape), targeted)
        if signature not in self._graphs:
            self._graphs[signature] = self._compile(*signature)
        return self._graphs[signature]

    def _compile(self, shape: tuple[int, ...], targeted: bool) -> Graphs:
        inputs, number = tf.TensorSpec([None, *shape]), tf.TensorSpec([None], tf.int32)
        goal = Goal(number, number if targeted else None)
        key = tf.TensorSpec([2], tf.int32)
        start = _graph_of(self._start, inputs, goal, key, number, number)
        state = tf.nest.map_structure(
            lambda tensor: tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype), start.structured_outputs
        )
        advance = _graph_of(self._advance, inputs, goal, number, state, tf.TensorSpec([], tf.int32))
        return Graphs(start, advance, _graph_of(self._verify, inputs, goal, inputs))

    def _start(self, inputs, goal, key, index, rounds):
        keys = round_keys(randomness.example_keys(key, index), rounds)
        predict, goal = self._search_view(inputs, goal)
        return self.attack.start(predict, inputs, goal, keys, rounds)

    def _advance(self, inputs, goal, rounds, state, count):
        predict, goal = self._search_view(inputs, goal)
        return self.attack.advance(predict, inputs, goal, rounds, state, count)

    def _search_view(self, inputs, goal):
        """Return the function that the search sees, and its goal."""
        predict = self._predict
        if self.attack.searches_surrogate:
            predict, goal = self._surrogate, goal.unseen()
        if not self.grid:
            return predict, goal
        return lambda points: predict(onto_grid(inputs, points, self.grid, self.attack.threat.bounds)), goal

    def _verify(self, inputs, goal, candidate):
        return verify(self.attack, self._predict, inputs, goal, candidate, self.grid, self.votes)


def onto_grid(inputs, points, gap: float, bounds: tuple[float, float]):
    """Round each value of the points toward the inputs, by a whole number of gaps from them.

    Args:
        inputs: float32 [b, ...], values of the grid.
        points: float32 [b, ...].
        gap: between two values of the grid.
        bounds: (low, high) of the pixels, on the grid up to rounding.

    Returns:
        float32 [b, ...], no farther from the inputs than the points; differentiated as the identity.
    """
    change = points - inputs
    # A change of a whole number of gaps may be slightly smaller, by rounding.
    rounded = tf.sign(change) * gap * tf.floor(tf.abs(change) / gap + 1e-4)
    return straight_through(points, tf.clip_by_value(inputs + rounded, *bounds))


def verify(
    attack: Attack, predict: Callable, inputs, goal: Goal, candidate, grid: float = 0.0, votes: Votes = _ONE_VOTE
):
    """Verify a candidate: project it again and predict it again; one that cannot be projected counts as the input.

    The candidate of a minimal-norm attack that fails is moved away from the input until it succeeds.

    Args:
        attack: the attack, whose `project` defines where its candidates must lie.
        predict: float32 [b, ...] -> float32 logits [b, k].
        inputs: float32 [b, ...], the clean inputs.
        goal: int32 [b] labels and, if targeted, targets.
        candidate: float32 [b, ...].
        grid: as for `Engine`.
        votes: as for `Engine`.

    Returns:
        (adversarial [b, ...], the input itself where the goal is not reached; reached, bool [b]; distance, float32 [b];
        logits [b, k] of the projected candidate).
    """

    def placed(points):
        projected = attack.project(inputs, points)
        if grid:
            projected = onto_grid(inputs, projected, grid, attack.threat.bounds)
        return attack.restored(inputs, projected)

    finite = tf.reduce_all(tf.math.is_finite(candidate), axis=list(range(1, candidate.shape.rank)))
    projected = placed(select(finite, candidate, inputs))
    logits = predict(projected)
    reached = goal.reached(logits)
    if votes.draws > 1:
        reached = _outvoted(predict, goal, projected, reached, votes)
    if attack.minimal:
        projected, reached = _farther(predict, inputs, goal, projected, reached, placed, votes)
    adversarial = select(reached, projected, inputs)
    return adversarial, reached, attack.threat.distance(inputs, adversarial), logits


def _outvoted(predict: Callable, goal: Goal, points, reached, votes: Votes):
    """Return where the points reach the goal in enough predictions, the first of which is known; bool [b]."""

    def draw(number, count):
        return number + 1, count + tf.cast(goal.reached(predict(points)), tf.int32)

    loop = (tf.constant(1), tf.cast(reached, tf.int32))
    _, count = tf.while_loop(lambda number, _: number < votes.draws, draw, loop, parallel_iterations=1)
    return count >= votes.needed


def _farther(predict: Callable, inputs, goal: Goal, points, reached, placed: Callable, votes: Votes):
    """Return (points, reached), with the nearest point farther out that reaches the goal where these points do not.

    A search ends next to the boundary, on whose other side another rounding may put its point, or, with a stochastic
    model, at the nearest of all points that were misclassified by chance. The points tried lie on the lines from the
    inputs through these, at 1.02, 1.04, 1.08, ... times their distances.
    """
    lines = points - inputs
    moved = tf.reduce_any(lines != 0, axis=list(range(1, lines.shape.rank)))  # no clean input is tried again

    def waits(number, points, reached):
        return (number < _FARTHER) & tf.reduce_any(moved & ~reached)

    def try_farther(number, points, reached):
        tried = placed(inputs + (1.0 + _FIRST_FARTHER * 2.0 ** tf.cast(number, tf.float32)) * lines)
        is_wrong = goal.reached(predict(tried))
        if votes.draws > 1:
            is_wrong = _outvoted(predict, goal, tried, is_wrong, votes)
        is_wrong &= moved & ~reached
        return number + 1, tf.ensure_shape(select(is_wrong, tried, points), inputs.shape), reached | is_wrong

    _, points, reached = tf.while_loop(waits, try_farther, (tf.constant(0), points, reached), parallel_iterations=1)
    return points, reached


def round_keys(keys: tf.Tensor, rounds: tf.Tensor) -> tf.Tensor:
    """Fold each example's key with its round: int32 [b, 2] and [b] -> [b, 2]."""
    return tf.map_fn(
        lambda pair: tf.random.experimental.stateless_fold_in(*pair),
        (keys, rounds),
        fn_output_signature=tf.TensorSpec([2], tf.int32),
    )


class Graphs(NamedTuple):
    """Compiled graphs of an attack, for batches of any size."""

    start: Callable
    advance: Callable
    verify: Callable


@dataclasses.dataclass(frozen=True)
class _Examples:
    """Checked arrays: inputs float32 [n, ...]; labels, index and targets (or None) int [n]."""

    inputs: np.ndarray
    labels: np.ndarray
    index: np.ndarray
    targets: np.ndarray | None


def checked_arguments(attack: Attack, inputs, labels, index, targets, batch_size: int) -> _Examples:
    """Check the arguments of a run and return them as arrays; arguments and errors as in `Engine.run`."""
    inputs = checks.check_images(inputs, *attack.threat.bounds)
    attack.threat.check_frames(inputs.shape[1:])
    labels = checks.label_ids(labels, len(inputs))
    index = np.arange(len(inputs)) if index is None else np.asarray(index)
    if index.shape != labels.shape:
        raise InputError(f"index has the shape {index.shape}; it names one position per example, ({len(inputs)},).")
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; it is at least 1.")
    return _Examples(inputs, labels, index, None if targets is None else checks.target_ids(targets, labels))


class _Slots:
    """Batch of examples under attack: for each slot the example, its round and step, and the attack's state.

    Some slots at the end may hold copies of the first example, so that few batch sizes occur.
    """

    def __init__(self):
        self.example = np.zeros(0, np.int64)
        self.rounds = np.zeros(0, np.int32)
        self.step = np.zeros(0, np.int64)
        self.state: dict = {}

    def __len__(self):
        return len(self.example)

    def keep(self, staying: np.ndarray) -> None:
        """Keep only the slots in the mask bool [m], out of m occupied ones."""
        for name in ("example", "rounds", "step"):
            setattr(self, name, getattr(self, name)[staying])
        places = tf.constant(np.flatnonzero(staying))
        self.state = tf.nest.map_structure(lambda tensor: tf.gather(tensor, places), self.state) if len(self) else {}

    def add(self, rows: np.ndarray, rounds: np.ndarray, state: dict) -> None:
        """Append new examples [m] to the occupied slots, with a state of at least m rows."""
        fresh = tf.nest.map_structure(lambda tensor: tensor[: len(rows)], state)
        if self.state:
            old = tf.nest.map_structure(lambda tensor: tensor[: len(self)], self.state)
            fresh = tf.nest.map_structure(lambda *both: tf.concat(both, axis=0), old, fresh)
        self.state = fresh
        self.example = np.concatenate([self.example, rows])
        self.rounds = np.concatenate([self.rounds, rounds]).astype(np.int32)
        self.step = np.concatenate([self.step, np.zeros(len(rows), np.int64)])


class _Run:
    """One run over a data set: the results so far, waiting examples, the batch, and candidates to be verified."""

    def __init__(self, engine: Engine, data: _Examples, key: tf.Tensor, size: int, progress: Callable | None):
        count = len(data.inputs)
        self.attack, self.data, self.key, self.size, self.progress = engine.attack, data, key, size, progress
        self.known_logits = engine.known_logits
        self.graphs = engine.graphs(data.inputs.shape[1:], data.targets is not None)
        self.counter = engine.counter
        self.counter.new()  # a run that was interrupted may have left some
        self.adversarial = data.inputs.copy()
        self.success = np.zeros(count, bool)
        self.distance = np.zeros(count, np.float32)
        self.rounds_done = np.zeros(count, np.int64)
        # Of the whole run, and of the round that has begun.
        self.passes, self.round_passes = np.zeros([count, 2]), np.zeros([count, 2])
        self.rounds = 0
        self.waiting: collections.deque[int] = collections.deque()
        self.pending: list[tuple[int, np.ndarray]] = []
        self.slots = _Slots()
        self.batch: tuple = ()  # empty: the slots have changed
        self.seconds_per_step: float | None = None
        self.timed = False

    def until(self, deadline: float, begun: Begun | None, keep: Callable | None) -> bool:
        """Search until no remaining example has a round left (True) or the deadline has passed (False)."""
        self._verify_clean(begun)
        in_time, due = True, time.monotonic() + KEEP_SECONDS
        while in_time:
            self._fill()
            if len(self.slots):
                in_time = self._stage(deadline)
                self._harvest()
            self._settle(everything=not in_time)
            if keep is not None and (not in_time or time.monotonic() >= due):
                keep(self._state())
                due = time.monotonic() + KEEP_SECONDS
            if not self.waiting and not self.pending and not len(self.slots):
                break
        return bool(np.all(self.success | (self.rounds_done >= self.rounds)))

    def _state(self) -> Begun:
        """Return what was found; a round whose candidate waits for its verification is not finished."""
        rounds, passes = self.rounds_done.copy(), self.passes.copy()
        pending = [row for row, _ in self.pending]
        # `_harvest` counts the round when its example leaves the batch.
        rounds[pending] -= 1
        unfinished = np.array([*pending, *self.slots.example], int)
        passes[unfinished] -= self.round_passes[unfinished]
        return Begun(self.success.copy(), self.distance.copy(), rounds, passes)

    def _verify_clean(self, begun: Begun | None):
        order = np.arange(len(self.data.inputs))
        batches = [order[i : i + self.size] for i in range(0, len(order), self.size)]
        logits = np.concatenate([self._verify(rows, self.data.inputs[rows]) for rows in batches])
        highest = self.data.labels if self.data.targets is None else np.maximum(self.data.labels, self.data.targets)
        class_count = checks.check_logits(logits, highest, self.known_logits)
        self.rounds = self.attack.rounds(class_count)
        if begun is not None:
            earlier = begun.success & ~self.success
            self.success[earlier], self.distance[earlier] = True, begun.distance[earlier]
            self.rounds_done[:] = np.minimum(begun.rounds, self.rounds)
            self.passes[:] = begun.passes
        self._wait(np.arange(len(self.success)))
        self._report()

    def _fill(self):
        """Fill free slots with waiting examples, at least a quarter of the batch at a time.

        Each filling copies the states of all slots, which is too expensive for single examples.
        """
        count = min(self.size - len(self.slots), len(self.waiting))
        if count and (count >= self.size // 4 or count == len(self.waiting)):
            rows = np.array([self.waiting.popleft() for _ in range(count)])
            padded = self._padded(rows)
            self.round_passes[rows] = 0
            state = self.graphs.start(
                *self._batch(padded),
                self.key,
                tf.constant(self.data.index[padded], tf.int32),
                tf.constant(self.rounds_done[padded], tf.int32),
            )
            self._count(rows, len(padded))
            self.slots.add(rows, self.rounds_done[rows], state)
        elif self.batch:
            return
        if len(self.slots):
            places = self._padded(np.arange(len(self.slots)))
            if len(places) > len(self.slots):
                self.slots.state = tf.nest.map_structure(lambda tensor: tf.gather(tensor, places), self.slots.state)
            self.batch = (*self._batch(self.slots.example[places]), tf.constant(self.slots.rounds[places]))

    def _stage(self, deadline: float) -> bool:
        """Advance the batch by one stage, in graph calls short enough to interrupt; return False past the deadline."""
        slots, steps = self.slots, self.attack.steps
        # Examples enter the batch at the end of a stage. Stages, unlike calls, do not depend on the clock, so neither
        # does which examples share a batch.
        remaining = min(stage_steps(steps), steps - int(slots.step.max()))
        while remaining:
            if time.monotonic() > deadline:
                return False
            count = 1 if self.seconds_per_step is None else int(_CALL_SECONDS / self.seconds_per_step)
            count = max(1, min(count, remaining))
            began = time.monotonic()
            slots.state = self.graphs.advance(*self.batch, slots.state, tf.constant(count, tf.int32))
            slots.state["found"].numpy()  # waits for the device
            self._count(slots.example, len(slots.state["found"]))
            if self.timed:  # the first call also prepares the kernels
                self.seconds_per_step = max((time.monotonic() - began) / count, 1e-6)
            self.timed = True
            slots.step += count
            remaining -= count
            self._report()
        return True

    def _harvest(self):
        """Remove finished examples from the batch and queue their candidates; verify claims of success at once."""
        slots, count = self.slots, len(self.slots)
        claimed, ended = slots.state["found"].numpy(), slots.step >= self.attack.steps
        claimed |= self.attack.searches_surrogate  # the search does not see what reaches the goal: try all
        if not (claimed[:count].any() or ended.any()):
            return
        candidates = self.attack.candidate(slots.state).numpy()[:count]
        # A candidate equal to the clean input was verified before: repeating that would find errors by chance.
        unverified = _differ(candidates, self.data.inputs[slots.example])
        early = claimed[:count] & unverified
        if early.any():
            self._verify(slots.example[early], candidates[early])
        refused = claimed[:count] & ~self.success[slots.example]
        if refused.any():
            # A stochastic model may have erred once: where the verification fails, the round continues.
            slots.state = self.attack.refuse(slots.state, tf.constant(np.pad(refused, (0, len(claimed) - count))))
            replacements = self.attack.candidate(slots.state).numpy()[:count]
            unverified = _differ(replacements, self.data.inputs[slots.example]) & (
                ~refused | _differ(replacements, candidates)
            )
            candidates = replacements
        unverified &= ended & ~self.success[slots.example]
        self.pending += list(zip(slots.example[unverified], candidates[unverified], strict=True))
        leaving = ended | self.success[slots.example]
        if leaving.any():
            self.rounds_done[slots.example[leaving]] += 1
            self._wait(slots.example[leaving & ~unverified])
            slots.keep(~leaving)
            self.batch = ()
            self._report()

    def _settle(self, everything: bool):
        """Verify full batches of candidates, and the rest if examples need the result before their next round."""
        # A pending example may be the next one to fill a slot, but not before its round is decided.
        needed = self.rounds > 1 and len(self.waiting) < self.size - len(self.slots)
        everything = everything or needed or not (self.waiting or len(self.slots))
        while self.pending and (everything or len(self.pending) >= self.size):
            batch, self.pending = self.pending[: self.size], self.pending[self.size :]
            rows = np.array([row for row, _ in batch])
            self._verify(rows, np.stack([candidate for _, candidate in batch]))
            self._wait(rows)
            self._report()

    def _wait(self, rows: np.ndarray):
        """Queue verified examples that remain, if they have another round."""
        self.waiting.extend(rows[~self.success[rows] & (self.rounds_done[rows] < self.rounds)])

    def _verify(self, rows: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        places = self._padded(np.arange(len(rows)))
        adversarial, reached, distance, logits = (
            column.numpy()[: len(rows)]
            for column in self.graphs.verify(*self._batch(rows[places]), tf.constant(candidates[places]))
        )
        self.adversarial[rows], self.success[rows], self.distance[rows] = adversarial, reached, distance
        self._count(rows, len(places))
        return logits

    def _count(self, rows: np.ndarray, size: int) -> None:
        """Add the passes of the last graph call to its examples; the others of its `size` only fill the batch."""
        passes = self.counter.new() / size
        self.passes[rows] += passes
        self.round_passes[rows] += passes

    def _padded(self, rows: np.ndarray) -> np.ndarray:
        """Pad rows [m], m >= 1, with copies of the first, up to one of the few batch sizes."""
        unit = -(-self.size // _SIZES)
        return np.concatenate([rows, np.repeat(rows[:1], -len(rows) % unit)])

    def _batch(self, rows: np.ndarray):
        targets = None if self.data.targets is None else tf.constant(self.data.targets[rows])
        return tf.constant(self.data.inputs[rows]), Goal(tf.constant(self.data.labels[rows]), targets)

    def _report(self):
        if self.progress is None:
            return
        steps = self.attack.steps
        done = steps * np.where(self.success, self.rounds, self.rounds_done).sum() + self.slots.step.sum()
        self.progress(int(done), int(steps * self.rounds * len(self.success)), int(np.sum(~self.success)))


def _differ(first: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the examples that differ anywhere: [m, ...] twice -> bool [m]."""
    return np.any(first != other, axis=tuple(range(1, first.ndim)))


def _graph_of(method: Callable, *specs) -> tf.types.experimental.ConcreteFunction:
    # TensorFlow counts traces by code object, so the engines of a curve would look like one function that retraces. A
    # partial has no code object of its own.
    return tf.function(functools.partial(method), autograph=False).get_concrete_function(*specs)
