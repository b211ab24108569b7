"""Runs an attack over a data set so that the cost follows what still stands.

The examples pass through one batch of fixed size, slot by slot: whoever falls or ends a round leaves, and the
next one waiting takes the slot. So every graph call works on a full batch of one static shape, nothing is
traced twice, and an example's outcome follows from its own key, not from who sits beside it.
"""

import collections
import dataclasses
import functools
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfrobust.attacks import base, checks
from tfrobust.attacks.modes import as_predict
from tfrobust.ops import randomness
from tfrobust.structs import AttackResult

# Half of the 5 s within which progress shows and signals are heard: a call may be slower than the last.
_CALL_SECONDS = 2.5
# Slots are emptied and filled after a tenth of a round, but not for so few steps that copies would show.
_STAGES = 10
_SHORTEST_STAGE = 5


def run_attack(
    attack: base.Attack,
    predict,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    seed: int = 0,
    batch_size: int = 128,
    index: np.ndarray | None = None,
    progress: Callable | None = None,
    seconds: float | None = None,
) -> AttackResult:
    """Attacks a data set: `Engine(attack, predict).run(...)`, which see.

    Example:
        >>> import keras, numpy as np
        >>> from tfrobust import keras as robust
        >>> dense = keras.layers.Dense(2, kernel_initializer="identity")
        >>> model = keras.Sequential([keras.Input((1, 1, 2)), keras.layers.Flatten(), dense])
        >>> images = np.array([[0.7, 0.4], [1.0, 0.2]], "float32").reshape(2, 1, 1, 2)
        >>> attack = robust.attacks.FGSM(robust.attacks.ThreatModel(epsilon=0.2))
        >>> robust.attacks.run_attack(attack, model, images, np.array([0, 0])).success.tolist()
        [True, False]
    """
    return Engine(attack, predict).run(
        images, labels, seed=seed, batch_size=batch_size, index=index, progress=progress, seconds=seconds
    )


class Engine:
    """An attack compiled for a model, to be run as often as wanted (weights may change in between).

    Args:
        attack: how and where.
        predict: a built Keras model (called with training=False; nothing in it moves), or a function
            images -> logits [b, k] made of TensorFlow operations.
    """

    def __init__(self, attack: base.Attack, predict):
        self.attack = attack
        self._predict = as_predict(predict)
        self.start = _compiled(self._start)
        self.advance = _compiled(self._advance)
        self.judge = _compiled(self._judge)

    def run(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        *,
        seed: int = 0,
        batch_size: int = 128,
        index: np.ndarray | None = None,
        progress: Callable | None = None,
        seconds: float | None = None,
    ) -> AttackResult:
        """Attacks every image that is classified correctly, round by round until it falls.

        Args:
            images: float [n, h, w, c] inside the threat's bounds.
            labels: int [n], or one-hot [n, k].
            seed: with the attack's name, the round and the example's index it makes all draws. The outcome
                does not depend on `batch_size` or on the other examples (up to how kernels round).
            batch_size: examples per graph call, >= 1.
            index: int [n], the examples' positions in their split; None: 0 .. n-1. Shards pass their own.
            progress: called as progress(done, total, standing) after every graph call, in example-steps.
            seconds: wall time after which the search ends; what then still stands was not searched fully.

        Returns:
            NumPy arrays. `complete` is False where the time ended it.

        Raises:
            ValueError: bad images, labels or outputs; see `checks`.
        """
        images = checks.check_images(images, *self.attack.threat.bounds)
        labels = checks.label_ids(labels, len(images))
        index = np.arange(len(images)) if index is None else np.asarray(index)
        if index.shape != labels.shape:
            raise ValueError(f"index has the shape {index.shape}; it names one position per image, ({len(images)},).")
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; it is at least 1.")
        deadline = time.monotonic() + (float("inf") if seconds is None else seconds)
        campaign = _Campaign(self, _Data(images, labels, index), seed, min(batch_size, len(images)), progress)
        complete = campaign.run(deadline)
        return AttackResult(campaign.adversarial, campaign.success, campaign.distance, complete)

    def _start(self, images, labels, key, index, rounds):
        keys = base.round_keys(randomness.example_keys(key, index), rounds)
        return self.attack.start(self._predict, images, labels, keys, rounds)

    def _advance(self, images, labels, rounds, state, count):
        return self.attack.advance(self._predict, images, labels, rounds, state, count)

    def _judge(self, images, labels, candidate):
        return base.judge(self._predict, self.attack.threat, images, labels, candidate)


