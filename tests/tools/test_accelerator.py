"""Lowered training steps are written once."""

import json
import subprocess
import sys

import pytest

ACCELERATOR = "tools/benchmarks/accelerator"


@pytest.fixture
def tools(load):
    return load("_recipes", "arrays", "lower")


@pytest.mark.rest
def test_the_tool_lowers_named_programs_once(tools, tmp_path):
    command = [sys.executable, tools._recipes.ROOT / ACCELERATOR / "lower.py", tmp_path]
    flag = "--programs=bare_gradient-digits-4-float32"
    for expected in ("[1/1] bare_gradient-digits-4-float32", ""):
        done = subprocess.run([*command, flag], check=True, capture_output=True, text=True)
        assert done.stdout.strip() == expected
    assert (tmp_path / "order.txt").read_text().split() == ["bare_gradient-digits-4-float32"]
    assert json.loads((tmp_path / "bare_gradient-digits-4-float32.json").read_text())["feedback"] == {}
