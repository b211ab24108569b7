#!/usr/bin/env python3
"""Runs a training command on several workers of this machine, to try STRATEGY='multi_worker'.

    python tools/local_cluster.py --workers=2 -- --gin_file=gin/ascl.gin --gin_param="EPOCHS=2"

What follows `--` are the flags of `python -m tfrobust.train`; STRATEGY='multi_worker' is added. Each worker gets a
TF_CONFIG with free ports of the loopback interface, and its lines begin with its number. The workers share one
workdir; worker 0 is the chief: it writes checkpoints, shows progress, evaluates and publishes.

One for all: when a worker fails, the others notice and end by themselves; who is still there after --grace seconds
is killed. A worker cannot join again on its own, so --restarts starts all of them anew, and they resume. Ctrl-C and
SIGTERM are passed on: all workers stop after the same step, with their state saved.

Exit code: 0 all workers are done; otherwise the one of the worker that failed first (75: stopped on request, run
again to resume), 128 + n if it was killed by signal n.
"""

import argparse
import contextlib
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
# Below the ports that systems give to outgoing connections: nobody takes one between our look and a worker's bind.
PORTS = range(20000, 32000)


def free_ports(count: int) -> list[int]:
    """Distinct ports of the loopback interface that nobody listens on."""
    found = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"fewer than {count} of the ports {PORTS.start} to {PORTS.stop - 1} are free")


def environment(index: int, ports: list[int]) -> dict[str, str]:
    """The environment of one worker."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    task = {"type": "worker", "index": index}
    return {**os.environ, "PYTHONUNBUFFERED": "1", "TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


class Gang:
    """The workers of one attempt. Each leads a process group, so that a signal to us reaches it through us alone."""

    def __init__(self, command: list[str], count: int):
        ports = free_ports(count)
        self.workers, self._readers, self._first = [], [], None
        for index in range(count):
            worker = subprocess.Popen(
                command,
                env=environment(index, ports),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self.workers.append(worker)
            reader = threading.Thread(target=_relay, args=(worker.stdout, index), daemon=True)
            reader.start()
            self._readers.append(reader)

    def send(self, number: int) -> None:
        """Sends a signal to every worker that still runs, and to what it started."""
        for worker in self.workers:
            if worker.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.pid, number)

    def wait(self, grace: float, stop: threading.Event) -> int:
        """Waits for all; from the first failure or the request to stop on, `grace` seconds at most."""
        deadline = None
        while any(worker.poll() is None for worker in self.workers):
            if deadline is None and (stop.is_set() or self._failure() is not None):
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
        """The exit code of the worker that failed first, as a shell would give it."""
        if self._first is None:
            codes = [worker.poll() for worker in self.workers if worker.poll()]
            # A signal from outside is the cause where others only saw its effect.
            self._first = min(codes, default=None)
        return self._first if self._first is None or self._first >= 0 else 128 - self._first


def _relay(stream, index: int) -> None:
    for line in stream:
        print(f"[{index}] {line.rstrip()}", flush=True)


def run(command: list[str], workers: int, restarts: int, grace: float) -> int:
    """Runs the command on all workers, again after a failure while `restarts` last; returns the exit code."""
    stop, gangs = threading.Event(), []

    def forward(number, _frame):
        again = stop.is_set()
        stop.set()
        for gang in gangs[-1:]:
            gang.send(signal.SIGKILL if again else number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for left in reversed(range(restarts + 1)):
            if stop.is_set():
                return STOPPED
            gangs.append(Gang(command, workers))
            code = gangs[-1].wait(grace, stop)
            if stop.is_set() or not left or code in (DONE, WRONG_INPUT, REFUSED, STOPPED):
                return code
            print(f"a worker ended with {code}: starting all again ({left} restarts left)", flush=True)
    finally:
        for gang in gangs[-1:]:
            gang.send(signal.SIGKILL)
        for number, handler in before.items():
            signal.signal(number, handler)


def parser() -> argparse.ArgumentParser:
    """The tool's flags."""
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    flags.add_argument("--workers", type=int, default=2, metavar="N", help="how many; default: 2")
    flags.add_argument("--restarts", type=int, default=0, metavar="N", help="how often all start again; default: 0")
    flags.add_argument(
        "--grace", type=float, default=60.0, metavar="SECONDS", help="from failure or Ctrl-C to SIGKILL; default: 60"
    )
    flags.add_argument("train_flags", nargs="+", metavar="FLAG", help="of `python -m tfrobust.train`, after --")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Runs the tool; returns the exit code."""
    flags = parser().parse_args(arguments)
    if flags.workers < 1 or flags.restarts < 0 or flags.grace <= 0:
        print("error: --workers counts from 1, --restarts from 0, and --grace is above 0.", file=sys.stderr)
        return WRONG_INPUT
    command = [sys.executable, "-m", "tfrobust.train", *flags.train_flags, "--gin_param=STRATEGY='multi_worker'"]
    return run(command, flags.workers, flags.restarts, flags.grace)


if __name__ == "__main__":
    sys.exit(main())
