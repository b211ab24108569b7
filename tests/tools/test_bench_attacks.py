"""The benchmarks against other libraries: their arithmetic, their processes, and that they run alone."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def tools(load):
    return load("_peers", "bench_step", "bench_attacks", "bench_autoattack")


def side(tools, name, rounds):
    made = object.__new__(tools._peers.Side)
    made.name, made.rounds, made.count = name, rounds, 8
    return made


def test_ratio_is_how_many_times_as_fast_we_are_by_medians(tools):
    own = side(tools, "tfrobust, perturb", [{"wall": wall, "processor": 1.0, "right": 7} for wall in (1.0, 2.0, 90.0)])
    peer = side(tools, "peer", [{"wall": wall, "processor": 2.0, "right": 8} for wall in (2.0, 5.0, 90.0)])
    value, low, high = tools.bench_attacks.ratio(own, peer)
    assert value == 2.5 and 1.0 <= low <= 2.0 <= high <= 2.5
    assert tools.bench_attacks.kept([own, peer], [own])
    peer.rounds[1]["wall"] = 2.2
    assert not tools.bench_attacks.kept([own, peer], [own])
    head, first, second = tools.bench_attacks.rows([own, peer], [own])
    assert head[4] == "ratio of perturb" and first[4] == ""
    assert second[:5] == ("peer", "3.6", "250.0", "8 of 8", "1.10")


def test_a_members_time_is_its_median_and_the_rest_is_what_no_member_took(tools):
    rounds = [{"wall": wall, "processor": 1.0, "right": 3, "members": {"a": wall - 1}} for wall in (3.0, 9.0, 4.0)]
    own, official = side(tools, "tfrobust", rounds), side(tools, "official", [dict(r, wall=8.0) for r in rounds])
    official.rounds[0]["members"] = {"a": 1.0, "b": 2.0}
    seconds = tools.bench_autoattack.seconds
    assert (seconds(own, "a"), seconds(own, "the rest"), seconds(own, "all")) == (3.0, 1.0, 4.0)
    assert seconds(official, "b") is None  # it did not run in every round
    assert tools.bench_autoattack.share([own, official]) == 0.5
    lines = {line[0]: line[1:] for line in tools.bench_autoattack.rows([own, official])}
    assert lines["b"] == ("-", "-", "") and lines["all"] == ("4.00", "8.00", "0.50")


@pytest.fixture
def task(tools):
    arrays = np.arange(12, dtype=np.float32).reshape(3, 2, 2, 1), np.arange(3), np.eye(3, dtype=np.float32)
    return tools._peers.Task("digits", *arrays, {"0/kernel": np.ones(2), "0/bias": np.zeros(2)}, {"batch": 2})


def test_a_task_survives_the_disk_and_tells_another_network(tools, task, tmp_path):
    task.write(tmp_path)
    read = tools._peers.Task.read(tmp_path)
    assert read.network == "digits" and read.settings == {"batch": 2} and list(read.weights) == ["0/kernel", "0/bias"]
    np.testing.assert_array_equal(read.images, task.images)
    assert read.batches() == [slice(0, 2), slice(2, 4)]
    read.check(task.logits + 1e-5)
    with pytest.raises(SystemExit, match="logits differ"):
        read.check(task.logits + 0.1)


def test_sides_take_turns_in_processes_and_a_broken_one_is_reported(tools, task, tmp_path, monkeypatch):
    (tmp_path / "sides.py").write_text(
        "calls = []\n"
        "def good(task):\n"
        "    print('noise of a library')\n"
        "    return lambda: calls.append(1), lambda _: {'right': len(task.images), 'calls': len(calls)}, 'good 1.0'\n"
        "def bad(task):\n"
        "    import not_installed\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    task.write(tmp_path)
    wanted = {name: (f"sides:{name}", sys.executable) for name in ("good", "bad")}
    (running,), said = tools._peers.start(wanted, tmp_path)
    assert said[0] == "good: good 1.0" and re.match("bad: does not run: .*not_installed", said[1], re.DOTALL)
    answer = running.run()
    running.close()
    assert (answer["right"], answer["calls"]) == (3, 2) and running.rounds == [answer]  # the first warmed up
    assert 0 <= answer["wall"] < 1 and running.median() == answer["wall"]


def test_it_runs_alone_and_no_image_falls(tmp_path):
    flags = ["--parts=full", "--rounds=1", "--steps=2", "--batch=4", "--count=4"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "bench_attacks.py"), *flags],
        cwd=tmp_path,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for face in ("perturb", "evaluation"):
        assert re.search(rf"tfrobust, {face} +[\d.]+ +[\d.]+ +4 of 4 ", done.stdout), done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
