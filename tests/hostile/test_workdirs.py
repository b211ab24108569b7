"""Workdirs that others have spoiled: a run stops with one line and leaves what was there."""

import contextlib
import fcntl
import os
import shutil
import types

import keras
import pytest
import stored
import tensorflow as tf
from hostile import mutations, variable_tables

from tfrobust.commands import compare, evaluate, export, train
from tfrobust.errors import InputError
from tfrobust.training import checkpoint, loop

FLAGS = ["--gin_file=gin/supervised.gin", "--gin_param=EPOCHS=1"]
TRAINING, CONFIGURATION = "training.json", "config.gin"


def _file(name: str, content: bytes):
    return lambda folder: (folder / name).write_bytes(content)


def _link(name: str, target: str):
    return lambda folder: (folder / name).symlink_to(target)


# Name -> (what spoils an empty folder, a part of the line).
TRAINED = stored.cases(__file__, "trained", globals())

EXPORTED = stored.cases(__file__, "exported", globals())


@pytest.mark.parametrize("name", TRAINED)
def test_training_again(tmp_path, refused, name):
    build, part = TRAINED[name]
    (tmp_path / "run").mkdir()
    build(tmp_path / "run")
    flags = [*FLAGS, f"--workdir={tmp_path / 'run'}", f"--export_dir={tmp_path / 'exported'}"]
    refused(train.main, *flags, part=part)


def test_a_workdir_that_another_run_uses(tmp_path, refused):
    (tmp_path / "run").mkdir()
    with open(tmp_path / "run" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        flags = [*FLAGS, f"--workdir={tmp_path / 'run'}", f"--export_dir={tmp_path / 'exported'}"]
        refused(train.main, *flags, part="is used by another process")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["lock"]


@pytest.mark.parametrize("name", EXPORTED)
def test_exporting(tmp_path, refused, name):
    build, part = EXPORTED[name]
    (tmp_path / "run").mkdir()
    build(tmp_path / "run")
    refused(export.main, f"--workdir={tmp_path / 'run'}", f"--export_dir={tmp_path / 'exported'}", part=part)


OUTPUTS = {"--workdir": train, "--export_dir": train, "--output": evaluate}
# Name -> (what makes it in an empty folder, which part of that is to be written to, a part of the line).
PLACES = stored.cases(__file__, "places", globals())


@pytest.mark.parametrize("flag", OUTPUTS)
@pytest.mark.parametrize("name", PLACES)
def test_where_nothing_can_be_written(tmp_path, refused, evaluate_flags, monkeypatch, name, flag):
    """Refused before anything is trained or evaluated; of a read-only file system as the kernel answers there."""
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "fixed" not in str(path) and allowed(path, mode))
    build, folder, part = PLACES[name]
    build(tmp_path)
    folders = {"--workdir": tmp_path / "run", "--export_dir": tmp_path / "exported"}
    flags = [*FLAGS, *(f"{other}={path}" for other, path in folders.items())]
    flags = evaluate_flags() if flag == "--output" else flags
    refused(OUTPUTS[flag].main, *flags, f"{flag}={tmp_path / folder}", part=part)


STATES = stored.cases(__file__, "states", globals())


@pytest.mark.parametrize("name", STATES)
def test_a_spoiled_checkpoint_is_named_and_never_read(tmp_path, name):
    folder = tmp_path / "step-00000003"
    folder.mkdir()
    for file in ("variables.index", "variables.data-00000-of-00001", "state.json"):
        (folder / file).write_text("{}")
    (folder / "SHA256SUMS").write_text(checkpoint._checksums(folder))
    assert checkpoint.find_damage(folder) is None
    STATES[name](folder)
    problem = checkpoint.find_damage(folder)
    assert problem and len(problem) <= 200


def _index(name: str):
    return lambda folder: (folder / "variables.index").write_bytes(variable_tables.CASES[name][0])


def _state_file(text: str):
    return lambda folder: (folder / "state.json").write_text(text)


def _objects(change):
    return lambda folder: mutations.change_objects(folder / "variables", lambda graph: change(graph.nodes))


# Name -> what spoils a checkpoint, which then gets its checksums.
SUMMED = {name: _index(name) for name in variable_tables.CASES} | stored.table(globals(), "summed")


def _other(folder):
    tf.train.Checkpoint(other=tf.Variable([1.0])).write(str(folder.parent / "variables"))
    return list(folder.parent.glob("variables.*"))


@pytest.mark.parametrize("name", SUMMED)
def test_a_checkpoint_of_others_with_checksums(tmp_path, name):
    """Nothing is restored: it is skipped as damaged, or refused; TensorFlow reads no index that would crash it."""
    variable = tf.Variable([1.0, 2.0])
    store = checkpoint.CheckpointStore(tmp_path, tf.train.Checkpoint(kept=variable))
    folder = store.save(3, {})
    assert store.restore() == {"step": 3}
    variable.assign([3.0, 4.0])
    SUMMED[name](folder)
    (folder / "SHA256SUMS").write_text(checkpoint._checksums(folder))
    with contextlib.suppress(InputError):
        assert store.restore() is None
    assert variable.numpy().tolist() == [3.0, 4.0]


_STATE = {"history": [], "callbacks": [], "stopped": False, "seconds": 1.0}
_CALLBACK = {"class": "Callback", "values": {"wait": 1, "best": None}}
FOREIGN_STATES = stored.cases(__file__, "foreign_states", globals())["rows"]


@pytest.mark.parametrize("state", FOREIGN_STATES)
def test_states_of_others(state):
    assert loop._is_state(_STATE | {"history": [{"loss": 1.0}], "callbacks": [_CALLBACK]})
    assert not loop._is_state(state)


def test_a_state_sets_nothing_but_what_was_kept():
    """Else a callback that writes files would write them where the state says."""
    callback = keras.callbacks.EarlyStopping()
    values = {"wait": 5, "monitor": 7, "on_epoch_end": 7}
    loop.Loop._restore_callbacks(types.SimpleNamespace(callbacks=[callback]), [{"values": values}])
    assert (callback.wait, callback.monitor) == (5, "val_loss") and callable(callback.on_epoch_end)


def test_names_of_versions_that_are_no_numbers(tmp_path, refused):
    """Folders called like numbers of other scripts, or of more digits than a number has."""
    for name in ("9" * 200, "²", "0x1", "-1", "1e3"):
        shutil.rmtree(tmp_path / "exported", ignore_errors=True)
        (tmp_path / "exported" / "model" / name).mkdir(parents=True)
        refused(compare.main, str(tmp_path / "exported" / "model"), part="no robustness report")
