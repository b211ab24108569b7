"""Checkpoints that are whole or absent."""

import errno
import json
import logging
import os
import shutil

import pytest
import tensorflow as tf

from tfrobust.common import files
from tfrobust.training import checkpoint
from tfrobust.training.checkpoint import CheckpointNotWritten, CheckpointStore


class Run:
    """A store over one variable whose value is the step that was saved."""

    def __init__(self, directory, **keywords):
        self.value = tf.Variable([0.0, 0.0], dtype=tf.float64)
        self.store = CheckpointStore(directory, tf.train.Checkpoint(values=[self.value]), **keywords)

    def save(self, *steps):
        for step in steps:
            self.value.assign([float(step), -float(step)])
            self.store.save(step, {"history": [step]})

    def restore(self):
        """The step of the state and that of the variables, which must agree."""
        self.value.assign([0.5, 0.5])
        state = self.store.restore()
        if state is None:
            assert self.value.numpy().tolist() == [0.5, 0.5]
            return None
        assert state["history"] == [state["step"]]
        assert self.value.numpy().tolist() == [state["step"], -state["step"]]
        return state["step"]

    def names(self):
        return sorted(os.listdir(self.store.directory))


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "checkpoints")


def test_nothing_saved_restores_nothing(run, tmp_path):
    assert run.restore() is None
    assert list(tmp_path.iterdir()) == []


def test_the_newest_of_the_kept_is_restored(run):
    run.save(1, 2, 30)
    assert run.names() == ["step-00000002", "step-00000030"]
    assert run.restore() == 30
    assert set(os.listdir(run.store.directory / "step-00000030")) == {
        "SHA256SUMS",
        "state.json",
        "variables.index",
        "variables.data-00000-of-00001",
    }


def test_steps_are_ordered_as_numbers(run):
    run.save(99_999_999, 100_000_000, 100_000_001)
    assert run.names() == ["step-100000000", "step-100000001"]
    assert run.restore() == 100_000_001


def truncate(path):
    path.write_bytes(path.read_bytes()[:-10])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x80  # in a text file: no UTF-8 any more
    path.write_bytes(data)


def remove(path):
    path.unlink()


def garble(path):
    path.write_text("no sums\n\0\n")


@pytest.mark.parametrize("damage", [truncate, flip, remove, garble])
@pytest.mark.parametrize("name", ["SHA256SUMS", "state.json", "variables.index", "variables.data-00000-of-00001"])
def test_damage_is_named_and_the_next_older_one_used(run, caplog, name, damage):
    run.save(1, 2)
    damage(run.store.directory / "step-00000002" / name)
    with caplog.at_level(logging.WARNING):
        assert run.restore() == 1
    (message,) = [record.getMessage() for record in caplog.records]
    assert "step-00000002 is damaged" in message
    # With damaged sums any file may be the one that is named.
    assert name in message or name == "SHA256SUMS"


def test_what_is_damaged_is_passed_over_and_saved_anew(run):
    run.save(1, 2)
    sums = run.store.directory / "step-00000002" / "SHA256SUMS"
    sums.write_text("".join(line + "\n" for line in sums.read_text().splitlines() if "data-00000" not in line))
    assert run.restore() == 1
    run.save(1, 2)
    flip(run.store.directory / "step-00000002" / "variables.index")
    run.save(2)
    assert run.restore() == 2


def test_nothing_valid_restores_nothing(run):
    run.save(1, 2)
    for name in run.names():
        (run.store.directory / name / "state.json").write_text("{}")
    assert run.restore() is None


def test_damaged_later_ones_never_crowd_out_what_is_saved_after_them(tmp_path):
    """Training that fell back to an earlier step saves lower numbers than the damaged ones have."""
    for keep in (1, 2):
        run = Run(tmp_path / str(keep), keep=keep)
        run.save(40, 45)
        for name in run.names():
            remove(run.store.directory / name / "variables.index")
        assert run.restore() is None
        run.save(10)
        assert run.restore() == 10 and run.names() == ["step-00000010"]


class Killed(BaseException):
    """Stands for the end of the process: nothing after it may run, so cleaning up is switched off too."""


@pytest.mark.parametrize("stage", ["write", "checksums", "fsync_tree", "rename"])
def test_a_kill_at_any_place_leaves_the_old_ones_whole(run, monkeypatch, stage):
    run.save(1, 2)

    def kill(*_):
        raise Killed

    owner, name = {
        "write": (run.store.checkpoint, "write"),
        "checksums": (checkpoint, "_checksums"),
        "fsync_tree": (files, "fsync_tree"),
        "rename": (os, "rename"),
    }[stage]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, kill)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(Killed):
            run.save(3)
    assert run.names() == [".tmp-step-00000003", "step-00000001", "step-00000002"]
    assert run.restore() == 2
    run.save(4)
    assert run.names() == ["step-00000002", "step-00000004"], "leftovers are removed"


def test_a_kill_before_old_ones_are_dropped_loses_nothing(run, monkeypatch):
    run.save(1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            run.save(3)
    assert run.restore() == 3


def test_a_full_disk_is_an_error_and_leaves_nothing_behind(run, monkeypatch):
    run.save(1)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "fsync_tree", full)
        with pytest.raises(CheckpointNotWritten, match="No space left.*earlier ones are intact"):
            run.save(2)
    assert run.names() == ["step-00000001"] and run.restore() == 1


def test_everything_is_synced_before_it_has_its_name(run, monkeypatch):
    order = []
    for owner, name in ((files, "fsync_tree"), (os, "rename"), (files, "fsync_directory")):
        original = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, name=name, original=original: (order.append(name), original(*a))[1])
    run.save(1)
    assert [name for name in order if name != "fsync_directory"] == ["fsync_tree", "rename"]
    assert order[-1] == "fsync_directory"


def test_a_state_that_is_refused_moves_no_variable(run):
    run.save(1)
    run.value.assign([7.0, 7.0])

    def refuse(state):
        raise ValueError(json.dumps(state["history"]))

    with pytest.raises(ValueError, match=r"\[1\]"):
        run.store.restore(refuse)
    assert run.value.numpy().tolist() == [7.0, 7.0]
