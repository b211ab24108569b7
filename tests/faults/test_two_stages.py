"""Killed in the first stage, between the stages or in the second, a run in two stages ends like one that was not."""

import json
import pathlib
import re
import signal

import once
import pytest
import stored
from faults import processes, small_stages
from faults.processes import Trap
from faults.whole_run import EXPORT, TRAIN, copy, numbers, report_of, variables_of

# Ten steps of each stage.
FLAGS = [
    "--gin_file=gin/simclr.gin",
    *(f"--gin_param={param}" for param in stored.text(globals(), "two_stages").split()),
]
STEP, BETWEEN = "tfrobust.training.loop:Loop._check_finite", "tfrobust.runs.first_stage:Pretraining.hand_over"
VERSION = pathlib.Path("exported", "simclr", "1")


def train(folder, *flags, **keywords):
    return processes.run(TRAIN, [[*FLAGS, *flags]], cwd=folder, **keywords)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of an uninterrupted run."""

    def make(folder):
        ended = train(folder)
        assert ended.code == 0, ended.err
        assert re.search(r"stage 1 of 2, SimCLR\n(.+\n)?epoch 1/2 .*\n(.+\n)?epoch 2/2 ", ended.out), ended.out
        assert re.search(r"stage 2 of 2, Supervised\n(.+\n)?epoch 1/2 ", ended.out), ended.out

    return once.shared_folder(tmp_path_factory, "two_stages", make)


def test_killed_in_either_stage_or_between_them(trained, tmp_path):
    for trap in (Trap([STEP], 4), Trap([BETWEEN], 1), Trap([STEP], 7)):
        ended = train(tmp_path, traps=[trap])
        assert ended.code == -signal.SIGKILL, (trap, ended.err)
        unfinished = "1 of 2, SimCLR is at step 3 of 10" if trap.call == 4 else "2 of 2, Supervised is at step"
        refused = processes.run(EXPORT, [["--workdir=runs/simclr"]], cwd=tmp_path)
        assert refused.code == 2 and unfinished in refused.err, (trap, refused)
    ended = train(tmp_path)
    assert ended.code == 0, ended.err
    assert "stage 1 of 2, SimCLR: resuming at step 10 of 10" in ended.out
    assert "stage 2 of 2, Supervised: resuming at step 6 of 10" in ended.out
    ours, theirs = tmp_path / VERSION, trained / VERSION
    assert variables_of(ours) == variables_of(theirs)
    here, there = (report_of(version / "assets.extra") for version in (ours, theirs))
    assert here.model == there.model and here.run_sha256 == there.run_sha256
    assert numbers(here) == numbers(there) and here.series == there.series and here.training == there.training


def test_a_finished_run_is_exported_elsewhere_and_refused_with_another_first_stage(trained, tmp_path):
    copy(trained, tmp_path)
    ended = processes.run(EXPORT, [["--workdir=runs/simclr", "--export_dir=elsewhere"]], cwd=tmp_path)
    assert ended.code == 0, ended.err
    elsewhere = report_of(tmp_path / "elsewhere" / "simclr" / "1" / "assets.extra")
    assert numbers(elsewhere) == numbers(report_of(trained / VERSION / "assets.extra"))
    refused = train(tmp_path, "--workdir=runs/simclr", "--gin_param=Pretraining.frozen=False")
    assert refused.code == 2 and "pretraining.frozen is true there and false here" in refused.err


@pytest.mark.rest
@pytest.mark.parametrize("name", ["rocl", "acl", "moco_v3", "dino", "swav"])
def test_pretraining_killed_in_either_stage_ends_with_the_same_bits(name, tmp_path):
    """Between the stages ACL's adversarial batch norms take the place of the clean ones, DINO's teacher of the encoder.

    Checkpoints hold momentum networks, DINO's center, SwAV's queue, and the step, from which all schedules follow.
    """

    def run(folder, *traps):
        (tmp_path / folder).mkdir(exist_ok=True)
        return processes.run("faults.small_stages:main", [str(tmp_path / folder), name], cwd=tmp_path, traps=traps)

    def outcome(folder):
        return json.loads((tmp_path / folder / "outcome.json").read_text())

    ended = run("whole")
    assert ended.code == 0, ended.err
    # The fifth step of the first stage; then, four steps later, the third of the second.
    for call in (5, small_stages.STEPS - 4 + 3):
        ended = run("parts", Trap([STEP], call))
        assert ended.code == -signal.SIGKILL, ended.err
    ended = run("parts")
    assert ended.code == 0, ended.err
    assert "resuming at step 8 of 8" in ended.out and "stage 2 of 2, Supervised: resuming at step 2 of 8" in ended.out
    assert outcome("parts") == outcome("whole")
