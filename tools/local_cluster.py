#!/usr/bin/env python3
"""Run a training command on several workers of this machine, to try STRATEGY='multi_worker'.

    python tools/local_cluster.py --workers=2 -- --gin_file=gin/ascl.gin --gin_param="EPOCHS=2"

The flags after `--` are those of `python -m tfrobust.train`; STRATEGY='multi_worker' is added. Each worker gets a
TF_CONFIG with free ports of the loopback interface, and its output lines begin with its number. The workers share one
workdir. Worker 0 is the chief: it writes checkpoints, shows progress, evaluates and publishes.

When a worker fails, the others notice and end by themselves; workers that still run after --grace seconds are killed. A
single worker cannot rejoin, so --restarts starts all of them again, and they resume. Ctrl-C and SIGTERM are passed on:
all workers stop after the same step, with their state saved.

Exit code: 0 if all workers are done; otherwise that of the worker that failed first (75: stopped on request, run again
to resume), or 128 + n if it was killed by signal n. No worker outlives this tool.
"""

import argparse
import contextlib
import ctypes
import functools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

DONE, WRONG_INPUT, REFUSED, STOPPED = 0, 2, 3, 75
# Below the ephemeral ports, so that no outgoing connection takes a port between our check and a worker's bind.
PORTS = range(20000, 32000)


def free_ports(count: int) -> list[int]:
    """Return distinct ports of the loopback interface on which no process listens."""
    ports = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"fewer than {count} of the ports {PORTS.start} to {PORTS.stop - 1} are free")


def environment(index: int, ports: list[int]) -> dict[str, str]:
    """Return the environment of one worker."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    task = {"type": "worker", "index": index}
    return {**os.environ, "PYTHONUNBUFFERED": "1", "TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def die_with(parent: int) -> None:
    """Make the kernel kill this process when `parent`, which starts it, ends in any way (on Linux)."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


class Gang:
    """The workers of one attempt. Each leads a process group, so that signals reach it only through this process."""

    def __init__(self, command: list[str], count: int):
        ports = free_ports(count)
        self._first = None
        # All processes start before the threads: after a fork in a process with threads, Python code is not safe.
        self.workers = [
            subprocess.Popen(
                command,
                env=environment(index, ports),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                preexec_fn=functools.partial(die_with, os.getpid()),
            )
            for index in range(count)
        ]
        self._readers = [
            threading.Thread(target=_relay, args=(worker.stdout, index), daemon=True)
            for index, worker in enumerate(self.workers)
        ]
        for reader in self._readers:
            reader.start()

    def send(self, number: int) -> None:
        """Send a signal to every worker that still runs, and to the processes it started."""
        for worker in self.workers:
            if worker.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.pid, number)

    def wait(self, grace: float, asked: list[int]) -> int:
        """Wait for all workers, and pass on the signals in `asked`, to which more may be appended.

        From the first failure or the first signal on it waits `grace` seconds at most; a second signal kills.
        """
        deadline, passed = None, 0
        while any(worker.poll() is None for worker in self.workers):
            for number in asked[passed:]:
                self.send(number if passed == 0 else signal.SIGKILL)
                passed += 1
            if deadline is None and (asked or self._failure() is not None):
                deadline = time.monotonic() + grace
            if deadline is not None and time.monotonic() > deadline:
                late = [str(index) for index, worker in enumerate(self.workers) if worker.poll() is None]
                print(f"killing worker {', '.join(late)}: still there after {grace:g} seconds", flush=True)
                self.send(signal.SIGKILL)
                deadline = float("inf")
            time.sleep(0.1)
        for reader in self._readers:
            reader.join(timeout=5)
        return self._failure() or DONE

    def _failure(self) -> int | None:
        """Return the exit code of the worker that failed first, as a shell would report it."""
        if self._first is None:
            codes = [worker.poll() for worker in self.workers if worker.poll()]
            # The smallest code counts: a worker killed by a signal (negative) caused the failures of the others.
            self._first = min(codes, default=None)
        return self._first if self._first is None or self._first >= 0 else 128 - self._first


def _relay(stream, index: int) -> None:
    for line in stream:
        print(f"[{index}] {line.rstrip()}", flush=True)


def run(command: list[str], workers: int, restarts: int, grace: float) -> int:
    """Run the command on all workers, again after a failure while `restarts` last; return the exit code."""
    # The handler only records a signal, so that one that arrives while workers are started is not lost.
    asked: list[int] = []
    before = {
        signum: signal.signal(signum, lambda number, _: asked.append(number))
        for signum in (signal.SIGINT, signal.SIGTERM)
    }
    gang = None
    try:
        for restarts_left in reversed(range(restarts + 1)):
            if asked:
                return STOPPED
            gang = Gang(command, workers)
            code = gang.wait(grace, asked)
            if asked or not restarts_left or code in (DONE, WRONG_INPUT, REFUSED, STOPPED):
                return code
            print(f"a worker ended with {code}: starting all again ({restarts_left} restarts left)", flush=True)
    finally:
        if gang is not None:
            gang.send(signal.SIGKILL)
        for number, handler in before.items():
            signal.signal(number, handler)


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    flags.add_argument("--workers", type=int, default=2, metavar="N", help="how many; default: 2")
    flags.add_argument("--restarts", type=int, default=0, metavar="N", help="how often all start again; default: 0")
    flags.add_argument(
        "--grace", type=float, default=30.0, metavar="SECONDS", help="from failure or Ctrl-C to SIGKILL; default: 30"
    )
    flags.add_argument("train_flags", nargs="+", metavar="FLAG", help="of `python -m tfrobust.train`, after --")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; return the exit code."""
    flags = parser().parse_args(arguments)
    if flags.workers < 1 or flags.restarts < 0 or flags.grace <= 0:
        print("error: --workers counts from 1, --restarts from 0, and --grace is above 0.", file=sys.stderr)
        return WRONG_INPUT
    command = [sys.executable, "-m", "tfrobust.train", *flags.train_flags, "--gin_param=STRATEGY='multi_worker'"]
    return run(command, flags.workers, flags.restarts, flags.grace)


if __name__ == "__main__":
    sys.exit(main())
