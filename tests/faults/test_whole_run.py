"""Stopped anywhere between its first step and its last file, a run ends like one that was never stopped."""

import os
import random
import signal
import subprocess
import sys

import pytest
import stored
from faults import processes, whole_run
from faults.processes import Trap
from faults.whole_run import EVALUATE, PROGRESS, TINY, WORKDIR, check_equal, copy, listing, numbers, report_of, train

from tfrobust.training import checkpoint

KILLS = int(os.environ.get("TFROBUST_KILLS", "8"))
SEED = int(os.environ.get("TFROBUST_KILL_SEED", "1"))
# A checkpoint makes 9 of the counted calls; a whole run makes hundreds.
LAST_CALLS = 20
PUBLISH = "tfrobust.serving.export.publish"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of an uninterrupted run."""
    return whole_run.trained(tmp_path_factory)


@pytest.fixture
def evaluated(trained, tmp_path):
    """A folder whose run only has to be staged and published, everything being measured."""
    copy(trained, tmp_path, "runs")
    for name in ("publication.json", *(f"robustness_report.{end}" for end in ("json", "html", "md"))):
        (tmp_path / WORKDIR / name).unlink()
    return tmp_path


def test_the_same_command_in_a_new_process_gives_the_same_bits(trained, tmp_path):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-m", "tfrobust.train", *TINY]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    check_equal(tmp_path, trained)


def test_killed_at_random_points_of_the_whole_run(trained, tmp_path_factory):
    """Kills until there were enough; a run that ends first is compared, and the next one begins."""
    draws = random.Random(SEED)
    calls = int((trained / "calls").read_text())
    folder, killed, finished, places = tmp_path_factory.mktemp("run"), 0, 0, []
    # Every run that ends was killed at least once where kills come early enough: this ends.
    while killed < KILLS:
        # By turns soon and late in what is left of a run. Half of the kills hit just before a call, the others
        # somewhere in the computation behind it.
        call = 1 + int(calls / 2 * (killed % 4 + draws.random()) / 4)
        trap = Trap(PROGRESS, call, signal.SIGKILL, draws.choice([0.0, draws.random()]))
        places.append((trap.call, round(trap.delay, 3)))
        ended = train(folder, traps=[trap])
        trace = f"seed {SEED}, {killed} kills in {finished + 1} runs at {places} in {folder}: {ended.err}"
        assert ended.code in (0, -signal.SIGKILL), trace
        if ended.code == 0:
            assert_equal(folder, trained, trace)
            folder, finished = tmp_path_factory.mktemp("run"), finished + 1
        else:
            killed += 1
    ended = train(folder)
    assert ended.code == 0, (places, ended.err)
    assert_equal(folder, trained, f"seed {SEED}: {places}")
    print(f"survived {killed} kills in {finished + 1} runs; {len(places) - killed} came too late")


def assert_equal(folder, reference, trace: str) -> None:
    try:
        check_equal(folder, reference)
    except AssertionError as error:
        raise AssertionError(trace) from error


def test_killed_inside_the_publication_between_write_fsync_and_rename(trained, evaluated):
    """One folder, killed again and again, each time a little nearer to the end."""
    places = [
        ("shutil:copytree", 1),  # claimed, nothing copied
        (f"{PUBLISH}:_complete", 1),  # copied
        (f"{PUBLISH}:write_sums", 2),  # after the staged model's: the publisher is named
        (f"{PUBLISH}:fsync_tree", 1),  # whole, but perhaps not on the disk
        ("os:rename", 5),  # two models put in place by two renames each, then the version
        (f"{PUBLISH}:fsync_directory", 1),  # renamed; the claim was held
        (f"{PUBLISH}:_release", 1),  # found published
        (f"{PUBLISH}:write_record", 1),
        ("tfrobust.report.writer:write_report", 1),
    ]
    for target, call in places:
        ended = train(evaluated, traps=[Trap([target], call)])
        assert ended.code == -signal.SIGKILL, (target, call, ended.err)
    assert train(evaluated).code == 0
    check_equal(evaluated, trained)


def test_a_signal_stops_everything_at_once_and_the_rerun_finishes(trained, tmp_path):
    """At once: with the calls of the step at hand and of one checkpoint, of the hundreds that a run makes."""
    for target, call, number in stored.table(globals(), "a_signal_stops_everything_at_once_and_the_rerun"):
        ended = train(tmp_path, traps=[Trap([target], call, number)], counts=PROGRESS)
        assert ended.code == 75 and ended.later <= LAST_CALLS, (target, ended)
        assert len(ended.err.splitlines()) == 1 and "again" in ended.err, (target, ended.err)
    ended = train(tmp_path)
    assert ended.code == 0, ended.err
    check_equal(tmp_path, trained)


def test_a_full_disk_is_one_line_and_the_earlier_checkpoint_survives(trained, tmp_path):
    trap = Trap(["tfrobust.training.loop:Loop._check_finite"], 5, signal.SIGTERM)
    assert train(tmp_path, traps=[trap]).code == 75
    (before, *_) = sorted((tmp_path / WORKDIR / "checkpoints").iterdir(), reverse=True)
    size = max(path.stat().st_size for path in before.iterdir())
    ended = processes.run("faults.whole_run:train_on_a_small_disk", [TINY, size - 1], cwd=tmp_path)
    assert ended.code == 1, (ended.code, ended.err)
    (line,) = ended.err.splitlines()
    assert line.startswith("error: ") and "step-00000006 could not be written" in line and len(line) <= 300
    assert checkpoint.find_damage(before) is None and not list(before.parent.glob(".tmp-*"))
    ended = train(tmp_path)
    assert ended.code == 0 and "resuming at step 5 of 10" in ended.out, ended.err
    check_equal(tmp_path, trained)


def test_a_long_evaluation_goes_on_and_is_shared_out(trained, tmp_path):
    """By the command: killed in the middle of an attack, then by two shards, to the numbers of the report."""
    copy(trained, tmp_path, "exported")
    expected = numbers(report_of(trained / WORKDIR))
    engine = "tfrobust.attacks.shared.engine:Engine.run"
    flags = ["--model=exported/tiny", "--gin_file=gin/eval/quick.gin", "--gin_param=evaluate.chunk_size=100"]

    def evaluate(*more, **keywords):
        return processes.run(EVALUATE, [[*flags, *more]], cwd=tmp_path, **keywords)

    # Four chunks for each of two attacks.
    ended = evaluate("--output=killed", traps=[Trap([engine], 7)])
    assert ended.code == -signal.SIGKILL and len(listing(tmp_path / "killed" / "cache" / "chunks")) == 6
    ended = evaluate("--output=killed", counts=[engine])
    assert ended.code == 0 and ended.err.splitlines()[-1] == "2", ended.err
    assert numbers(report_of(tmp_path / "killed")) == expected
    for number in (1, 2):
        ended = evaluate("--output=shared", f"--shard={number}/2", counts=[engine])
        assert ended.code == 0 and ended.err.splitlines()[-1] == "4", ended.err
        assert not (tmp_path / "shared" / "robustness_report.json").exists()
    ended = evaluate("--output=shared", counts=[engine])
    assert ended.code == 0 and ended.err.splitlines()[-1] == "0", ended.err
    assert numbers(report_of(tmp_path / "shared")) == expected
    ended = evaluate("--shard=3/2", "--output=shared")
    assert ended.code == 2 and "no shard 3 of 2" in ended.err and len(ended.err.splitlines()) == 1, ended.err
    assert evaluate("--shard=half", "--output=shared").code == 2


@pytest.mark.rest
def test_eight_processes_at_once_make_the_report_of_one(trained, tmp_path):
    """As an array job does: the shards run at the same time in one folder, and a last process joins them."""
    copy(trained, tmp_path, "exported")
    engine = "tfrobust.attacks.shared.engine:Engine.run"
    flags = ["--model=exported/tiny", "--gin_file=gin/eval/quick.gin", "--gin_param=evaluate.chunk_size=40"]

    def start(*more):
        return processes.start(EVALUATE, [[*flags, *more]], cwd=tmp_path, counts=[engine])

    shards = [start("--output=shared", f"--shard={number}/8") for number in range(1, 9)]
    ends = [shard.wait() for shard in shards]
    assert [end.code for end in ends] == [0] * 8, ends
    # 360 images in nine chunks, of which the first shard has two, for each of two attacks.
    assert [end.err.splitlines()[-1] for end in ends] == ["4", *["2"] * 7]
    joined, alone = start("--output=shared"), start("--output=alone")
    assert joined.wait().err.splitlines()[-1] == "0" and alone.wait().err.splitlines()[-1] == "18"
    joined_report, other = (timeless(report_of(tmp_path / name).to_dict()) for name in ("shared", "alone"))
    assert joined_report == other


def timeless(document: dict) -> dict:
    """Return a report without durations and the time of its making."""
    for measurement in document["measurements"]:
        if measurement["unit"] == "seconds":
            measurement["value"] = None
    return {key: value for key, value in document.items() if key not in ("created", "cost")}
