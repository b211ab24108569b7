"""The folder of a run."""

import contextlib
import fcntl
import json
import signal
import subprocess
import sys
from types import SimpleNamespace

import keras
import pytest
import stored
import tensorflow as tf

from tfrobust.common import configured
from tfrobust.errors import InputError
from tfrobust.runs import estimate, workdir
from tfrobust.runs.settings import PublicationSettings
from tfrobust.runs.training_run import TrainingRun
from tfrobust.training import cluster

TRAINING = {"method": {"class_name": "ASCL", "config": {"temperature": 0.07, "weights": [1, 2]}}, "epochs": 4}


def changed(**top) -> dict:
    return json.loads(json.dumps(TRAINING)) | top


def test_a_fresh_and_an_empty_folder_become_a_run(tmp_path):
    for folder in (tmp_path / "a" / "b", tmp_path):
        assert workdir.owner(folder) == ""
        assert workdir.open_workdir(str(folder), TRAINING) == folder
        assert json.loads((folder / "training.json").read_text()) == TRAINING
        assert len(workdir.owner(folder)) == 32
    assert workdir.owner(tmp_path) != workdir.owner(tmp_path / "a" / "b")


def test_the_same_configuration_is_taken_up_again(tmp_path):
    workdir.open_workdir(str(tmp_path), changed(sizes=(1, 2)))
    before = workdir.owner(tmp_path)
    assert workdir.open_workdir(str(tmp_path), changed(sizes=(1, 2)), must_exist=True) == tmp_path
    assert workdir.owner(tmp_path) == before


def test_an_earlier_workdir_does_not_name_its_validation(tmp_path):
    workdir.open_workdir(str(tmp_path), TRAINING)
    assert workdir.open_workdir(str(tmp_path), changed(validation={"every": 2})) == tmp_path
    workdir.open_workdir(str(tmp_path / "now"), changed(validation={"every": 1}))
    for training in (changed(validation={"every": 2}), TRAINING):
        with pytest.raises(InputError, match="holds another training configuration: validation"):
            workdir.open_workdir(str(tmp_path / "now"), training)


@pytest.mark.parametrize("part", ["checkpoints", "pretraining/checkpoints"])
def test_checkpoints_without_a_record_of_their_training_are_no_fresh_folder(tmp_path, part):
    (tmp_path / "runs" / part / "step-00000004").mkdir(parents=True)
    with pytest.raises(InputError, match="has checkpoints and no training.json"):
        workdir.open_workdir(str(tmp_path / "runs"), TRAINING)
    workdir.open_workdir(str(tmp_path), TRAINING)  # a folder around it


def test_a_half_made_folder_is_finished_and_keeps_its_owner(tmp_path):
    """The owner is written first: a kill between the two files must not make another publisher of it."""
    workdir.open_workdir(str(tmp_path), TRAINING)
    before = workdir.owner(tmp_path)
    (tmp_path / "training.json").unlink()
    workdir.open_workdir(str(tmp_path), changed(epochs=5))
    assert workdir.owner(tmp_path) == before


@pytest.mark.parametrize("other, part", stored.rows(globals(), "another_configuration_is_refused_with_the"))
def test_another_configuration_is_refused_with_the_difference_and_nothing_changes(tmp_path, other, part):
    workdir.open_workdir(str(tmp_path), TRAINING)
    with pytest.raises(InputError, match=part) as caught:
        workdir.open_workdir(str(tmp_path), other)
    assert len(str(caught.value)) <= 300 and str(tmp_path) in str(caught.value)
    assert json.loads((tmp_path / "training.json").read_text()) == TRAINING


def test_data_at_another_path_are_the_same_data(tmp_path):
    def training(path, fingerprint="f", **config):
        data = {"class_name": "ImageFolder", "config": {"path": path, **config}}
        return changed(data=data, data_fingerprint=fingerprint, pretraining={"data": data, "data_fingerprint": "p"})

    workdir.open_workdir(str(tmp_path), training("/node/1"))
    workdir.open_workdir(str(tmp_path), training("/node/2"))
    workdir.open_workdir(str(tmp_path), training("/node/1", download=True, verify=False))
    with pytest.raises(InputError, match="data.verify is null there and false here"):
        workdir.open_workdir(str(tmp_path), training("/node/1", "g", verify=False))
    for other, part in (("g", '"/node/1" there and "/node/2" here'), ("f", "test_size is null there and 3 here")):
        with pytest.raises(InputError, match=part):
            workdir.open_workdir(str(tmp_path), training("/node/2", other, **{"test_size": 3} if other == "f" else {}))


def test_weights_of_another_version_are_the_same_weights(tmp_path):
    """evaluate --attach publishes them again."""

    def training(source, weights):
        return changed(pretrained={"source": source, "weights_sha256": weights, "frozen": False})

    workdir.open_workdir(str(tmp_path), training("base/1", "w"))
    workdir.open_workdir(str(tmp_path), training("base/2", "w"))
    with pytest.raises(InputError, match='pretrained.source is "base/1" there and "base/2" here'):
        workdir.open_workdir(str(tmp_path), training("base/2", "other"))


