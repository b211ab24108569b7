"""Run a worker's tests in a child process that is replaced once it holds too much memory.

TensorFlow never frees the graph of a function with a loop, so a worker that runs the whole suite in one process grows
to several gigabytes. With `pytest -n`, each worker therefore imports TensorFlow once and forks. The fork collects the
files again whose tests it is given, runs these tests and sends their reports back. Between two test files it is
replaced if it holds more than `LIMIT` bytes. A test that kills its process fails, and the next test gets a new process.
Without `-n` nothing of this happens.
"""

import atexit
import ctypes
import multiprocessing
import os
import signal
import sys
import traceback

import pytest

LIMIT = 1_400_000_000


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session):
    if hasattr(session.config, "workerinput") and sys.platform == "linux":
        session.config.pluginmanager.register(_Children(session))


class _Children:
    """The worker's side: hands each test to the child and passes its reports on."""

    def __init__(self, session):
        _die_with_parent()
        _import_quietly()
        # A process that never runs TensorFlow: a fork of one that does would lack its threads.
        self._orders, orders = multiprocessing.Pipe()
        self._server = os.fork()
        if self._server == 0:
            self._orders.close()
            _serve(session, orders)
        orders.close()
        self._child = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        if self._child is None:
            self._orders.send("start")
            self._child = self._orders.recv()
        last = nextitem is None or (nextitem.path != item.path and _resident(self._child) > LIMIT)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item, None if last else nextitem.nodeid):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if last:
            self._child = None
        return True

    def pytest_sessionfinish(self):
        self._orders.close()
        os.waitpid(self._server, 0)  # the children write their coverage when they end

    def _reports(self, item, following):
        self._orders.send((item.nodeid, following))
        while True:
            kind, value = self._orders.recv()
            if kind == "end":
                return
            if kind in ("error", "died"):
                text = value if kind == "error" else f"the test's process ended with code {value}"
                yield pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
            if kind == "died":
                self._child = None
                return
            if kind == "report":
                yield item.config.hook.pytest_report_from_serializable(config=item.config, data=value)


def _import_quietly() -> None:
    """Import TensorFlow once, before the forks, without what its libraries write while they load."""
    standard_error, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        import keras  # noqa: F401
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(nothing)


def _resident(pid: int) -> int:
    """Return the bytes of memory that a process holds, 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _die_with_parent() -> None:
    prctl_set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(prctl_set_parent_death_signal, signal.SIGKILL)


def _serve(session, orders) -> None:
    """Fork a child for each "start" and relay what it says; report its exit code if it dies in a test."""
    _die_with_parent()
    child = None
    try:
        while True:
            order = orders.recv()
            if order == "start":
                ours, theirs = multiprocessing.Pipe()
                pid = os.fork()
                if pid == 0:
                    ours.close()
                    _live(session, theirs)
                theirs.close()
                child = ours
                orders.send(pid)
                continue
            try:
                child.send(order)
                message = (None, None)
                while message[0] != "end":
                    message = child.recv()
                    orders.send(message)
                if order[1] is None:
                    os.waitpid(pid, 0)
            except (EOFError, OSError):
                orders.send(("died", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    finally:
        os._exit(0)


def _live(session, orders) -> None:
    """Run the tests ordered, and end after the one that has no successor."""
    _die_with_parent()
    atexit._clear()  # what the worker registered is the worker's
    plugins = session.config.pluginmanager
    for plugin in list(plugins.get_plugins()):
        if type(plugin).__name__ in ("WorkerInteractor", "TerminalReporter", "_Children"):
            plugins.unregister(plugin)
    plugins.unregister(name="tiers")  # the worker has chosen
    closed = _Closed()
    plugins.register(closed)
    plugins.register(_Sender(session.config, orders))
    try:
        session.perform_collect([name.partition("::")[0] for name in session.config.args])
        plugins.unregister(closed)
        items = {}

        def find(name):
            if name not in items:
                items.update((item.nodeid, item) for item in session.genitems(closed.files[name.partition("::")[0]]))
            return items[name]

        following = ""
        while following is not None:
            name, following = orders.recv()
            item, successor = find(name), None if following is None else find(following)
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=successor)
            if following is None:
                atexit._run_exitfuncs()
            orders.send(("end", None))
    except EOFError:
        atexit._run_exitfuncs()
    except BaseException:
        orders.send(("error", traceback.format_exc()))
    finally:
        os._exit(0)


class _Closed:
    """Keeps the nodes of test files, and lets pytest take each for empty without importing it."""

    def __init__(self):
        self.files = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector):
        if not isinstance(collector, pytest.Module):
            return None
        self.files[collector.nodeid] = collector
        return pytest.CollectReport(collector.nodeid, "passed", None, [])


class _Sender:
    """Sends the reports of the tests to the worker."""

    def __init__(self, config, orders):
        self._config, self._orders = config, orders

    def pytest_collectreport(self, report):
        if report.failed:  # the worker could collect this
            raise RuntimeError(f"{report.nodeid} cannot be collected again:\n{report.longreprtext}")

    def pytest_runtest_logreport(self, report):
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._orders.send(("report", data))
