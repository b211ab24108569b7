"""The benchmark of contrastive views: its arithmetic, and that it runs."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_share_is_that_of_medians(load):
    tool = load("_recipes", "bench_step", "bench_augmix", "bench_views").bench_views
    taken = {"views": [(0.2, 0.1), (0.4, 0.1), (0.9, 0.1)], "passes": [(2.0, 1.0), (2.0, 2.0), (8.0, 2.0)]}
    lines, share = tool.rows(taken, 8)
    assert share == 0.05
    assert lines[1:] == [
        ("processor time", "80", "100.0", "2000.0", "5.00 %"),
        ("wall time", "20", "400.0", "2000.0", "20.00 %"),
    ]


def test_it_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "bench_views.py"), "--rounds=1", "--batch=1", "--side=8", "--blur=1"],
        cwd=tmp_path,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: so little work is not worth a graph
    assert re.search(r"\nprocessor time +\d+ +[\d.]+ +[\d.]+ +[\d.]+ %\n", done.stdout), done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
