"""The suite itself: which tests a run takes, and that they run in processes that can be replaced."""

import functools
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import types

import pytest
import stored
import tiers

TESTS = pathlib.Path(__file__).resolve().parent


def item(name: str, file: str = "a.py", mark: str | None = None, **params):
    path = TESTS / file
    test = types.SimpleNamespace(nodeid=f"tests/{file}::{name}[{params}]", path=path, originalname=name, mark=mark)
    test.get_closest_marker = lambda asked: asked == mark
    if params:
        test.callspec = types.SimpleNamespace(params=params, indices=dict.fromkeys(params, 0))
    return Hashable(test)


class Hashable:
    """An item that can be a member of sets, as pytest's are."""

    def __init__(self, test):
        self.__dict__.update(test.__dict__)


def chosen(items, costs) -> list[int]:
    """Return the places of the items in the first tier; costs are shares of the highest that it takes."""
    durations = {item.nodeid: tiers.COSTLY * cost for item, cost in zip(items, costs, strict=True)}
    first = tiers.first_tier(items, durations)
    return [index for index, test in enumerate(items) if test in first]


def test_cheap_tests_and_those_without_a_record_belong_to_the_first_tier():
    items = [item("cheap", size=1), item("cheap", size=2), item("costly"), item("new")]
    durations = {items[0].nodeid: 0.2, items[1].nodeid: 0.2, items[2].nodeid: 100.0}
    assert tiers.first_tier(items, durations) == {items[0], items[1], items[3]}


def test_of_costly_tests_the_first_tier_takes_each_function_and_value_at_the_least_cost():
    """Three tests cover every value of a product of two by three; the costly test is not among them."""
    pairs = list(itertools.product("ab", (1, 2, 3)))
    items = [item("product", kind=kind, size=size) for kind, size in pairs]
    places = chosen(items, [1.0, 0.5, 0.5, 0.5, 0.5, 0.5])
    assert 0 not in places and len(places) == 3
    assert {pairs[index][0] for index in places} == {*"ab"} and {pairs[index][1] for index in places} == {1, 2, 3}


def test_a_value_that_a_cheap_test_has_needs_no_costly_one_and_files_and_marks_decide():
    items = [item("quick", size=1), item("long", size=1), item("long", size=2)]
    assert chosen(items, [0.1, 0.9, 0.5]) == [0, 2]
    items = [item("long", "a.py", size=1), item("long", "b.py", size=1)]
    assert chosen(items, [0.9, 0.9]) == [0, 1]
    items = [item("long", mark="first"), item("short", mark="rest"), item("very_long")]
    assert chosen(items, [50.0, 0.1, 50.0]) == [0]


def test_the_slices_are_all_of_the_rest_and_touched_tests_come_on_top():
    items = [item(f"{number}", f"{folder}/a.py") for folder in ("losses", "models") for number in range(20)]
    durations = {test.nodeid: 1.0 + number % 3 for number, test in enumerate(items)}
    part = functools.partial(tiers.part_of, items, durations)
    slices = [part(number, 4, []) for number in range(4)]
    assert sorted(map(items.index, itertools.chain(*slices))) == list(range(40))
    assert part(6, 4, []) == slices[2]
    assert {*part(3, 4, ["losses"])} == {*slices[3], *items[:20]}
    assert part(0, 0, ["losses"]) == items[:20]


SMALL = stored.text(globals(), "small")
# The first tier takes one of the costly tests.
COSTS = {"test_costly[a]": tiers.COSTLY, "test_costly[b]": 2 * tiers.COSTLY}
MEASURED = stored.text(globals(), "measured")
DEADLY = stored.text(globals(), "deadly")


@pytest.mark.parametrize("arguments, names", stored.rows(globals(), "a_run_takes_its_tier"))
def test_a_run_takes_its_tier(tmp_path, arguments, names):
    output = run(tmp_path, SMALL, *arguments, durations=json.dumps({"test_small.py": COSTS}))
    assert re.findall(r"::(\S+) PASSED", output) == names, output


def test_a_slice_names_what_it_leaves_out(tmp_path):
    durations = {"test_small.py": {**COSTS, "test_cheap": 9.0}}
    output = run(tmp_path, SMALL, "--rest", "--slice=0/2", durations=json.dumps(durations))
    assert re.findall(r"::(\S+) PASSED", output) == ["test_cheap"] and "    1  test_small.py" in output, output


def test_a_test_that_kills_its_process_fails_alone_and_fixtures_end(tmp_path):
    output = run(tmp_path, DEADLY, "-n", "1", "--record")
    assert "2 passed" in output and "1 failed" in output and "ended with code 7" in output, output
    assert (tmp_path / "ended").read_text() == "x"
    assert (tmp_path / "durations.json").read_text() == "{}\n"


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["one process", "worker"])
def test_all_prints_the_share_of_executed_statements(tmp_path, arguments):
    output = run(tmp_path, MEASURED, "--all", *arguments)
    rows = re.findall(r"^(tfrobust\S*|all) +(\d+) +(\S+) %", output, re.MULTILINE)
    assert rows == [("tfrobust", "0", "100.0"), ("tfrobust/ops", "4", "75.0"), ("all", "4", "75.0")], output


def test_no_other_run_measures(tmp_path):
    assert "statements" not in run(tmp_path, MEASURED)


def run(folder, text: str, *arguments: str, durations: str = "{}") -> str:
    """Run pytest on one file with these plugins in a folder of its own and return what it printed."""
    (folder / "test_small.py").write_text(text)
    for plugin in ("tiers.py", "children.py", "covered.py"):
        (folder / plugin).write_text((TESTS / plugin).read_text("utf-8"))
    (folder / "durations.json").write_text(durations)
    (folder / "conftest.py").write_text('pytest_plugins = ["tiers", "children", "covered"]\n')
    (folder / "tfrobust" / "ops").mkdir(parents=True)
    (folder / "tfrobust" / "__init__.py").write_text("")
    (folder / "tfrobust" / "ops" / "rows.py").write_text("def count():\n    return 1\ndef none():\n    return 0\n")
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment).stdout
