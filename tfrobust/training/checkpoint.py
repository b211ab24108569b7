"""Checkpoints that are complete or absent: written to a temporary folder, checksummed, synced and renamed."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import trackable_object_graph_pb2

from tfrobust.common import files
from tfrobust.errors import Failure, InputError
from tfrobust.security import variable_index

_log = logging.getLogger(__name__)


# TensorFlow raises these where Python raises OSError. Errors of a lost worker are not among them.
_DISK_ERRORS = (
    tf.errors.ResourceExhaustedError,
    tf.errors.FailedPreconditionError,
    tf.errors.PermissionDeniedError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,  # "File too large"
    tf.errors.DataLossError,
    tf.errors.UnknownError,
)


class CheckpointNotWritten(Failure, RuntimeError):
    """A checkpoint could not be written. Earlier checkpoints are intact."""


class CheckpointStore:
    """The newest checkpoints of one run, each a folder `step-<n>`.

    A folder holds TensorFlow's files, `state.json` and `SHA256SUMS`.

    Args:
        directory: folder of the checkpoints; created if missing.
        checkpoint: tracks all variables.
        keep: number of checkpoints to keep.
        scratch: True on workers other than the chief. They must take part in a save, because it reads variables of all
            workers, but their files are discarded.
    """

    def __init__(self, directory, checkpoint: tf.train.Checkpoint, *, keep: int = 2, scratch: bool = False):
        self.directory = pathlib.Path(directory)
        self.checkpoint = checkpoint
        self.keep = keep
        self.scratch = scratch

    def save(self, step: int, state: dict) -> pathlib.Path:
        """Write a checkpoint and delete those beyond `keep`.

        Returns:
            The folder of the checkpoint.

        Raises:
            CheckpointNotWritten: the disk is full or not writable; the earlier checkpoints are intact.
        """
        final = self.directory / f"step-{step:08d}"
        if self.scratch:
            with tempfile.TemporaryDirectory() as folder:
                self.checkpoint.write(os.path.join(folder, "variables"))
            return final
        try:
            return self._write(final, step, state)
        except (OSError, *_DISK_ERRORS) as error:
            reason = (
                str(error).splitlines()[0].split("; ")[-1][:120]
            )  # TensorFlow's message begins with a graph node and a path
            raise CheckpointNotWritten(
                f"the checkpoint {final} could not be written ({reason}); the earlier ones are intact."
            ) from error

    def _write(self, final: pathlib.Path, step: int, state: dict) -> pathlib.Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        temporary = self.directory / f".tmp-{final.name}"
        for leftover in self.directory.glob(".tmp-*"):  # left behind by killed processes
            shutil.rmtree(leftover, ignore_errors=True)
        temporary.mkdir()
        try:
            self.checkpoint.write(str(temporary / "variables"))
            (temporary / "state.json").write_text(json.dumps({"step": step, **state}))
            (temporary / "SHA256SUMS").write_text(_checksums(temporary))
            files.fsync_tree(temporary)
            if final.exists():
                # It is damaged, or this run resumed from an earlier step: a valid one would have been used.
                shutil.rmtree(final)
            os.rename(temporary, final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        files.fsync_directory(self.directory)
        # Later checkpoints are damaged, or this run resumed before them: they must not displace valid ones.
        reached = [folder for folder in self._all() if _step(folder) <= step]
        for folder in set(self._all()) - set(reached[-self.keep :]):
            shutil.rmtree(folder, ignore_errors=True)
        return final

    def restore(self, check: Callable[[dict], None] = lambda state: None) -> dict | None:
        """Restore the newest valid checkpoint; log and skip damaged ones.

        Args:
            check: called with the state before any variable is assigned; may raise.

        Returns:
            Its state with `step`, or None if there is no valid checkpoint.

        Raises:
            InputError: an intact checkpoint that is none of this run's.
        """
        for folder in reversed(self._all()):
            # TensorFlow trusts an index, and the checksums of a workdir from somebody else prove nothing.
            problem = find_damage(folder) or variable_index.fault(folder / "variables.index") or _objects_fault(folder)
            if not problem:
                state = _state(folder)
                check(state)
                try:
                    self.checkpoint.read(str(folder / "variables")).assert_consumed()
                except (AssertionError, ValueError, tf.errors.OpError) as error:
                    raise InputError(
                        f"{folder} holds the variables of another training. Use another --workdir."
                    ) from error
                return state
            _log.warning("checkpoint %s is damaged (%s): skipped.", folder, problem)
        return None

    def newest_state(self) -> dict | None:
        """Return the state of the newest intact checkpoint with its `step`, and restore nothing; None without one."""
        return next((_state(folder) for folder in reversed(self._all()) if not find_damage(folder)), None)

    def _all(self) -> list[pathlib.Path]:
        """Return all checkpoints, sorted by step."""
        if not self.directory.is_dir():
            return []
        return sorted((entry for entry in self.directory.iterdir() if _step(entry) >= 0), key=_step)


def find_damage(folder: pathlib.Path) -> str | None:
    """Describe the damage of a checkpoint folder: a missing, truncated or changed file; None if it is intact."""
    sums = folder / "SHA256SUMS"
    if not sums.is_file():
        return "SHA256SUMS is missing"
    lines = files.read_bounded(sums).decode(errors="replace").splitlines()
    expected = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    present = {entry.name for entry in folder.iterdir()} - {sums.name}
    for name in sorted({"variables.index", "state.json"} | present):
        if name not in expected:
            return f"SHA256SUMS does not list {name}"
    for name, digest in expected.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if _sha256(path) != digest:
            return f"{name} does not match its checksum"
    return None


def _objects_fault(folder: pathlib.Path) -> str:
    """Return why the checkpoint's graph of objects is not one that `CheckpointStore` writes, or ""."""
    try:
        text = tf.train.load_checkpoint(str(folder / "variables")).get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
        nodes = trackable_object_graph_pb2.TrackableObjectGraph.FromString(text).nodes
    except (tf.errors.OpError, DecodeError, TypeError, ValueError):
        return "it has no graph of objects"
    reached, waiting = {0}, {0}
    while waiting and max(waiting) < len(nodes) and min(waiting) >= 0:
        waiting = {child.node_id for number in waiting for child in nodes[number].children} - reached
        reached |= waiting
    is_complete = reached == set(range(len(nodes))) and not any(node.slot_variables for node in nodes)
    return "" if is_complete else "its graph of objects is damaged"


def _state(folder: pathlib.Path) -> dict:
    try:
        state = json.loads(files.read_bounded(folder / "state.json"))
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict) or type(state.get("step")) is not int or state["step"] < 0:
        raise InputError(f"{folder} holds no state of a training. Use another --workdir.")
    return state


def _step(folder: pathlib.Path) -> int:
    """Return the step in a checkpoint's name, -1 for other names."""
    number = folder.name.removeprefix("step-")
    return int(number) if number != folder.name and number.isascii() and number.isdecimal() else -1


def _checksums(folder: pathlib.Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir() if entry.name != "SHA256SUMS")
    return "".join(f"{_sha256(folder / name)}  {name}\n" for name in names)


def _sha256(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
