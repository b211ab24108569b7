"""The benchmark of AugMix: its arithmetic, that the peer is the procedure it says, and that it runs."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from oracles import augmix as pillow
from tfrobust.augment.augmix import OPERATIONS

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(load):
    return load("_recipes", "bench_step", "bench_augmix").bench_augmix


def test_ratio_is_that_of_medians(tool):
    taken = {"tfrobust": [(1.0, 0.5), (2.0, 1.0), (9.0, 1.0)], "Pillow": [(4.0, 1.5), (4.0, 1.5), (8.0, 1.5)]}
    lines, ratio = tool.rows(taken, 6)
    assert ratio == 1.5
    assert lines[1:] == [
        ("processor time", "6", "4", "1.50", "1.50 - 3.00"),
        ("wall time", "3", "2", "2.00", "0.89 - 4.00"),
    ]


def test_the_peer_makes_views_of_its_chains(tool, monkeypatch):
    """With an operation that paints all white, a view lies between the picture and white by the share of the chains."""
    pixels = tool.pictures(3, 9)
    calls = []
    white = {
        name: lambda image, parameter: calls.append(parameter) or image.point(lambda _: 255) for name in OPERATIONS
    }
    monkeypatch.setattr(pillow, "OPERATIONS", white)
    for picture, view in zip(pixels, tool.make_official(pixels, OPERATIONS)(), strict=True):
        share = (view - picture / 255) / (1 - picture / 255).clip(1e-9)
        share = share[picture < 250]
        assert 0 <= share.min() and np.ptp(share) < 1e-3 and share.max() <= 1 + 1e-3
    assert 9 <= len(calls) <= 27


def test_it_runs(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "bench_augmix.py"), "--rounds=2", "--batch=4", "--side=8"],
        cwd=tmp_path,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: so few pictures are not worth a graph
    assert re.search(r"\nprocessor time +\d+ +\d+ +[\d.]+ +[\d.]+ - [\d.]+\n", done.stdout), done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
