"""The benchmarks run with little work, print what they say they do, and leave nothing behind."""

import pathlib
import re
import tomllib

import pytest

RUNS = tomllib.loads(pathlib.Path(__file__).with_name("runs.toml").read_text("utf-8"))


@pytest.mark.parametrize("name", RUNS)
def test_it_runs_and_leaves_nothing(run_tool, tmp_path, name):
    row = RUNS[name]
    ended = run_tool(name, *row["flags"].split())
    assert ended.code in row["codes"] and "Traceback" not in ended.err, ended.out + ended.err
    for pattern in row["printed"]:
        pattern = pattern.replace("NUMBER", r"[\d.]+").replace("ANY", r"\S+")
        assert re.search(pattern, ended.out), ended.out
    assert list(tmp_path.iterdir()) == []
