"""`train --seeds`: one run per seed, with a name, a workdir and an end of its own."""

import os
import signal
import sys
import threading
import time

import pytest
import stored

from tfrobust.commands import seeds, train

TRADES = "--gin_file=gin/trades.gin"
# Stands for a training run: says its command line, and ends as the environment orders for its seed.
RUN = stored.text(globals(), "run")


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Replace the training command by a program that starts at once."""
    (tmp_path / "run.py").write_text(RUN)
    original = seeds.subprocess.Popen

    def popen(command, **keywords):
        assert command[:3] == [sys.executable, "-m", "tfrobust.train"]
        return original([sys.executable, "-S", str(tmp_path / "run.py"), *command[3:]], **keywords)

    monkeypatch.setattr(seeds.subprocess, "Popen", popen)
    monkeypatch.setattr(seeds, "_POLL_SECONDS", 0.01)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_seed_has_a_name(stand_in, capfd):
    flags = [
        TRADES,
        "--gin_param=EPOCHS=2",
        "--gin_param=STEPS=3",
        "--profile=4",
        "--quiet",
        "--export_dir=e",
        "--seeds=3,0",
    ]
    assert train.main(flags) == 0
    lines = capfd.readouterr().out.splitlines()
    common = f"{TRADES} --gin_param=EPOCHS=2 --gin_param=STEPS=3 --export_dir=e --profile=4 --quiet"
    settings = "--gin_param=SEED={0} --gin_param=NAME='trades-seed{0}'"
    assert [line for line in lines if line.startswith("--")] == [f"{common} {settings.format(seed)}" for seed in (3, 0)]
    assert lines[-1] == "compare with: python -m tfrobust.compare --group e/trades-seed*"


def test_a_failure_is_one_line_and_the_others_train(stand_in, monkeypatch, capfd):
    monkeypatch.setenv("END_1", "1")
    assert train.main([TRADES, "--workdir=w/x", "--seeds=0,1,2", "--parallel=2"]) == 1
    output = capfd.readouterr()
    assert output.err.splitlines() == [
        "seed 1: exit code 1: error: seed 1 is unlucky",
        "error: 1 of 3 seeds did not finish: 1 (exit code 1).",
    ]
    assert output.out.count(": done in") == 2 and "compare" not in output.out
    assert "--workdir=w/x-seed2" in (stand_in / "w" / "x-seed2.log").read_text()


def test_a_killed_run_is_reported_by_its_signal(stand_in, monkeypatch, capfd):
    monkeypatch.setenv("END_0", "kill")
    assert train.main([TRADES, "--seeds=0,1"]) == 1
    assert capfd.readouterr().err.splitlines() == [
        "seed 0: signal 9",
        "error: 1 of 2 seeds did not finish: 0 (signal 9).",
    ]


@pytest.mark.parametrize(("ends", "code"), [(("2", "2"), 2), (("3", "3"), 3), (("3", "1"), 1), (("75", "75"), 75)])
def test_equal_exit_codes_are_passed_on(stand_in, monkeypatch, capfd, ends, code):
    for seed, end in enumerate(ends):
        monkeypatch.setenv(f"END_{seed}", end)
    assert train.main([TRADES, "--seeds=0,1", "--parallel=2"]) == code
    assert ("resume" in capfd.readouterr().err) == (code == 75)


def test_a_signal_stops_all_runs(stand_in, monkeypatch, capfd):
    for seed in range(3):
        monkeypatch.setenv(f"END_{seed}", "wait")
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    def stop():
        deadline = time.monotonic() + 30
        while len(list(stand_in.glob("runs/*.log"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    began = time.monotonic()
    assert train.main([TRADES, "--seeds=0,1,2", "--parallel=2"]) == 75
    thread.join()
    assert time.monotonic() - began < 30
    assert "3 of 3 seeds did not finish" in capfd.readouterr().err
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_a_dry_run_shows_one_of_the_runs(stand_in, capfd):
    assert train.main([TRADES, "--seeds=4,5", "--dry_run"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert sum(line.startswith("--") and "--dry_run" in line for line in lines) == 1
    assert lines[-1] == "This is the run of seed 4, one of 2 such runs."


@pytest.mark.parametrize("flags, part", stored.rows(globals(), "wrong_flags_start_nothing"))
def test_wrong_flags_start_nothing(stand_in, monkeypatch, capfd, flags, part):
    monkeypatch.setattr(seeds, "_run_all", lambda *_: pytest.fail("started"))
    assert train.main(flags) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert part in line