def test_without_a_folder_a_run_takes_the_first_of_its_name_that_holds_no_other_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seeded = changed(method={"class_name": "ASCL", "config": {**TRAINING["method"]["config"], "seed": 7}}, seed=7)
    kinds = [{"class_name": name, "config": {"path": name}} for name in ("Digits", "ImageFolder")]
    runs = [TRAINING, seeded, *(changed(data=kind, data_fingerprint=kind["class_name"]) for kind in kinds)]
    differing = ["", "seed is null there and 7", "data is null there and Digits", "data is null there and ImageFolder"]
    for _ in range(2):  # to begin, and to resume
        for number, (training, clause) in enumerate(zip(runs, differing, strict=True), 1):
            folder = "runs/trades" if number == 1 else f"runs/trades-{number}"
            line = f"runs/trades holds another training configuration ({clause} here); the workdir is {folder}."
            if not (tmp_path / folder).exists():
                assert workdir.default_workdir("trades", training) == (folder, line if number > 1 else "")
            workdir.open_workdir(folder, training)
            assert workdir.default_workdir("trades", training)[0] == folder
    assert workdir.default_workdir("other", TRAINING) == ("runs/other", "")


def test_what_is_no_run_is_refused_where_one_must_be(tmp_path):
    with pytest.raises(InputError, match="holds no training run"):
        workdir.open_workdir(str(tmp_path / "none"), TRAINING, must_exist=True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file"):
        workdir.open_workdir(str(tmp_path / "file"), TRAINING)
    for name in ("checkpoints", "logs"):
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / name).touch()
        with pytest.raises(InputError, match=f"{name} is a file where a run has a folder"):
            workdir.open_workdir(str(tmp_path / "run"), TRAINING)
        (tmp_path / "run" / name).unlink()
    (tmp_path / "training.json").write_text('{"epochs": ')
    with pytest.raises(InputError, match="cannot be read"):
        workdir.open_workdir(str(tmp_path), TRAINING)


_HOLDER = stored.text(globals(), "holder")


def test_two_runs_never_share_a_folder_and_a_kill_releases_it(tmp_path, monkeypatch, caplog):
    training, command = {"epochs": 4}, [sys.executable, "-c", _HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InputError, match="is used by another process"):
            workdir.check_unused(str(tmp_path), "mine")  # before any data are read
        monkeypatch.setattr(workdir, "RUNS", str(tmp_path.parent))
        workdir.check_unused(None, tmp_path.name)
        assert "a run of the same configuration will be refused" in caplog.text
        for alone in (True, False):  # another worker of the same cluster takes no lock
            with pytest.raises(InputError, match="is used by another process") if alone else contextlib.nullcontext():
                with workdir.locked_workdir(str(tmp_path), training, alone=alone):
                    pass
        other.send_signal(signal.SIGKILL)
        other.wait()
        with workdir.locked_workdir(str(tmp_path), training) as folder:
            assert folder == tmp_path
            with open(tmp_path / "lock") as lock, pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with workdir.locked_workdir(str(tmp_path), training):  # released on leaving, too
        pass


def test_what_is_refused_is_not_locked(tmp_path):
    (tmp_path / "file").touch()
    for folder, must_exist in ((tmp_path / "file", False), (tmp_path / "none", True), (tmp_path, True)):
        with pytest.raises(InputError, match="is a file|holds no training run"):
            with workdir.locked_workdir(str(folder), TRAINING, must_exist=must_exist):
                pass
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(tmp_path / "file")
    with pytest.raises(OSError, match="symbolic links"), workdir.locked_workdir(str(tmp_path / "run"), TRAINING):
        pass


def test_names_that_keras_counts_up_make_no_difference_but_arguments_do():
    def described(units: int, rate: float) -> dict:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(units), keras.layers.Dropout(0.5)])
        return workdir.canonical(configured.serialize({"model": model, "optimizer": keras.optimizers.SGD(rate)}))

    first = described(3, 0.1)
    assert described(3, 0.1) == first, "the second model's layers are called dense_1, ..."
    assert described(4, 0.1) != first and described(3, 0.2) != first


def test_a_run_that_is_refused_and_an_export_leave_the_configuration_of_the_training(tmp_path, monkeypatch):
    """A state refuses other callbacks in `Loop.run`, and other weights in `choose_weights`, which `_artifact` calls."""
    monkeypatch.setattr(estimate, "attack_steps", lambda evaluation, stage: 0)
    strategy = tf.distribute.get_strategy()
    unset = dict.fromkeys(("checkpoint_seconds", "validation", "profile"))

    def execute(text, refusing="", finished_only=False):
        def step(name):
            if name == refusing:
                raise InputError("refused")

        empty = SimpleNamespace(arrays=lambda: ((), ()))
        stage = SimpleNamespace(configuration=dict, dataset=SimpleNamespace(validation=empty))
        stage.loop = lambda *_, **__: SimpleNamespace(run=lambda: step("loop"), seconds=0)
        monkeypatch.setattr(TrainingRun, "_artifact", lambda *_: step("weights") or SimpleNamespace(publish=str))
        run = TrainingRun(
            training=SimpleNamespace(callbacks=(), batch_size=1, jit_compile=False, **unset),
            evaluation=None,
            publication=PublicationSettings(name="net", export_dir=str(tmp_path / "exported")),
            strategy=strategy,
            worker=cluster.this_worker(strategy),
            stage=stage,
            first=None,
            origin={},
            configuration=lambda: text,
            verbose=0,
        )
        with pytest.raises(InputError, match="refused") if refusing else contextlib.nullcontext():
            run.execute(str(tmp_path / "run"), finished_only)
        return (tmp_path / "run" / "config.gin").read_text()

    assert execute("stopped", "loop") == "stopped" and execute("trained") == "trained"
    assert execute("other callbacks", "loop") == execute("other weights", "weights") == "trained"
    assert execute("with smoothing", finished_only=True) == "trained"
    assert execute("evaluated again") == "evaluated again"
