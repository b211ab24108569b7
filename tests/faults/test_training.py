"""kill -9 and SIGTERM at exact and at random places of a training run; the same bits at the end."""

import json
import os
import random
import signal

import pytest
from faults import processes, small_run
from faults.processes import CRITICAL, Trap

MAIN = "faults.small_run:main"
KILLS = int(os.environ.get("TFROBUST_KILLS", "4"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """An uninterrupted run: its outcome, and how many critical calls it makes."""
    folder = tmp_path_factory.mktemp("reference")
    ended = processes.run(MAIN, [str(folder)], cwd=folder, counts=CRITICAL)
    assert ended.code == 0, ended.err
    return json.loads((folder / "outcome.json").read_text()), int(ended.err.splitlines()[-1])


def test_killed_before_renames_inside_the_critical_sections_between_and_behind_them(tmp_path, reference):
    expected, calls = reference
    for call in (1, 3):  # the first checkpoint and a later one
        ended = processes.run(MAIN, [str(tmp_path)], cwd=tmp_path, traps=[Trap(["os:rename"], call)])
        assert ended.code == -signal.SIGKILL
        assert list((tmp_path / "checkpoints").glob(".tmp-step-*"))
    draws = random.Random(0)
    for number in range(KILLS):
        delay = draws.random() if number % 2 else 0.0
        trap = Trap(CRITICAL, draws.randrange(1, calls // 3), signal.SIGKILL, delay)
        ended = processes.run(MAIN, [str(tmp_path)], cwd=tmp_path, traps=[trap])
        # The run may have been over before that many calls.
        assert ended.code == -signal.SIGKILL or (tmp_path / "outcome.json").exists()
    ended = processes.run(MAIN, [str(tmp_path)], cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert not list((tmp_path / "checkpoints").glob(".tmp-*"))
    assert json.loads((tmp_path / "outcome.json").read_text()) == expected


def test_sigterm_is_heard_after_the_step_and_saved_without_a_checkpoint_due(tmp_path, reference):
    trap = Trap(["tfrobust.training.loop:Loop._check_finite"], 6, signal.SIGTERM)
    ended = processes.run(MAIN, [str(tmp_path), 1e9], cwd=tmp_path, traps=[trap])
    assert ended.code == 1 and "StopRequested: stopped by SIGTERM after step 6 of 12; run again" in ended.err
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000006"]
    child = processes.run(MAIN, [str(tmp_path), 1e9], cwd=tmp_path)
    assert child.code == 0 and "resuming at step 6 of 12" in child.out
    assert json.loads((tmp_path / "outcome.json").read_text()) == reference[0]


def test_the_small_run_has_what_it_claims(reference):
    history = reference[0]["history"]
    assert history["epoch"] == list(range(1, small_run.EPOCHS + 1))
    assert history["learning_rate"][-1] < history["learning_rate"][0], "the plateau was not met"
    assert {"ce", "ce_adv", "val_robust_accuracy", "val_r_div"} <= set(history)
