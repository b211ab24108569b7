"""The benchmark of token removal: what it compares, and that it runs."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_ratios_are_those_of_medians(load):
    tool = load("_recipes", "bench_step", "bench_token_removal").bench_token_removal
    taken = {"at once": [(1.0, 2.0), (9.0, 2.5), (2.0, 4.0)], "one by one": [(12.0, 1.0), (8.0, 10.0), (10.0, 5.0)]}
    assert tool.ratios(taken) == {"at once": (1.0, 1.0), "one by one": (5.0, 2.0)}
    ways = {name: lambda: _Number() for name in tool.WAYS}
    found = tool.measure(ways, 0.25, 3)
    assert {name: len(own) for name, own in found.items()} == dict.fromkeys(tool.WAYS, 3)


class _Number:
    def numpy(self):
        return 0.0


def test_it_runs(tmp_path):
    command = [sys.executable, str(ROOT / "tools" / "bench_token_removal.py"), "--rounds=1", "--calls=20"]
    done = subprocess.run(
        [*command, "--batch=4", "--length=5", "--width=16"],
        cwd=tmp_path,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stdout + done.stderr
    for way in ("at once", "by place", "one by one"):
        assert re.search(rf"\n{way} +\d+ +[\d.]+ +[\d.]+\n", done.stdout), done.stdout
    assert list(tmp_path.iterdir()) == []
