"""The benchmark of the corruptions: its arithmetic, that what fails is named, and that it runs alone."""

import os
import pathlib
import re
import subprocess
import sys
import types

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def tools(load):
    return load("_peers", "bench_step", "_peers_corruptions", "bench_corruptions")


def side(name, *members):
    return types.SimpleNamespace(name=name, rounds=[{"members": each} for each in members])


def test_ratios_are_over_what_runs_in_the_peer(tools):
    own = side("tfrobust", {"fog": 1.0, "snow": 2.0, "glass_blur": 9.0}, {"fog": 3.0, "snow": 2.0, "glass_blur": 9.0})
    same_work = side("tfrobust, peer's constants", *[{"fog": 2.0, "snow": 2.0, "glass_blur": 9.0}] * 2)
    peer = side("imagecorruptions", {"fog": 8.0, "snow": 12.0}, {"fog": 8.0, "snow": 8.0})
    sides = [own, same_work, peer]
    tool = tools.bench_corruptions
    assert tool.common(sides) == ["snow", "fog"] and tool.seconds(own, ["fog", "snow"]) == 4.0
    assert tool.smallest(sides) == 4.5 and tool.smallest(sides[:2]) == float("inf")
    lines = {line[0]: line[1:] for line in tool.rows(sides)}
    assert lines["seconds"][3:] == ("ratio", "ratio") and lines["fog"] == ("2.000", "2.000", "8.000", "4.0", "4.0")
    assert lines["glass_blur"] == ("9.000", "9.000", "-", "-", "-")
    assert lines[tool.WHOLE] == ("4.000", "4.000", "18.000", "4.5", "4.5")
    assert lines["of them without frost"] == lines[tool.WHOLE]
    assert tool.rows(sides[:2])[1] == ("glass_blur", "9.000", "9.000")


def test_a_corruption_that_fails_is_named_and_left_out(tools):
    def corrupt(name, severity):
        if name == "fog":
            raise AttributeError("np.float_ is gone")

    task = tools._peers.Task("none", np.zeros(1), np.zeros(1), np.zeros(1), {}, {"names": ["fog", "snow"]})
    run, outcome = tools._peers_corruptions._sides(task, corrupt)
    found = outcome(run())
    assert list(found["members"]) == ["snow"] and found["errors"] == {"fog": "AttributeError: np.float_ is gone"}


def test_its_names_are_the_benchmark_s(tools):
    from tfrobust import corruptions

    assert tools.bench_corruptions.NAMES == corruptions.NAMES
    assert tools._peers_corruptions.SEVERITIES == corruptions.SEVERITIES


def test_it_runs_alone(tmp_path):
    flags = ["--names=brightness,contrast", "--rounds=1", "--count=4", "--batch=2", "--side=8"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "bench_corruptions.py"), *flags],
        cwd=tmp_path,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(
        r"\ncontrast +[\d.]+ +[\d.]+\nall that run in the peer +[\d.]+ +[\d.]+\nof them without", done.stdout
    ), done.stdout
    assert list(tmp_path.iterdir()) == []
