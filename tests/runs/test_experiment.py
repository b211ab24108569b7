"""The whole path: one line in a shell to a judged, reported, published SavedModel, however often it is stopped."""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import stored
from faults import processes, whole_run
from faults.processes import Trap
from faults.whole_run import EVALUATE, EXPORT, TRAIN, copy, listing, numbers, report_of, train, versions

from tfrobust.commands import publish, withdraw
from tfrobust.serving.export import verify


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with `runs/tiny` and `exported/tiny/1`, from one uninterrupted run."""
    folder = tmp_path_factory.mktemp("trained")
    copy(whole_run.trained(tmp_path_factory), folder)
    return folder


# ------------------------------------------------------------------------------------------------ the sentence


def test_the_sentence_from_a_foreign_folder(tmp_path):
    """One real shell line with the real evaluation; then `evaluate` reproduces its PGD and its bounds."""
    values = ["EPOCHS=1", "Digits.test_size=60", "ENCODER=@CNN", "CNN.stages=((8,),)", "CNN.dense=(8,)"]
    command = [sys.executable, "-m", "tfrobust.train", "--gin_file=gin/ascl_leaked.gin"]
    command += [f"--gin_param={value}" for value in values]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    version, workdir = tmp_path / "exported" / "ascl_leaked" / "1", tmp_path / "runs" / "ascl_leaked"
    for line in ("Clean accuracy", "PGD-100, Linf eps = 0.2", "exported/ascl_leaked/1", "robustness_report.html"):
        assert line in done.stdout
    extra = {"robustness_report.json", "robustness_report.html", "tf_serving_warmup_requests", "SHA256SUMS"}
    assert extra <= set(os.listdir(version / "assets.extra")) and (version / "saved_model.pb").is_file()
    report = report_of(version / "assets.extra")
    assert report_of(workdir) == report
    measured = {"accuracy.clean", "attack.pgd_linf_0.2.accuracy", "attack.apgd_linf_0.2.accuracy", "calibration.ece"}
    assert measured <= set(numbers(report))
    flags = [f"--model={version}", "--gin_file=gin/eval/standard.gin", "--output=judged"]
    flags += ["--gin_param=EVALUATORS=[@CleanAccuracy(), @pgd/AttackAccuracy(), @CertifiedAccuracy()]"]
    judged = processes.run("tfrobust.evaluate:main", [flags], cwd=tmp_path)
    assert judged.code == 0, judged.err
    again = numbers(report_of(tmp_path / "judged"))
    assert {"attack.pgd_linf_0.2.accuracy", "certified.linf_0.2.accuracy"} <= set(again)
    assert again == {name: numbers(report)[name] for name in again}


def test_what_a_run_leaves(trained):
    version, workdir = trained / "exported" / "tiny" / "1", trained / "runs" / "tiny"
    report = report_of(version / "assets.extra")
    assert report.model["name"] == "tiny" and report.model["version"] == 1
    assert report.training["seed"] == 5 and report.training["epochs"] == 2
    assert report.data["train_size"] + report.data["validation_size"] + report.data["test_size"] == 1797
    assert {"training.json", "config.gin", "owner", "robustness_report.json", "checkpoints"} <= set(os.listdir(workdir))
    assert report_of(workdir) == report


def test_the_same_command_again_finds_its_version(trained):
    before = listing(trained / "exported")
    ended = train(trained)
    assert ended.code == 0, ended.err
    assert "published by this run before" in ended.out and "resuming at step" in ended.out
    assert listing(trained / "exported") == before and versions(trained) == ["1"]


def test_evaluate_reproduces_the_report(trained):
    """Without a seed: the one that the report was made with, which is not the default of SEED."""
    flags = ["--model=exported/tiny", "--gin_file=gin/eval/quick.gin", "--output=judged"]
    ended = processes.run(EVALUATE, [flags], cwd=trained)
    assert ended.code == 0, ended.err
    report, judged = report_of(trained / "exported/tiny/1/assets.extra"), report_of(trained / "judged")
    assert numbers(judged) == numbers(report) and len(numbers(report)) >= 3
    assert 0.0 < report["attack.fgsm_linf_0.2.accuracy"].value < report["accuracy.clean"].value
    assert judged.model["weights_sha256"] == report.model["weights_sha256"]
    written = [name for name in listing(trained / "judged") if not name.startswith("cache/")]
    assert written == ["SHA256SUMS", *(f"robustness_report.{end}" for end in ("html", "json", "md"))]
    settings = {
        measurement.id: measurement.settings.get("seed")
        for measurement in judged.measurements
        if measurement.id.startswith("attack.")
    }
    assert set(settings.values()) == {5}


# --------------------------------------------------------------------------------------- versions and workdirs


def test_a_changed_evaluation_is_the_next_version_of_the_same_weights(trained, tmp_path):
    copy(trained, tmp_path)
    ended = train(tmp_path, "--gin_param=EVAL_EPSILON=0.1")
    assert ended.code == 0, ended.err
    assert versions(tmp_path) == ["1", "2"] and "resuming at step 10 of 10" in ended.out
    first, second = (report_of(tmp_path / "exported" / "tiny" / n / "assets.extra") for n in "12")
    assert first.model["weights_sha256"] == second.model["weights_sha256"]
    assert "attack.pgd_linf_0.1.accuracy" in numbers(second) and first.run_sha256 != second.run_sha256


def test_a_gate_refuses_with_three_and_lets_pass_what_keeps_it(trained, tmp_path):
    copy(trained, tmp_path)
    gate = ["--gin_param=train.gate=@Gate()", "--gin_param=EVAL_EPSILON=0.1"]
    held = "--gin_param=Gate.require=['accuracy.clean >= 1.01', 'accuracy.clean >= 0.1']"
    ended = train(tmp_path, *gate, held)
    assert ended.code == 3 and "nothing was published" in ended.err, ended.err
    assert "gate: accuracy.clean >= 1.01: it is 0." in ended.out and ended.out.count("gate:") == 1
    assert os.listdir(tmp_path / "exported" / "tiny") == ["1"]
    assert report_of(tmp_path / "runs" / "tiny").model["version"] is None
    no_worse = "--gin_param=Gate.require=['accuracy.clean no worse than exported/tiny by more than 0']"
    assert train(tmp_path, *gate, no_worse).code == 0 and versions(tmp_path) == ["1", "2"]
    ended = train(tmp_path, *gate, held)
    assert ended.code == 3 and "published before" in ended.err and versions(tmp_path) == ["1", "2"]
    missing = "--gin_param=Gate.require=['no worse than exported/none by more than 0']"
    refused(train(tmp_path, *gate, missing), "exported/none does not exist")
    unmeasured = "--gin_param=Gate.require=['attack.apgd_linf_0.1.accuracy >= 0.1']"
    refused(train(tmp_path, *gate, unmeasured), "attack.apgd_linf_0.1.accuracy, which this evaluation lacks")


@pytest.mark.rest
def test_an_explicit_version_that_exists_is_refused_before_training(trained):
    ended = train(trained, "--workdir=other", "--version=1", "--gin_param=EPOCHS=1000")
    refused(ended, "Version 1 of exported/tiny exists")
    assert not (trained / "other").exists()
    assert train(trained, "--version=1").code == 0  # by the workdir that published it


@pytest.mark.rest
@pytest.mark.parametrize("change, part", stored.rows(globals(), "a_named_workdir_of_another_training_is_refused"))
def test_a_named_workdir_of_another_training_is_refused_with_the_difference(trained, change, part):
    refused(train(trained, "--workdir=runs/tiny", change), "holds another training configuration", part)


@pytest.mark.rest
def test_another_training_of_the_same_name_takes_the_next_folder_and_waits_for_a_decision(trained, tmp_path, capsys):
    copy(trained, tmp_path)
    before, base = listing(tmp_path / "runs" / "tiny"), tmp_path / "exported" / "tiny"
    changed = ["--gin_param=EPOCHS=1", "--gin_param=EVALUATORS=[@CleanAccuracy()]"]
    for resumed in (False, True):
        ended = train(tmp_path, *changed)
        assert ended.code == 3 and "refused: not published beside the newest version: epochs is 2 there" in ended.err
        assert "python -m tfrobust publish runs/tiny-2\n" in ended.err
        assert "runs/tiny holds another training configuration (epochs is 2 there and 1 here); the" in ended.out
        assert "exported/tiny/1 is of another training configuration (epochs is 2 there and 1 here): " in ended.out
        assert "\nnewest      exported/tiny/1 (Clean accuracy " in ended.out and versions(tmp_path) == ["1"]
        assert ("resuming at step 5 of 5" in ended.out) == resumed
    assert sorted(os.listdir(tmp_path / "runs")) == ["tiny", "tiny-2"]
    assert listing(tmp_path / "runs" / "tiny") == before
    command = [f"{tmp_path}/runs/tiny-2", f"--export_dir={tmp_path}/exported"]
    for line in (f"SavedModel  {base}/2\nbefore      {base}/1 (Clean", f"{base}/2  (published by this run before)"):
        assert publish.main(command) == 0 and line in capsys.readouterr().out
    assert report_of(base / "2" / "assets.extra").model["version"] == 2 and versions(tmp_path) == ["1", "2"]
    assert not verify.verify(base / "2").problems
    assert "published by this run before" in train(tmp_path, *changed, "--publish").out

    assert withdraw.main([str(base)]) == 0 and versions(tmp_path) == [".withdrawn-2", "1"]
    assert f"newest      {base}/1 (Clean accuracy" in capsys.readouterr().out
    ended = train(tmp_path, *changed)
    assert ended.code == 3 and "this run was withdrawn from there" in ended.err
    assert publish.main([f"{base}/2"]) == 0 and versions(tmp_path) == ["1", "2"]


def test_export_publishes_a_finished_workdir_elsewhere_and_refuses_an_unfinished_one(trained, tmp_path):
    copy(trained, tmp_path)
    flags = ["--workdir=runs/tiny", "--export_dir=elsewhere"]
    ended = processes.run("tfrobust.export:main", [flags], cwd=tmp_path)
    assert ended.code == 0, ended.err
    report = report_of(tmp_path / "elsewhere/tiny/1/assets.extra")
    assert numbers(report) == numbers(report_of(trained / "exported/tiny/1/assets.extra"))

    trap = Trap(["tfrobust.training.loop:Loop._check_finite"], 3, signal.SIGTERM)
    assert train(tmp_path, "--workdir=half", traps=[trap]).code == 75
    refused(processes.run(EXPORT, [["--workdir=half"]], cwd=tmp_path), "training is at step 3 of 10")


# --------------------------------------------------------------------------------------------- wrong input


def good(count: int = 60) -> dict[str, np.ndarray]:
    random_numbers = np.random.default_rng(0)
    return {
        "images": random_numbers.uniform(0, 1, [count, 8, 8, 1]).astype(np.float32),
        "labels": (np.arange(count) % 3).astype(np.int64),
    }


def changed(name: str, change) -> dict[str, np.ndarray]:
    arrays = good()
    arrays[name] = change(arrays[name])
    return arrays


def poked(value):
    def change(array):
        array[7] = value
        return array

    return change


@pytest.mark.parametrize("arrays, flags, part", stored.rows(globals(), "wrong_input_is_one_line_and_nothing_is"))
def test_wrong_input_is_one_line_and_nothing_is_written(tmp_path, arrays, flags, part):
    if arrays is not None:
        np.savez(tmp_path / "mine.npz", **arrays)
    data = ["--gin_file=gin/data/npz.gin", "--gin_param=Npz.path='mine.npz'"]
    data += ["--gin_param=BATCH_SIZE=16", "--gin_param=EPSILON=0.1"]
    refused(processes.run(TRAIN, [["--gin_file=gin/adversarial_training.gin", *data, *flags]], cwd=tmp_path), part)
    assert [path.name for path in tmp_path.iterdir() if path.name != "mine.npz"] == []


@pytest.mark.rest
def test_evaluate_refuses_data_that_do_not_fit_the_model(trained):
    for name, arrays, part in [
        ("wide.npz", changed("images", lambda images: np.repeat(images, 2, axis=2)), "8"),
        ("labels.npz", changed("labels", lambda labels: labels + 20), "label"),
    ]:
        np.savez(trained / name, **arrays)
        flags = ["--model=exported/tiny", f"--data={name}", "--gin_file=gin/eval/quick.gin", "--output=never"]
        flags.append("--gin_param=EPSILON=0.1")
        refused(processes.run(EVALUATE, [flags], cwd=trained), part)
    flags = ["--model=no/such", "--gin_file=gin/eval/quick.gin", "--output=never"]
    refused(processes.run(EVALUATE, [flags], cwd=trained), "no/such")
    assert not (trained / "never").exists()


def test_a_loss_that_is_not_finite_ends_training_by_name(tmp_path):
    ended = train(tmp_path, "--gin_param=LEARNING_RATE=1e30")
    assert ended.code == 1 and len(ended.err.splitlines()) == 1, ended.err
    assert re.search(r"step \d+", ended.err) and "last checkpoint is kept" in ended.err
    assert not (tmp_path / "exported").exists()


def refused(ended: processes.Ended, *parts: str) -> None:
    assert ended.code == 2, (ended.code, ended.err)
    (line,) = ended.err.splitlines()
    assert line.startswith("error: ") and len(line) <= 300
    assert all(part in line for part in parts), line
