"""The training loop: one device, many replicas or many machines, ordinary Keras callbacks, resume at any step."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import math
import os
import re
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from tfrobust.common import files
from tfrobust.errors import Failure, InputError, StopRequested
from tfrobust.methods.shared import updates
from tfrobust.ops import keras_private
from tfrobust.training import cluster, observability
from tfrobust.training.checkpoint import CheckpointStore
from tfrobust.training.progress import EpochLines

# The entries of a checkpoint's state, by type.
_NUMBER = (int, float, type(None))
_STATE = {"history": list, "callbacks": list, "stopped": bool, "seconds": (int, float)}

# State of Keras's callbacks between epochs. Restoring every plain attribute would break EarlyStopping,
# whose `min_delta` changes its sign on first use.
CALLBACK_STATE = ("wait", "best", "best_epoch", "stopped_epoch", "cooldown_counter", "epochs_since_last_save")

# What TensorFlow raises for a file that is missing, or is no picture.
_READING_ERRORS = (tf.errors.NotFoundError, tf.errors.PermissionDeniedError, tf.errors.InvalidArgumentError)

# Steps before a profile starts, because the first steps trace and allocate.
WARM_UP_STEPS = 3


class TrainingDiverged(Failure, RuntimeError):
    """A loss term or a weight became NaN or infinite."""


@dataclasses.dataclass
class Loop:
    """A loop of `strategy.run(method.train_step)` over batches that are a function of the step.

    Attributes:
        method: built and compiled inside the strategy's scope.
        strategy: a `tf.distribute.Strategy`.
        batches: first step -> dataset of global batches from that step on; with several workers also called with
            share=(worker, workers), for the rows of one worker.
        steps_per_epoch: number of steps per epoch.
        epochs: number of epochs.
        checkpoint_directory: folder of the checkpoints.
        callbacks: Keras callbacks. A callback that owns variables lists them in an attribute `variables`.
        checkpoint_seconds: minimum time in seconds between checkpoints; another one is written at the end.
        jit_compile: True to compile the step with XLA.
        profile_steps: number of steps to trace for TensorBoard's profiler, after three warm-up steps; 0 for none.
        profile_directory: folder of the trace.
        finished_only: True to refuse to train: the checkpoint must be of the last step.
        verbose: 0 prints nothing, 1 one line per epoch, 2 all logs of every epoch.
        steps_after: cost of the attacks after the training, at most, in training steps; for the printed estimate.
        history_file: CSV file with one row per epoch, which the chief writes; "" for none.
        title: name of this training in the progress output; "" if it is the run's only one.
        seconds: duration of the training, including earlier sessions, once `run` has returned.
    """

    method: keras.Model
    strategy: tf.distribute.Strategy
    batches: Callable[..., tf.data.Dataset]
    steps_per_epoch: int
    epochs: int
    checkpoint_directory: str
    callbacks: Sequence[keras.callbacks.Callback] = ()
    checkpoint_seconds: float = 15.0
    jit_compile: bool = False
    profile_steps: int = 0
    profile_directory: str = ""
    finished_only: bool = False
    verbose: int = 1
    steps_after: float = 0.0
    history_file: str = ""
    title: str = ""
    seconds: float = dataclasses.field(default=0.0, init=False)

    def run(self) -> dict[str, list]:
        """Train from the last checkpoint to the end.

        Returns:
            The history: column by log name, one value per epoch, with `epoch` among them.

        Raises:
            TrainingDiverged: a term or a weight is not finite; the message names it and the step. The last checkpoint
                stays.
            StopRequested: a signal arrived; the state is saved.
        """
        self._make_every_variable()
        recorder, profile = _Recorder(), _Profile(self.profile_directory, self.profile_steps)
        lines = EpochLines(self.epochs, self.steps_per_epoch, self.verbose, self.steps_after)
        callbacks = keras.callbacks.CallbackList(
            [*self.callbacks, profile, recorder, lines],
            add_history=False,
            model=self.method,
            epochs=self.epochs,
            steps=self.steps_per_epoch,
        )
        worker = cluster.this_worker(self.strategy)
        store = CheckpointStore(self.checkpoint_directory, self._checkpoint(), scratch=not worker.chief)
        callbacks.on_train_begin()
        # After on_train_begin, which resets the callbacks' state.
        state = store.restore(self._check_callbacks)
        if state is None:
            with self.strategy.scope():
                self.method.start()
        state = state or {"step": 0, "history": [], "callbacks": [], "stopped": False, "seconds": 0.0}
        last = self.epochs * self.steps_per_epoch
        if self.finished_only and state["step"] < last and not state["stopped"]:
            raise InputError(
                f"{self.title or 'training'} is at step {state['step']} of {last}: finish it before exporting."
            )
        self._restore_callbacks(state["callbacks"])
        if self.verbose and (state["step"] or self.title):
            phrases = [self.title, f"resuming at step {state['step']} of {last}" if state["step"] else ""]
            print(": ".join(filter(None, phrases)), flush=True)
        with cluster.watched(worker):
            cluster.Agreement(self.strategy, worker).check_step(state["step"])
        with deferred_signals() as stop, profile.within(last - state["step"]), contextlib.closing(lines):
            state = self._train(state, callbacks, store, _Consensus(self.strategy, worker, stop), recorder)
        if stop.requested:  # the signal arrived after the last step
            raise StopRequested(f"stopped by {stop.requested} after training; run again to resume.")
        callbacks.on_train_end()
        if profile.seconds and worker.count == 1:
            self._report_phases(profile.seconds)
        self.seconds = state["seconds"]
        return history_columns(state["history"])

    def _train(self, state, callbacks, store, consensus, recorder) -> dict:
        step, history = state["step"], list(state["history"])
        last = self.epochs * self.steps_per_epoch
        started_at = saved_at = time.monotonic()
        train = self._train_function()
        iterator = iter(self._distributed_batches(step)) if step < last and not state["stopped"] else None
        logs, first = {}, step

        def remember():
            return {
                "history": history,
                "callbacks": self._callback_state(),
                "stopped": bool(self.method.stop_training),
                "seconds": state["seconds"] + time.monotonic() - started_at,
            }

        while step < last and not (state["stopped"] or self.method.stop_training):
            epoch, position = divmod(step, self.steps_per_epoch)
            if position == 0:
                self.method.reset_metrics()
                callbacks.on_epoch_begin(epoch)
            elif step == first:
                self._reenter(callbacks, epoch)
            callbacks.on_train_batch_begin(position)
            with cluster.watched(consensus.worker, step):
                batch = _next(iterator, step)
                logs = {name: float(value) for name, value in train(batch).items()}
            step += 1
            self._check_finite(logs, step)
            callbacks.on_train_batch_end(position, logs)
            if position + 1 == self.steps_per_epoch:
                self._check_weights(step)  # before a callback predicts with them
                logs["learning_rate"] = float(keras.ops.convert_to_numpy(self.method.optimizer.learning_rate))
                callbacks.on_epoch_end(epoch, logs)
                history.append({"epoch": epoch + 1, **recorder.logs})
                if self.history_file and consensus.worker.chief:
                    files.write_atomically(self.history_file, _table(history_columns(history)))
            overdue = time.monotonic() - saved_at >= self.checkpoint_seconds
            overdue, ended, stopped = consensus.reach(overdue, self.method.stop_training, step)
            self.method.stop_training = ended
            if overdue or stopped or step == last or ended:
                self._check_weights(step)
                with cluster.watched(consensus.worker, step):
                    store.save(step, remember())
                saved_at = time.monotonic()
            if stopped:
                consensus.agreement.final_barrier()
                raise StopRequested(f"stopped by {stopped} after step {step} of {last}; run again to resume.")
        return {**remember(), "step": step}

    def _reenter(self, callbacks: keras.callbacks.CallbackList, epoch: int) -> None:
        """Call `on_epoch_begin` in the middle of an epoch, whose learning rate a scheduler has already changed."""
        rate = keras_private.learning_rate(updates.inner(self.method.optimizer))
        before = rate.numpy() if isinstance(rate, keras.Variable) else None
        callbacks.on_epoch_begin(epoch)
        if before is not None:
            rate.assign(before)

    def _report_phases(self, step_seconds: list[float]) -> None:
        """Print and write the time that the traced steps spent in each phase."""
        batch = next(iter(self._distributed_batches(0)))
        median = statistics.median(step_seconds)
        phases = observability.measure_phases(self.method, self.strategy, batch, median)
        for name, seconds in phases.items():
            print(f"{name:20} {1000 * seconds:9.1f} ms  {seconds / median:5.0%} of a step")
        files.write_atomically(os.path.join(self.profile_directory, "phases.json"), json.dumps(phases))

    def _train_function(self) -> Callable:
        method, strategy = self.method, self.strategy
        step = tf.function(method.train_step, jit_compile=True) if self.jit_compile else method.train_step

        @tf.function(autograph=False, reduce_retracing=True)
        def train(batch):
            strategy.run(step, args=(batch,))
            return method.get_metrics_result()

        return train

    def _distributed_batches(self, step: int):
        """Distribute the batches from a step on. Each worker makes only its own rows: TensorFlow would make all."""
        strategy, worker = self.strategy, cluster.this_worker(self.strategy)
        if strategy.num_replicas_in_sync == 1:
            return self.batches(step)
        if worker.count == 1:
            return strategy.experimental_distribute_dataset(self.batches(step))
        rows = self.batches(step, share=(worker.index, worker.count))
        replicas = strategy.num_replicas_in_sync // worker.count
        rows = rows.rebatch(rows.element_spec.images.shape[0] // replicas, drop_remainder=True)
        return strategy.distribute_datasets_from_function(lambda context: rows)

    def _make_every_variable(self) -> None:
        """Create optimizer slots and metric variables, which must exist before the first trace and the checkpoint."""
        method = self.method
        with self.strategy.scope():
            method.optimizer.build(method.trainable_variables)
            shape = method.compute_output_shape((None, *self._image_shape()))
            labels, logits = tf.zeros([1], tf.int32), tf.zeros([1, shape[-1]])
            method.compute_metrics(tf.zeros([1, *self._image_shape()]), labels, logits, tf.ones([1]))
            method.reset_metrics()

    def _image_shape(self) -> tuple[int, ...]:
        return tuple(self.batches(0).element_spec.images.shape[1:])

    def _checkpoint(self) -> tf.train.Checkpoint:
        """Create a checkpoint of all variables by position; the caller checks that the configuration is the same."""
        method = self.method
        metrics = [variable for metric in method.metrics for variable in metric.variables]
        callback_variables = [
            variable for callback in self.callbacks for variable in getattr(callback, "variables", [])
        ]
        of_metrics = {id(variable) for variable in metrics}
        groups = {
            "model": [variable for variable in method.variables if id(variable) not in of_metrics],
            "optimizer": method.optimizer.variables,
            "metrics": metrics,
            "callbacks": callback_variables,
        }
        return tf.train.Checkpoint(**{name: [v.value for v in group] for name, group in groups.items()})

    def _callback_state(self) -> list[dict]:
        state = []
        for callback in self.callbacks:
            attributes = {name: getattr(callback, name) for name in CALLBACK_STATE if hasattr(callback, name)}
            values = {
                name: value.item() if isinstance(value, np.generic) else value for name, value in attributes.items()
            }
            # A callback of the user may use one of the names for something else, such as a path.
            values = {name: value for name, value in values.items() if isinstance(value, _NUMBER)}
            state.append({"class": type(callback).__name__, "values": values})
        return state

    def _check_callbacks(self, state: dict) -> None:
        if not _is_state(state):
            raise InputError(f"{self.checkpoint_directory} holds no state of a training. Use another --workdir.")
        before = [item["class"] for item in state["callbacks"]]
        now = [type(callback).__name__ for callback in self.callbacks]
        if before != now:
            raise InputError(
                f"{self.checkpoint_directory} was written with the callbacks {', '.join(before) or 'none'}; "
                f"now they are {', '.join(now) or 'none'}. Use the same ones, or another --workdir."
            )

    def _restore_callbacks(self, state: list[dict]) -> None:
        # Not strict: a fresh start has an empty state.
        for callback, item in zip(self.callbacks, state, strict=False):
            for name in CALLBACK_STATE:
                if name in item["values"]:
                    setattr(callback, name, item["values"][name])

    def _check_finite(self, logs: dict[str, float], step: int) -> None:
        broken = [name for name, value in logs.items() if not math.isfinite(value)]
        if broken:
            named = [name for name in broken if name != "loss"] or broken
            raise TrainingDiverged(
                f"{' and '.join(named)} became {logs[named[0]]} at step {step}; the last checkpoint is kept. "
                "Try a lower LEARNING_RATE or clip_norm."
            )

    def _check_weights(self, step: int) -> None:
        """Raise before a checkpoint if a weight is not finite: the loss would show it only one step later."""
        for variable in self.method.trainable_variables:
            if not bool(tf.reduce_all(tf.math.is_finite(variable.value))):
                raise TrainingDiverged(
                    f"the gradients of step {step} made weights of {variable.path} NaN or infinite; "
                    "the last checkpoint is kept. Try a lower LEARNING_RATE or clip_norm."
                )


def _next(iterator: Iterator, step: int):
    """Return the next batch; raise Failure if it cannot be read, as when a file was removed or cut short meanwhile."""
    try:
        return next(iterator)
    except _READING_ERRORS as error:
        reason = re.sub(r"\{\{.*?\}\} ?|\[Op:.*", "", str(error).splitlines()[0]).strip()
        raise Failure(
            f"the batch of step {step + 1} cannot be read ({reason[-150:]}); the last checkpoint is kept. Are all "
            "files there and whole? A source with verify=True names damaged ones."
        ) from error


class _Consensus:
    """Actions that all workers take after the same step: write a checkpoint, end the training, or stop."""

    def __init__(self, strategy: tf.distribute.Strategy, worker: cluster.Worker, stop):
        self.agreement = cluster.Agreement(strategy, worker)
        self.worker, self._stop = worker, stop

    def reach(self, overdue: bool, ended: bool, step: int) -> tuple[bool, bool, str]:
        """Return whether any worker's checkpoint is due, and its training ended; and the signal that stops all, or "".

        A callback may end the training on one worker alone: validation is computed by each, and may differ in rounding.
        """
        heard = self._stop.requested
        with cluster.watched(self.worker, step):
            overdue, ended, stopped = self.agreement.any(overdue, ended, bool(heard))
        return overdue, ended, (heard or "a signal to another worker") if stopped else ""


class _Recorder(keras.callbacks.Callback):
    """The last callback of the list, which records the logs that the others extended; Keras passes them a copy."""

    def on_epoch_end(self, epoch, logs=None):
        self.logs = {name: float(value) for name, value in (logs or {}).items()}


class _Profile(keras.callbacks.Callback):
    """A callback that traces `steps` steps for TensorBoard's profiler, after a warm-up if enough steps remain."""

    def __init__(self, directory: str, steps: int):
        super().__init__()
        self.directory, self.steps = directory, steps
        self.done, self.start, self.running = 0, -1, False
        self.seconds: list[float] = []

    @contextlib.contextmanager
    def within(self, steps_left: int) -> Iterator[None]:
        """Trace steps while the context is open; write the trace however it exits."""
        if self.steps:
            self.start = max(0, min(WARM_UP_STEPS, steps_left - self.steps))
        try:
            yield
        finally:
            self._stop()

    def on_train_batch_begin(self, batch, logs=None):
        if self.done == self.start:
            tf.profiler.experimental.start(self.directory)
            self.running = True
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.done += 1
        if self.running:
            self.seconds.append(time.perf_counter() - self._began)
        if self.done == self.start + self.steps:
            self._stop()

    def _stop(self):
        if self.running:
            tf.profiler.experimental.stop()
        self.running = False


