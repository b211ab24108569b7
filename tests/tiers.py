"""Choose which tests a run takes, by what they cost and what they cover.

`pytest` takes the first tier: every test that is cheap by `durations.json`, and of the costly ones so many that each
test function and each parameter value of a file is there at least once, at the least cost. `pytest --all` takes every
test. A test without a recorded duration counts as cheap. The marks `first` and `rest` decide for a test whatever it
costs, and a test named on the command line by its node id always runs.

`--record` writes the durations of the tests that ran; `--rest` takes what the first tier leaves. `--rest --slice=K/N`
takes the K-th of N equal parts of it; `--touched=A,B` takes, alone or besides, the tests of these folders up to a
limit of time.
"""

import collections
import json
import math
import pathlib
import time

import pytest

DURATIONS = pathlib.Path(__file__).with_name("durations.json")
# Seconds: below, a test always runs; above, it runs with --all only, whatever it alone covers.
CHEAP, COSTLY = 0.15, 0.4
# Seconds of one worker that the tests of touched folders may take in CI.
TOUCHED_SECONDS = 700.0
_RECORDED = pytest.StashKey[dict[str, float]]()


def pytest_addoption(parser):
    group = parser.getgroup("tiers")
    group.addoption("--all", action="store_true", help="run every test, not the first tier alone")
    group.addoption("--rest", action="store_true", help="run only the tests that the first tier leaves out")
    group.addoption("--slice", metavar="K/N", help="with --rest: of N equal parts, the part K modulo N")
    group.addoption(
        "--touched", metavar="A,B", default="", help="with --rest: tests of these folders, alone or beside --slice"
    )
    group.addoption("--record", action="store_true", help="write this run's durations to tests/durations.json")


def pytest_configure(config):
    config.addinivalue_line("markers", "first: belongs to the first tier whatever it costs")
    config.addinivalue_line("markers", "rest: runs with --all only")
    # Read once: a process that is forked later chooses as this one does, whatever --record has written since.
    config.stash[_RECORDED] = recorded()
    if config.getoption("--record") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(config.rootpath))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    # Idle workers take over tests of busy ones, and neighbors, which share what they build, stay together.
    if getattr(config.option, "dist", None) == "load":
        config.option.dist = "worksteal"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if config.getoption("--all") or any("::" in argument for argument in config.args):
        return
    durations = config.stash[_RECORDED]
    first = first_tier(items, durations)
    chosen = first
    if config.getoption("--rest"):
        rest = [item for item in items if item not in first]
        chosen = set(rest)
        touched = [folder for folder in config.getoption("--touched").split(",") if folder]
        if config.getoption("--slice") or touched:
            part, parts = map(int, (config.getoption("--slice") or "0/0").split("/"))
            chosen = set(part_of(rest, durations, part, parts, touched))
        _note_left_out(config, [item for item in rest if item not in chosen])
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]


def recorded() -> dict[str, float]:
    """Return the recorded seconds by node id; tests that took less than 0.1 s are not in it."""
    if not DURATIONS.exists():
        return {}
    files = json.loads(DURATIONS.read_text("utf-8"))
    return {f"{file}::{test}": seconds for file, tests in files.items() for test, seconds in tests.items()}


def first_tier(items, durations: dict[str, float]) -> set:
    """Return the items of the first tier."""
    files = collections.defaultdict(list)
    for item in items:
        files[item.path].append(item)
    return set().union(*(_first_of_file(tests, durations) for tests in files.values()))


def _first_of_file(items, durations) -> set:
    """Return the cheap items and a greedy cover of what the others cover, most new values per second first."""
    costs = {item: durations.get(item.nodeid, 0.0) for item in items}
    chosen = {
        item
        for item in items
        if item.get_closest_marker("first") or (costs[item] <= CHEAP and not item.get_closest_marker("rest"))
    }
    uncovered = {
        item: covered(item)
        for item in items
        if item not in chosen and costs[item] <= COSTLY and not item.get_closest_marker("rest")
    }
    seen = set().union(*map(covered, chosen))
    while uncovered := {item: values - seen for item, values in uncovered.items() if values - seen}:
        best = max(uncovered, key=lambda item: (len(uncovered[item]) / costs[item], item.nodeid))
        chosen.add(best)
        seen |= uncovered.pop(best)
    return chosen


def covered(item) -> set:
    """Return what a test covers: its function and its parameters' values."""
    values = {item.originalname}
    if hasattr(item, "callspec"):
        for name, value in item.callspec.params.items():
            plain = isinstance(value, (str, int, float, bool, type(None)))
            values.add((name, str(value) if plain else item.callspec.indices[name]))
    return values


def part_of(rest, durations, part: int, parts: int, touched) -> list:
    """Return the tests of touched folders, up to their limit of seconds, and one of equal parts of `rest`."""
    costs = [max(durations.get(item.nodeid, 0.0), 0.1) for item in rest]
    chosen, spent, passed, total = [], 0.0, 0.0, math.fsum(costs)
    for item, cost in zip(rest, costs, strict=True):
        middle, passed = passed + cost / 2, passed + cost
        if parts and int(parts * middle / total) == part % parts:
            chosen.append(item)
        elif _is_touched(item, touched) and spent + cost <= TOUCHED_SECONDS:
            chosen.append(item)
            spent += cost
    return chosen


def _is_touched(item, folders) -> bool:
    parts = item.path.relative_to(pathlib.Path(__file__).parent).parts
    return any(folder in (parts[0], parts[0].removeprefix("test_").removesuffix(".py")) for folder in folders)


# ------------------------------------------------------------------------------------------------ what was left out

_LEFT_OUT = pytest.StashKey[dict]()


def _note_left_out(config, items) -> None:
    config.stash[_LEFT_OUT] = collections.Counter(item.location[0] for item in items)
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = dict(config.stash[_LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    if "left_out" in getattr(node, "workeroutput", {}):
        node.config.stash[_LEFT_OUT] = node.workeroutput["left_out"]


def pytest_terminal_summary(terminalreporter, config):
    left_out = config.stash.get(_LEFT_OUT, None)
    if left_out:
        terminalreporter.section("tests of the rest that this run left out")
        for file, count in sorted(left_out.items()):
            terminalreporter.write_line(f"{count:5}  {file}")


class _Recorder:
    """Writes the durations of a run, setup and teardown included."""

    def __init__(self, root: pathlib.Path):
        self._root, self._seconds, self._written = root, collections.Counter(), time.monotonic()

    def pytest_runtest_logreport(self, report):
        self._seconds[report.nodeid] += report.duration
        if time.monotonic() - self._written > 60:  # a run that is stopped leaves what it has seen
            write(self._seconds, self._root)
            self._written = time.monotonic()

    def pytest_sessionfinish(self, session):
        write(self._seconds, self._root)


def write(seconds: dict[str, float], root: pathlib.Path) -> None:
    """Write the durations of at least 0.1 s, by file and test; those of tests that did not run stay."""
    files = collections.defaultdict(dict)
    for node, value in sorted({**recorded(), **seconds}.items()):
        file, _, test = node.partition("::")
        if value >= 0.1 and (root / file).exists():
            files[file][test] = round(value, 1)
    DURATIONS.write_text(json.dumps(files, indent=0, ensure_ascii=False) + "\n", "utf-8")
