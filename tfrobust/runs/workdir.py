"""The folder of a run: its training configuration, its lock, and the owner it publishes as."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import pathlib
import uuid
from collections.abc import Iterator

from tfrobust.common import files
from tfrobust.errors import InputError

TRAINING_FILE = "training.json"
CONFIGURATION_FILE = "config.gin"
OWNER_FILE = "owner"
LOCK_FILE = "lock"
_LARGEST_TRAINING = 2**24  # bytes

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def locked_workdir(
    workdir: str, training: dict, *, must_exist: bool = False, alone: bool = True
) -> Iterator[pathlib.Path]:
    """Open the folder of a run as `open_workdir` does, and lock other runs out of it.

    The kernel releases the lock when the process ends, however it ends. Workers of one cluster share a folder: the
    chief takes the lock, the others pass alone=False.

    Raises:
        InputError: another process uses the folder, or `open_workdir` refuses it.
    """
    folder = pathlib.Path(workdir)
    if must_exist or folder.is_file() or (folder / TRAINING_FILE).is_file():
        # Writes nothing here, so that a refused folder stays unchanged.
        open_workdir(workdir, training, must_exist=must_exist)
    with contextlib.ExitStack() as held:
        if alone:
            folder.mkdir(parents=True, exist_ok=True)
            held.callback(os.close, _locked(folder / LOCK_FILE))
        yield open_workdir(workdir, training, must_exist=must_exist)


def _locked(path: pathlib.Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InputError(
            f"{path.parent} is used by another process. Wait for its end, or use another --workdir."[:300]
        ) from None
    except OSError as error:  # a file system without locks
        _log.warning("%s cannot be locked (%s): start no second run in this folder.", path.parent, error.strerror)
    return descriptor


def open_workdir(workdir: str, training: dict, *, must_exist: bool = False) -> pathlib.Path:
    """Open the folder of a run; create it if missing.

    Args:
        workdir: path of the folder.
        training: the training configuration as JSON. Evaluation and replicas are not part of it.
        must_exist: True to refuse a folder that holds no run.

    Returns:
        The folder, holding `training.json` and `owner`.

    Raises:
        InputError: it holds another training configuration (the difference is shown), or none although it must.
    """
    folder = pathlib.Path(workdir)
    recorded = folder / TRAINING_FILE
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{workdir} is a file; --workdir is a folder."[:300])
    for part in (folder / "checkpoints", folder / "logs"):
        if part.exists() and not part.is_dir():
            raise InputError(f"{part} is a file where a run has a folder. Use another --workdir."[:300])
    if recorded.is_file():
        differences = list(_differences(_read(recorded), json.loads(json.dumps(training))))
        if differences:
            shown = "; ".join(differences[:2])
            raise InputError(f"{workdir} holds another training configuration: {shown}. Use another --workdir."[:300])
        return folder
    if must_exist:
        raise InputError(f"{workdir} holds no training run ({TRAINING_FILE} is missing).")
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / OWNER_FILE).exists():
        files.write_atomically(folder / OWNER_FILE, uuid.uuid4().hex)
    # Last, so that a folder with this file is complete.
    files.write_atomically(recorded, json.dumps(training, indent=1, sort_keys=True))
    return folder


def owner(workdir) -> str:
    """Return the owner id a folder publishes as: constant across kills and moves, "" before it holds a run."""
    path = pathlib.Path(workdir, OWNER_FILE)
    return files.read_bounded(path).decode(errors="replace") if path.is_file() else ""


def canonical(value):
    """Return a serialized configuration without what differs between processes.

    That is names that Keras counts up, and built shapes.
    """
    if isinstance(value, dict):
        # "synchronized" depends on the number of replicas, which does not identify a training.
        dropped = {"build_config", "compile_config", "module", "registered_name", "synchronized"}
        if {"trainable", "dtype", "learning_rate", "inner_optimizer"} & set(value):  # of a Keras layer or optimizer
            dropped.add("name")
        return {key: canonical(item) for key, item in value.items() if key not in dropped}
    return [canonical(item) for item in value] if isinstance(value, (list, tuple)) else value


def _read(path: pathlib.Path):
    try:
        return json.loads(files.read_bounded(path, _LARGEST_TRAINING))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read ({type(error).__name__}). Use another --workdir."[:300]) from error


def _differences(before, now, path: str = ""):
    """Yield sentences on where two JSON values differ."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted({*before, *now}):
            yield from _differences(before.get(name), now.get(name), f"{path}.{name}" if path else name)
    elif before != now:
        yield f"{path} is {json.dumps(before)[:60]} there and {json.dumps(now)[:60]} here"