def history_columns(history: list[dict]) -> dict[str, list]:
    """Transpose one dict per epoch into one list per log name; None where an epoch lacks the log."""
    names = list(dict.fromkeys(name for row in history for name in row))
    return {name: [row.get(name) for row in history] for name in names}


def _table(columns: dict[str, list]) -> str:
    """Return columns as CSV, with an empty field for None."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *zip(*columns.values(), strict=True)])
    return text.getvalue()


def _is_state(state: dict) -> bool:
    """Return True if a checkpoint's state has the entries that `Loop` writes, by type."""
    return (
        all(isinstance(state.get(name), kind) for name, kind in _STATE.items())
        and all(
            isinstance(row, dict) and all(isinstance(entry, _NUMBER) for entry in row.values())
            for row in state["history"]
        )
        and all(
            isinstance(item, dict)
            and isinstance(item.get("class"), str)
            and isinstance(item.get("values"), dict)
            and all(isinstance(entry, _NUMBER) for entry in item["values"].values())
            for item in state["callbacks"]
        )
    )


class StopFlag:
    """A flag that a signal sets and the training loop reads between steps; `requested` is the signal's name."""

    def __init__(self):
        self.requested: str | None = None


@contextlib.contextmanager
def deferred_signals() -> Iterator[StopFlag]:
    """Make SIGTERM and SIGINT set the yielded flag instead of ending the process, until the context exits."""
    flag = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag  # Python delivers signals to the main thread only.
        return

    def remember(number, _frame):
        flag.requested = signal.Signals(number).name

    before = {number: signal.signal(number, remember) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
