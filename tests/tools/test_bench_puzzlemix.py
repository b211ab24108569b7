"""The benchmark of Puzzle Mix: its gaps, and that it runs."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np

from oracles import puzzlemix as oracle

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_a_gap_is_the_excess_over_the_best_mask(load):
    tool = load("_recipes", "bench_step", "bench_puzzlemix").bench_puzzlemix
    generator = np.random.default_rng(0)
    terms = [generator.uniform(size=(3, *shape)) for shape in ((2, 2, 3), (1, 2), (2, 1))]
    masks = np.stack([oracle.minimum_cut(*one) for one in zip(*terms, strict=True)])
    np.testing.assert_allclose(tool.gaps(terms, masks), 0, atol=1e-12)
    second = [part[1] for part in terms]
    best = oracle.value(*second, masks[1])
    masks[1, 0, 0] = (masks[1, 0, 0] + 0.5) % 1.5
    excess = oracle.value(*second, masks[1]) / best - 1
    assert excess > 0
    np.testing.assert_allclose(tool.gaps(terms, masks), [0, excess, 0], atol=1e-12)


def test_it_runs(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "tools" / "bench_puzzlemix.py"),
            "--pairs=3",
            "--rounds=1",
            "--batch=32",
            "--encoder=digits",
        ],
        cwd=tmp_path,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\n16x16 +\S+ +\S+ +\S+ +[\d.]+% +\S+\n", done.stdout), done.stdout
    assert re.search(r"\npuzzlemix, mean +\d+ +[\d.]+ +[\d.]+\n", done.stdout), done.stdout
    assert list(tmp_path.iterdir()) == []
