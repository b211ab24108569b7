"""Which worker of a cluster this process is, and what the workers must agree on between steps."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import threading
import time
from collections.abc import Callable

import tensorflow as tf

from tfrobust.errors import InputError

# What a collective raises when a worker is gone. Unknown: a connection cut in the middle of a message.
_LOSSES = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)

# Seconds until a worker says whom it waits for.
_PATIENCE = 20.0

_joined = threading.Event()


class WorkerLost(RuntimeError):
    """Another worker of the cluster is gone. Restarting the same command on all of them resumes."""


@dataclasses.dataclass(frozen=True)
class Worker:
    """This process among the processes of a run; the only one, and the chief, outside a cluster."""

    index: int = 0
    count: int = 1

    @property
    def chief(self) -> bool:
        """Whether this worker writes checkpoints, shows progress, evaluates and publishes."""
        return self.index == 0


def join() -> tf.distribute.Strategy:
    """The strategy of the workers that TF_CONFIG names; returns when all of them are there.

    Raises:
        InputError: TF_CONFIG is missing or says something else, or this worker's port is taken.
    """
    own, others = _addresses(os.environ.get("TF_CONFIG"))
    _meet(own, others)
    _joined.set()
    return tf.distribute.MultiWorkerMirroredStrategy()


def joined() -> bool:
    """Whether this process waits for others when TensorFlow shuts down, for ever if they are gone."""
    return _joined.is_set()


def this_worker(strategy: tf.distribute.Strategy) -> Worker:
    """Which worker this process is, from the strategy's TF_CONFIG."""
    resolver = getattr(strategy, "cluster_resolver", None)
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) or not resolver.task_type:
        return Worker()
    tasks = resolver.cluster_spec().as_dict()
    chiefs, workers = len(tasks.get("chief", [])), len(tasks.get("worker", []))
    first = 0 if resolver.task_type == "chief" else chiefs
    return Worker(index=first + (resolver.task_id or 0), count=chiefs + workers)


def own_folder(folder: pathlib.Path, worker: Worker) -> pathlib.Path:
    """Where a worker's callbacks write: the chief into the workdir itself, another into a folder of its own in it."""
    own = folder if worker.chief else folder / "workers" / str(worker.index)
    own.mkdir(parents=True, exist_ok=True)
    return own


class Agreement:
    """What all workers know as soon as one does. Each call returns when all of them have made it.

    A checkpoint reads variables of all workers, so all must write it after the same step, whichever worker's clock
    or signal asked for it.
    """

    def __init__(self, strategy: tf.distribute.Strategy, worker: Worker):
        self._strategy, self._worker = strategy, worker
        self._sum = tf.function(lambda values: strategy.reduce("SUM", values, axis=None), autograph=False)

    def any(self, *flags) -> tuple[bool, ...]:
        """Each flag, or'ed over the workers."""
        return tuple(total > 0 for total in self._totals([bool(flag) for flag in flags]))

    def check_step(self, step: int) -> None:
        """Refuses to go on where another worker has restored another step.

        Raises:
            InputError: the workers do not see the same checkpoints.
        """
        count = self._worker.count
        total, squares = self._totals([step, step * step])
        if count * squares != total * total:  # equal if and only if all steps are
            raise InputError(
                f"worker {self._worker.index} of {count} is at step {step}, others are not: all workers need the same "
                "--workdir, on storage that they share."
            )

    @contextlib.contextmanager
    def after_chief(self):
        """What is inside is done by the chief first, then by the others."""
        if not self._worker.chief:
            self.wait()
        yield
        if self._worker.chief:
            self.wait()

    def wait(self) -> None:
        """Returns when all workers are here. A signal may end the wait."""
        if self._worker.count > 1:
            with watched(self._worker):
                _interruptible(lambda: self.any(False))

    def part(self, *, alone: bool = False) -> None:
        """The last that the workers do together: waits for all, and lets nobody leave before all know that.

        Args:
            alone: whether this worker has nothing to lose when the others are gone already.

        Raises:
            WorkerLost: another worker left before it came here.
        """
        with contextlib.suppress(WorkerLost) if alone else contextlib.nullcontext():
            self.wait()
        # A worker that left right after this first wait could cut off another one's last message of it.
        with contextlib.suppress(WorkerLost):
            self.wait()

    def _totals(self, numbers: list) -> list[float]:
        if self._worker.count == 1:
            return [float(number) for number in numbers]
        here = tf.constant(numbers, tf.float64)
        local = self._strategy.num_replicas_in_sync // self._worker.count
        values = self._strategy.experimental_distribute_values_from_function(lambda context: here)
        return (self._sum(values).numpy() / local).tolist()


@contextlib.contextmanager
def watched(worker: Worker, step: int | None = None):
    """Turns what TensorFlow says when a worker is gone into one clear sentence.

    Raises:
        WorkerLost: a collective failed because another worker is gone.
    """
    try:
        yield
    except _LOSSES as error:
        if worker.count == 1:
            raise
        where = "" if step is None else f" after step {step}"
        raise WorkerLost(
            f"worker {worker.index} of {worker.count} lost contact with the others{where}; "
            "restart the same command on all workers to resume."
        ) from error


def _interruptible(call: Callable):
    """What the call returns. It waits in a thread of its own, as Python hears signals only between its own lines."""
    outcome = {}

    def work():
        try:
            outcome["value"] = call()
        except BaseException as error:  # of whichever kind: it is raised where the call was made
            outcome["error"] = error

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def _addresses(text: str | None) -> tuple[str, list[str]]:
    """This worker's address and those of all others.

    Raises:
        InputError: a TF_CONFIG that TensorFlow would misread, wait on for ever, or answer with a riddle.
    """
    example = '\'{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}\''
    if not text:
        raise InputError(f"STRATEGY is 'multi_worker', but TF_CONFIG is not set; on the first of two: {example}.")
    try:
        found = json.loads(text)
        kind, index = found["task"]["type"], int(found["task"]["index"])
        everyone = [(job, place) for job in ("chief", "worker") for place in range(len(found["cluster"].get(job, ())))]
        address = {one: found["cluster"][one[0]][one[1]] for one in everyone}
        own = address.pop((kind, index))
        for one in (own, *address.values()):
            int(one.rpartition(":")[2])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"TF_CONFIG names no worker of its cluster; on the first of two: {example}.") from error
    return own, list(address.values())


def _meet(own: str, others: list[str]) -> None:
    """Returns when every worker has been there. TensorFlow waits for them too, but deaf to every signal."""
    port, said = int(own.rpartition(":")[2]), False
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        server = socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise InputError(f"TF_CONFIG gives this worker the port {port}, but: {error.strerror}.") from error
    with server:  # TensorFlow's own server takes its place
        started = time.monotonic()
        while others := [address for address in others if not _answers(address)]:
            if not said and time.monotonic() - started > _PATIENCE:
                print(f"waiting for the workers at {', '.join(others)}", flush=True)
                said = True
            time.sleep(0.2)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except OSError:
        return False
    return True