@dataclasses.dataclass(frozen=True)
class _Data:
    images: np.ndarray
    labels: np.ndarray
    index: np.ndarray


class _Slots:
    """One batch in the making: who sits where, in which round, how far, and the attack's state."""

    def __init__(self, size: int):
        self.example = np.full(size, -1)
        self.rounds = np.zeros(size, np.int32)
        self.step = np.zeros(size, np.int64)
        self.state = None
        self.inputs = None

    @property
    def taken(self) -> np.ndarray:
        return self.example >= 0

    @property
    def vacant(self) -> np.ndarray:
        return np.flatnonzero(self.example < 0)


class _Campaign:
    """One run: what is known of each example, who waits, who is searched for, who waits to be judged."""

    def __init__(self, engine: Engine, data: _Data, seed: int, size: int, progress: Callable | None):
        count = len(data.images)
        self.engine, self.data, self.size, self.progress = engine, data, size, progress
        self.key = randomness.make_key(seed, "attack", engine.attack.name)
        self.adversarial = data.images.copy()
        self.success = np.zeros(count, bool)
        self.distance = np.zeros(count, np.float32)
        self.rounds_done = np.zeros(count, np.int64)
        self.rounds = 0
        self.waiting = collections.deque()
        self.pending = []
        self.slots = _Slots(size)
        self.seconds_per_step = None
        self.timed = False

    def run(self, deadline: float) -> bool:
        """Searches until nobody stands with a round to go (True) or the deadline has passed (False)."""
        self._judge_clean()
        in_time = True
        while in_time:
            self._fill()
            if self.slots.taken.any():
                in_time = self._stage(deadline)
                self._harvest()
            self._settle(everything=not in_time)
            if not self.waiting and not self.pending and not self.slots.taken.any():
                break
        return bool(np.all(self.success | (self.rounds_done >= self.rounds)))

    def _judge_clean(self):
        everyone = np.arange(len(self.data.images))
        logits = np.concatenate([self._judge(rows, self.data.images[rows]) for rows in self._batches(everyone)])
        class_count = checks.check_logits(logits, self.data.labels)
        self.rounds = self.engine.attack.rounds(class_count)
        self.waiting.extend(np.flatnonzero(~self.success))
        self._report()

    def _fill(self):
        """Puts waiting examples into vacant slots, at least a quarter of the batch at a time.

        A start costs a full batch, whoever is in it.
        """
        slots, vacant = self.slots, self.slots.vacant
        count = min(len(vacant), len(self.waiting))
        if not count or (len(vacant) < self.size // 4 and count < len(self.waiting)):
            return
        places, rows = vacant[:count], np.array([self.waiting.popleft() for _ in range(count)])
        padded = self._pad(rows)
        fresh = self.engine.start(
            *self._inputs(padded),
            self.key,
            tf.constant(self.data.index[padded], tf.int32),
            tf.constant(self.rounds_done[padded], tf.int32),
        )
        if slots.state is None:
            slots.state = fresh
            slots.example[count:], slots.example[:count] = -1, rows
        else:
            slots.state = tf.nest.map_structure(lambda old, new: _replace(old, new, places, count), slots.state, fresh)
            slots.example[places] = rows
        slots.rounds[places], slots.step[places] = self.rounds_done[rows], 0
        # Empty slots repeat somebody: their outcome is dropped.
        slots.inputs = self._inputs(np.where(slots.taken, slots.example, rows[0]))

    def _stage(self, deadline: float) -> bool:
        """Some steps for everybody, in graph calls short enough to interrupt; False past the deadline."""
        slots, steps = self.slots, self.engine.attack.steps
        # Whoever sits here came at the end of a stage: the stages, unlike the calls, do not follow the clock,
        # and neither does who shares a batch with whom.
        left = min(max(_SHORTEST_STAGE, -(-steps // _STAGES)), steps - int(slots.step[slots.taken].max()))
        while left:
            if time.monotonic() > deadline:
                return False
            count = 1 if self.seconds_per_step is None else int(_CALL_SECONDS / self.seconds_per_step)
            count = max(1, min(count, left))
            began = time.monotonic()
            slots.state = self.engine.advance(
                *slots.inputs, tf.constant(slots.rounds), slots.state, tf.constant(count, tf.int32)
            )
            slots.state["found"].numpy()  # waits for the device
            if self.timed:  # the first call also traces
                self.seconds_per_step = max((time.monotonic() - began) / count, 1e-6)
            self.timed = True
            slots.step[slots.taken] += count
            left -= count
            self._report()
        return True

    def _harvest(self):
        """Takes out who believes to have fallen and who has ended the round."""
        slots = self.slots
        found = slots.state["found"].numpy()
        places = np.flatnonzero(slots.taken & (found | (slots.step >= self.engine.attack.steps)))
        if not len(places):
            return
        candidates = self.engine.attack.candidate(slots.state).numpy()
        for place in places:
            self.pending.append((slots.example[place], candidates[place].copy()))
            self.rounds_done[slots.example[place]] += 1
        slots.example[places] = -1

    def _settle(self, everything: bool):
        """Judges full batches of candidates; the rest too where somebody must wait for the verdict."""
        needed = self.rounds > 1 and len(self.waiting) < len(self.slots.vacant)
        everything = everything or needed or not (self.waiting or self.slots.taken.any())
        while self.pending and (everything or len(self.pending) >= self.size):
            batch, self.pending = self.pending[: self.size], self.pending[self.size :]
            rows = np.array([row for row, _ in batch])
            self._judge(rows, np.stack([candidate for _, candidate in batch]))
            self.waiting.extend(rows[~self.success[rows] & (self.rounds_done[rows] < self.rounds)])
            self._report()

    def _judge(self, rows: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        padding = np.arange(self.size) % len(rows)
        adversarial, wrong, distance, logits = (
            answer.numpy()[: len(rows)]
            for answer in self.engine.judge(*self._inputs(rows[padding]), tf.constant(candidates[padding]))
        )
        self.adversarial[rows], self.success[rows], self.distance[rows] = adversarial, wrong, distance
        return logits

    def _batches(self, rows: np.ndarray):
        return (rows[i : i + self.size] for i in range(0, len(rows), self.size))

    def _pad(self, rows: np.ndarray) -> np.ndarray:
        return rows[np.arange(self.size) % len(rows)]

    def _inputs(self, rows: np.ndarray):
        return tf.constant(self.data.images[rows]), tf.constant(self.data.labels[rows])

    def _report(self):
        if self.progress is None:
            return
        steps, taken = self.engine.attack.steps, self.slots.taken
        done = steps * np.where(self.success, self.rounds, self.rounds_done).sum() + self.slots.step[taken].sum()
        self.progress(int(done), int(steps * self.rounds * len(self.success)), int(np.sum(~self.success)))


def _compiled(method: Callable) -> tf.types.experimental.PolymorphicFunction:
    # TensorFlow counts traces by code object, so that a curve's engines would look like one that retraces: a
    # partial has none of its own.
    return tf.function(functools.partial(method), autograph=False)


def _replace(old: tf.Tensor, new: tf.Tensor, places: np.ndarray, count: int) -> tf.Tensor:
    merged = np.array(old)
    merged[places] = new.numpy()[:count]
    return tf.constant(merged)
