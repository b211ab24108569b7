"""Multi-worker training: this process's place in the cluster, and agreement between the workers."""

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

from tfrobust.errors import Failure, InputError
from tfrobust.training.cluster_config import tf_config

# Errors of a collective after a worker was lost. UnknownError: the connection was cut in the middle of a message.
_LOSSES = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)

# Seconds until a worker prints which workers it waits for.
_PATIENCE = 20.0

_joined = threading.Event()


class WorkerLost(Failure, RuntimeError):
    """Another worker of the cluster was lost. Restarting the same command on all workers resumes."""


@dataclasses.dataclass(frozen=True)
class Worker:
    """The index of this process among the workers; outside a cluster it is the only one, and the chief."""

    index: int = 0
    count: int = 1

    @property
    def chief(self) -> bool:
        """True if this worker writes checkpoints, shows progress, evaluates and publishes."""
        return self.index == 0


def join() -> tf.distribute.Strategy:
    """Create the strategy of the cluster's workers; return once all of them are running.

    TF_CONFIG names the workers. It is set here from the variables of Kubernetes or Slurm if only those are given.

    Raises:
        InputError: no cluster is described or its description is invalid, or this worker's port is taken.
    """
    config = tf_config(os.environ)
    own_address, peers = _addresses(config)
    os.environ["TF_CONFIG"] = config
    _meet(own_address, peers)
    _joined.set()
    return tf.distribute.MultiWorkerMirroredStrategy()


def has_joined() -> bool:
    """Return True after `join`: TensorFlow's shutdown then waits for the other workers, forever if they are gone."""
    return _joined.is_set()


def this_worker(strategy: tf.distribute.Strategy) -> Worker:
    """Return the place of this process in the cluster, from the strategy's TF_CONFIG."""
    resolver = getattr(strategy, "cluster_resolver", None)
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) or not resolver.task_type:
        return Worker()
    tasks = resolver.cluster_spec().as_dict()
    chiefs, workers = len(tasks.get("chief", [])), len(tasks.get("worker", []))
    first = 0 if resolver.task_type == "chief" else chiefs
    return Worker(index=first + (resolver.task_id or 0), count=chiefs + workers)


def own_folder(folder: pathlib.Path, worker: Worker) -> pathlib.Path:
    """Create and return the folder of a worker's callbacks: the workdir for the chief, else a subfolder of it."""
    subfolder = folder if worker.chief else folder / "workers" / str(worker.index)
    subfolder.mkdir(parents=True, exist_ok=True)
    return subfolder


class Agreement:
    """Agreement between all workers. Each method is collective: it returns once all workers have called it.

    A checkpoint reads variables of all workers. Therefore all must write it after the same step, whichever worker's
    clock or signal requested it.
    """

    def __init__(self, strategy: tf.distribute.Strategy, worker: Worker):
        self._strategy, self._worker = strategy, worker
        self._sum = tf.function(lambda values: strategy.reduce("SUM", values, axis=None), autograph=False)

    def any(self, *flags) -> tuple[bool, ...]:
        """Reduce each flag over all workers by logical or."""
        return tuple(total > 0 for total in self._totals([bool(flag) for flag in flags]))

    def check_step(self, step: int) -> None:
        """Raise InputError if another worker has restored a different step."""
        count = self._worker.count
        total, squares = self._totals([step, step * step])
        if count * squares != total * total:  # equal if and only if all steps are
            raise InputError(
                f"worker {self._worker.index} of {count} is at step {step}, others are not: all workers need the same "
                "--workdir, on storage that they share."
            )

    @contextlib.contextmanager
    def after_chief(self):
        """Run the body on the chief first, then on the other workers."""
        if not self._worker.chief:
            self.wait()
        yield
        if self._worker.chief:
            self.wait()

    def wait(self) -> None:
        """Wait for all workers. A signal may end the wait."""
        if self._worker.count > 1:
            with watched(self._worker):
                _interruptible(lambda: self.any(False))

    def final_barrier(self, *, alone: bool = False) -> None:
        """Wait for all workers a last time, so that none leaves before all have arrived.

        Args:
            alone: True if this worker loses nothing when the others are already gone.

        Raises:
            WorkerLost: another worker left before it arrived here.
        """
        with contextlib.suppress(WorkerLost) if alone else contextlib.nullcontext():
            self.wait()
        # A worker that left right after the first wait could cut off another worker's last message of that wait.
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
    """Convert TensorFlow's errors after the loss of a worker into one clear sentence.

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
    """Run a call in its own thread and return its result, so that signals can interrupt the wait.

    Python runs signal handlers only between bytecodes of the main thread, so a long call there would delay them.
    """
    outcome = {}

    def work():
        try:
            outcome["value"] = call()
        except BaseException as error:  # any kind: it is raised again in the calling thread
            outcome["error"] = error

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def _addresses(text: str | None) -> tuple[str, list[str]]:
    """Return this worker's address and those of all others.

    Raises:
        InputError: a TF_CONFIG that TensorFlow would misread, wait on forever, or reject with an unclear error.
    """
    example = '\'{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}\''
    if not text:
        raise InputError(
            "STRATEGY is 'multi_worker', but neither TF_CONFIG nor variables of Kubernetes or Slurm are set; TF_CONFIG "
            f"on the first of two: {example}."
        )
    try:
        parsed = json.loads(text)
        kind, index = parsed["task"]["type"], int(parsed["task"]["index"])
        tasks = [(job, number) for job in ("chief", "worker") for number in range(len(parsed["cluster"].get(job, ())))]
        addresses = {task: parsed["cluster"][task[0]][task[1]] for task in tasks}
        own_address = addresses.pop((kind, index))
        for entry in (own_address, *addresses.values()):
            int(entry.rpartition(":")[2])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"TF_CONFIG names no worker of its cluster; on the first of two: {example}.") from error
    return own_address, list(addresses.values())


def _meet(own_address: str, peers: list[str]) -> None:
    """Wait until every worker is running. TensorFlow would wait for them too, but without reacting to signals."""
    port, announced = int(own_address.rpartition(":")[2]), False
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        server = socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise InputError(f"TF_CONFIG gives this worker the port {port}, but: {error.strerror}.") from error
    with server:  # TensorFlow's own server takes its place
        started = time.monotonic()
        while peers := [address for address in peers if not _reachable(address)]:
            if not announced and time.monotonic() - started > _PATIENCE:
                print(f"waiting for the workers at {', '.join(peers)}", flush=True)
                announced = True
            time.sleep(0.2)


def _reachable(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except OSError:
        return False
    return True
