"""Fresh processes without the seconds that importing TensorFlow takes: one process imports it, and forks.

    child = processes.start("tfrobust.train:main", [["--gin_file=..."]], cwd=folder)
    child.wait().code

A child is the leader of its own process group and has its own standard output and error. *Traps* end it, or
send it a signal, at an exact place, such as the third time that it is about to rename something.
"""

import atexit
import contextlib
import functools
import importlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

TESTS = pathlib.Path(__file__).resolve().parents[1]

# What makes a file or a name last: between any two of these a kill may leave something half-done.
CRITICAL = ("os:fsync", "os:rename", "os:replace", "os:link")


class Trap(NamedTuple):
    """Sends `signal` just before the `call`-th call of all of `targets`, "module:qualified.name", or so much later.

    SIGKILL goes to the whole process group, other signals to the process.
    """

    targets: Sequence[str]
    call: int
    signal: int = signal.SIGKILL
    delay: float = 0.0


class Ended(NamedTuple):
    """How a process ended: exit code, minus the signal if one killed it, what it wrote, and the seconds since a trap
    sent its signal (None if none did)."""

    code: int
    out: str
    err: str
    seconds: float | None = None


class Child:
    """A process that runs."""

    def __init__(self, pid: int, folder: pathlib.Path, replies):
        self.pid, self._folder, self._replies = pid, folder, replies

    def written(self, stream: str = "out") -> str:
        """What it has written so far."""
        return (self._folder / stream).read_text()

    def kill(self) -> None:
        """Kills it and whatever it started, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        """Waits for its end."""
        code = json.loads(self._replies.readline())["code"]
        sent = self._folder / "sent"
        seconds = time.monotonic() - float(sent.read_text()) if sent.exists() else None
        ended = Ended(code, self.written("out"), self.written("err"), seconds)
        shutil.rmtree(self._folder)
        return ended


def start(function: str, arguments: Sequence = (), *, cwd, traps: Sequence[Trap] = (), counts: Sequence[str] = ()):
    """Starts a process; the one before it must have been waited for.

    Args:
        function: "module:name", called with `arguments`; what it returns is the exit code (None is 0).
        arguments: what JSON holds.
        cwd: the folder it runs in.
        traps: where it gets signals.
        counts: targets whose calls are counted; the last line of standard error is then their number.

    Returns:
        The running `Child`.
    """
    parent = _parent()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tfrobust-process-"))
    order = dict(
        function=function,
        arguments=list(arguments),
        cwd=str(cwd),
        folder=str(folder),
        traps=[list(trap) for trap in traps],
        counts=list(counts),
    )
    parent.stdin.write(json.dumps(order) + "\n")
    parent.stdin.flush()
    return Child(json.loads(parent.stdout.readline())["pid"], folder, parent.stdout)


def run(function: str, arguments: Sequence = (), **keywords) -> Ended:
    """Starts a process and waits for its end."""
    return start(function, arguments, **keywords).wait()


@functools.cache
def _parent() -> subprocess.Popen:
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "MPLBACKEND": "Agg"}
    parent = subprocess.Popen(
        [sys.executable, "-m", "faults.processes"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        cwd=tempfile.gettempdir(),
    )
    atexit.register(parent.kill)
    return parent


# ------------------------------------------------------------------------------- inside the parent and the child


def _serve() -> None:
    import tensorflow  # noqa: F401 - imported once for all; nothing of it may run before the forks

    from tfrobust import evaluate, experiment, export, train  # noqa: F401
    from tfrobust.configuration import registry

    registry.collect(())
    replies = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            replies.close()
            _live(order)
        replies.write(json.dumps({"pid": pid}) + "\n")
        replies.flush()
        _, status = os.waitpid(pid, 0)
        replies.write(json.dumps({"code": os.waitstatus_to_exitcode(status)}) + "\n")
        replies.flush()


def _live(order: dict) -> None:
    import traceback

    code = 1
    try:
        os.setsid()
        # Started in the background of a shell, Ctrl-C would be ignored from the beginning.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(order["cwd"])
        for number, name in ((0, os.devnull), (1, f"{order['folder']}/out"), (2, f"{order['folder']}/err")):
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT)
            os.dup2(descriptor, number)
        for trap in order["traps"]:
            _set(Trap(*trap), order["folder"])
        counter = _set(Trap(order["counts"], -1), order["folder"]) if order["counts"] else None
        module, _, name = order["function"].partition(":")
        code = getattr(importlib.import_module(module), name)(*order["arguments"]) or 0
        if counter:
            print(counter[0], file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _set(trap: Trap, folder: str) -> list[int]:
    calls = [0]
    for target in trap.targets:
        module, _, qualified = target.partition(":")
        owner = importlib.import_module(module)
        *parents, name = qualified.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, name, _trapped(getattr(owner, name), calls, trap, folder))
    return calls


def _trapped(original, calls: list[int], trap: Trap, folder: str):
    def send():
        pathlib.Path(folder, "sent").write_text(str(time.monotonic()))  # one clock for all processes
        (os.killpg if trap.signal == signal.SIGKILL else os.kill)(os.getpid(), trap.signal)

    def called(*arguments, **keywords):
        calls[0] += 1
        if calls[0] == trap.call:
            if trap.delay:
                timer = threading.Timer(trap.delay, send)
                timer.daemon = True
                timer.start()
            else:
                send()
        return original(*arguments, **keywords)

    return called


if __name__ == "__main__":
    _serve()
