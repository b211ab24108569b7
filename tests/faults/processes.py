"""Fresh processes without the seconds that importing TensorFlow takes: one process imports it, and forks.

    child = processes.start("tfrobust.train:main", [["--gin_file=..."]], cwd=folder)
    child.wait().code

A child is the leader of its own process group and has its own standard output and error. *Traps* end it, or
send it a signal, at an exact place, such as the third time that it is about to rename something. When the process of
the tests ends, in whatever way, the process that forks ends too, and with it all children.
"""

import atexit
import contextlib
import ctypes
import functools
import importlib
import json
import os
import pathlib
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import NamedTuple
from unittest import mock

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
    """How a process ended: exit code, minus the signal if one killed it, what it wrote, and how many of the counted
    calls it made after a trap had sent its signal (None if none did, or if it was killed)."""

    code: int
    out: str
    err: str
    later: int | None = None


class Child:
    """A process that runs."""

    def __init__(self, folder: pathlib.Path, news):
        self._folder, self._news, self._ended = folder, news, None
        self.pid = int(news.readline())

    def written(self, stream: str = "out") -> str:
        """Return what it has written so far, to "out" or "err"."""
        return getattr(self._ended, stream) if self._ended else (self._folder / stream).read_text()

    def kill(self) -> None:
        """Kill it and whatever it started, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        """Wait for its end."""
        if self._ended is None:
            code = int(self._news.readline())
            self._news.close()
            later = self._folder / "later"
            calls = int(later.read_text()) if later.exists() else None
            self._ended = Ended(code, self.written("out"), self.written("err"), calls)
            shutil.rmtree(self._folder)
        return self._ended


def start(
    function: str,
    arguments: Sequence = (),
    *,
    cwd,
    traps: Sequence[Trap] = (),
    counts: Sequence[str] = (),
    environment: dict[str, str] | None = None,
) -> Child:
    """Start a process. Several may run at a time.

    Args:
        function: "module:name", called with `arguments`; what it returns is the exit code (None is 0).
        arguments: what JSON holds.
        cwd: the folder it runs in.
        traps: where it gets signals.
        counts: targets whose calls are counted; the last line of standard error is then their number, unless a trap
            sent its signal: then those after it are `Ended.later`.
        environment: variables that it has besides those of the server.

    Returns:
        The running `Child`.
    """
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tfrobust-process-"))
    order = dict(
        function=function,
        arguments=list(arguments),
        cwd=str(cwd),
        traps=[list(trap) for trap in traps],
        counts=list(counts),
        environment=environment or {},
    )
    (folder / "order").write_text(json.dumps(order))
    for stream in ("out", "err"):
        (folder / stream).touch()
    news, teller = os.pipe()
    try:
        socket.send_fds(_server(), [str(folder).encode()], [teller])
    finally:
        os.close(teller)
    return Child(folder, os.fdopen(news))


def run(function: str, arguments: Sequence = (), **keywords) -> Ended:
    """Start a process and wait for its end."""
    return start(function, arguments, **keywords).wait()


def run_file(path: str, arguments: Sequence[str], absent: Sequence[str] = ()) -> int:
    """Run a Python file as a program in this process, for `start`: its exit code.

    Args:
        path: of the file.
        arguments: its command line.
        absent: packages in whose place it may import anything, so that a program of another environment says `--help`.
    """
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(path))
    sys.modules.update({name: mock.MagicMock() for name in absent})
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


@functools.cache
def _server() -> socket.socket:
    """Start the process that imports TensorFlow and forks; it ends when this end of its socket is closed."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "MPLBACKEND": "Agg"}
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-m", "faults.processes"],
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=tempfile.gettempdir(),
    )
    theirs.close()
    atexit.register(_stop, ours, process, os.getpid())
    return ours


def _stop(server: socket.socket, process: subprocess.Popen, starter: int) -> None:
    if os.getpid() == starter:  # and no fork of it
        server.close()
        process.wait(timeout=10)


def die_with(parent: int) -> None:
    """Let the kernel kill this process when `parent`, which started it, has died in whatever way (on Linux)."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


# ---------------------------------------------------------------------- inside the server, a keeper and a child


def _serve() -> None:
    import tensorflow  # noqa: F401 - imported once for all; nothing of it may run before the forks

    from tfrobust.commands import evaluate, export, train  # noqa: F401
    from tfrobust.commands.configuration import registry
    from tfrobust.runs import experiment  # noqa: F401

    registry.collect(())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are not waited for
    server = os.getpid()
    with socket.socket(fileno=os.dup(0)) as orders:
        while True:
            folder, tellers, _, _ = socket.recv_fds(orders, 4096, 1)
            if not folder:
                os._exit(0)  # at once: TensorFlow takes seconds to leave
            if os.fork() == 0:
                orders.close()
                _keep(pathlib.Path(folder.decode()), tellers[0], server)
            os.close(tellers[0])


def _keep(folder: pathlib.Path, teller: int, server: int) -> None:
    """Fork a child, which tells its id, wait for it, and tell its exit code: for each child a process of its own."""
    die_with(server)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _live(folder, teller, keeper)
    _, status = os.waitpid(pid, 0)
    os.write(teller, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _live(folder: pathlib.Path, teller: int, keeper: int) -> None:
    import traceback

    code = 1
    try:
        die_with(keeper)
        os.setsid()
        os.write(teller, f"{os.getpid()}\n".encode())  # from here on `kill` reaches it
        os.close(teller)
        # Started in the background of a shell, Ctrl-C would be ignored from the beginning.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        order = json.loads((folder / "order").read_text())
        os.chdir(order["cwd"])
        os.environ.update(order["environment"])
        sys.path.insert(0, order["cwd"])  # as `python -m` does
        for number, name in ((0, os.devnull), (1, folder / "out"), (2, folder / "err")):
            descriptor = os.open(name, os.O_RDWR)
            os.dup2(descriptor, number)
        counter = _set(Trap(order["counts"], -1), folder, [0])
        for trap in order["traps"]:
            _set(Trap(*trap), folder, counter)
        module, _, name = order["function"].partition(":")
        code = getattr(importlib.import_module(module), name)(*order["arguments"]) or 0
        if (folder / "sent").exists():
            (folder / "later").write_text(str(counter[0] - int((folder / "sent").read_text())))
        elif order["counts"]:
            print(counter[0], file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _set(trap: Trap, folder: pathlib.Path, counter: list[int]) -> list[int]:
    """Trap the targets; returns their calls so far. `counter`: the calls that a signal notes when it is sent."""
    calls = [0]
    for target in trap.targets:
        module, _, qualified = target.partition(":")
        owner = importlib.import_module(module)
        *parents, name = qualified.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, name, _trapped(getattr(owner, name), calls, trap, folder, counter))
    return calls


def _trapped(original, calls: list[int], trap: Trap, folder: pathlib.Path, counter: list[int]):
    def send():
        (folder / "sent").write_text(str(counter[0]))
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
