"""The folder of a run: its default name, its training configuration, its lock, and the owner it publishes as."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
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
RUNS = "runs"
_LARGEST_TRAINING = 2**24  # bytes
# Arguments of data sources on which the examples do not depend.
_NOT_OF_EXAMPLES = ("download", "verify")

_log = logging.getLogger(__name__)


def default_workdir(name: str, training: dict) -> tuple[str, str]:
    """Return the workdir of a run that names none: `runs/<name>`, or else the first of `runs/<name>-2`, `-3`, ....

    A folder that holds another training configuration is passed over, so that no training replaces another; one of the
    same configuration is resumed.

    Returns:
        (path of the folder, sentence about the most similar training that was passed over, or "").

    Raises:
        InputError: the record of a folder cannot be read.
    """
    passed_over = []
    for number in itertools.count(1):
        folder = str(pathlib.Path(RUNS, name if number == 1 else f"{name}-{number}"))
        differences = _recorded_differences(folder, training)
        if not differences:
            break
        passed_over.append((folder, differences))
    if not passed_over:
        return folder, ""
    nearest, differences = min(passed_over, key=lambda other: len(other[1]))
    return folder, f"{nearest} holds another training configuration ({_listed(differences)}); the workdir is {folder}."


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
    with locked(folder) if alone else contextlib.nullcontext():
        yield open_workdir(workdir, training, must_exist=must_exist)


@contextlib.contextmanager
def locked(folder) -> Iterator[None]:
    """Lock other runs out of a folder, which is created if missing.

    Raises:
        InputError: another process uses the folder.
    """
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    descriptor = _locked(pathlib.Path(folder, LOCK_FILE))
    try:
        yield
    finally:
        os.close(descriptor)


def check_unused(workdir: str | None, name: str) -> None:
    """Check that no other process uses the folder of a run, before any data are read; create nothing.

    Args:
        workdir: path of the folder; None for the default, which depends on the data: then there is only a warning.
        name: name of the model.

    Raises:
        InputError: another process uses `workdir`.
    """
    path = pathlib.Path(workdir or pathlib.Path(RUNS, name), LOCK_FILE)
    if not path.is_file() or path.is_symlink():
        return
    try:
        os.close(_locked(path))
    except InputError:
        if workdir:
            raise
        _log.warning("%s is used by another process: a run of the same configuration will be refused.", path.parent)


def _locked(path: pathlib.Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InputError(
            f"{path.parent} is used by another process. Wait for its end, or use another --workdir."
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
        raise InputError(f"{workdir} is a file; --workdir is a folder.")
    for part in (folder / "checkpoints", folder / "logs"):
        if part.exists() and not part.is_dir():
            raise InputError(f"{part} is a file where a run has a folder. Use another --workdir.")
    checkpoints = (folder / "checkpoints", folder / "pretraining" / "checkpoints")
    if not recorded.is_file() and any(path for part in checkpoints for path in part.glob("step-*")):
        raise InputError(f"{workdir} has checkpoints and no {TRAINING_FILE} that says of what. Use another --workdir.")
    differences = _recorded_differences(workdir, training)
    if differences:
        shown = _listed(differences)
        raise InputError(f"{workdir} holds another training configuration: {shown}. Use another --workdir.")
    if recorded.is_file():
        return folder
    if must_exist:
        raise InputError(f"{workdir} holds no training run ({TRAINING_FILE} is missing).")
    folder.mkdir(parents=True, exist_ok=True)
    make_owner(folder)
    # Last, so that a folder with this file is complete.
    files.write_atomically(recorded, json.dumps(training, indent=1, sort_keys=True))
    return folder


def owner(workdir) -> str:
    """Return the owner id a folder publishes as: constant across kills and moves, "" before it holds a run."""
    path = pathlib.Path(workdir, OWNER_FILE)
    return files.read_bounded(path).decode(errors="replace") if path.is_file() else ""


def make_owner(folder) -> str:
    """Return the owner id of an existing folder, after giving it one if it has none."""
    if not pathlib.Path(folder, OWNER_FILE).exists():
        files.write_atomically(pathlib.Path(folder, OWNER_FILE), uuid.uuid4().hex)
    return owner(folder)


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
        raise InputError(f"{path} cannot be read ({type(error).__name__}). Use another --workdir.") from error


def _recorded_differences(folder, training: dict) -> list[str]:
    """Return clauses on where the training of a folder differs from this one; none if it holds the same or no run."""
    recorded = pathlib.Path(folder, TRAINING_FILE)
    if not recorded.is_file():
        return []
    before = _read(recorded)
    if "validation" in training and isinstance(before, dict):  # workdirs of earlier commits do not name it
        before = {"validation": training["validation"]} | before
    return differences(before, training)


def differences(before: dict, now: dict, *, added: bool = True) -> list[str]:
    """Return clauses on where two training configurations differ; none if they are equal.

    Args:
        before: the one called "there".
        now: the one called "here".
        added: False to pass over arguments that an object has in only one of the two, as another release gives it.
    """
    changes = dict(_differences(before, json.loads(json.dumps(now)), added=added))
    # The method repeats the seed, other data have another fingerprint, and weights may lie in several versions.
    implied = {
        "method.seed": "seed" in changes,
        "data_fingerprint": any(name.split(".")[0] == "data" for name in changes),
        "pretrained.source": "pretrained.weights_sha256" not in changes,
    }
    return [
        f"{name} is {there} there and {here} here"
        for name, (there, here) in changes.items()
        if not implied.get(name) and not _is_moved(name, (there, here), before, changes)
    ]


def _is_moved(name: str, values: tuple[str, str], before: dict, changes: dict) -> bool:
    """Return True for a text of a data source, such as a path, or a download, if the data themselves are the same."""
    stage, inside, _ = name.partition("data.")
    recorded = before.get(stage[:-1]) if stage else before
    is_known = (
        isinstance(recorded, dict) and "data_fingerprint" in recorded and f"{stage}data_fingerprint" not in changes
    )
    is_text = all(value == "null" or value[0] == '"' for value in values)
    return bool(inside) and is_known and (is_text or name.rpartition(".")[2] in _NOT_OF_EXAMPLES)


def _listed(differences: list[str]) -> str:
    more = len(differences) - 2
    return "; ".join(differences[:2]) + (f"; and {more} more" if more > 0 else "")


def _differences(before, now, path: str = "", *, added: bool = True):
    """Yield the places where two JSON values differ, each with both values: (path, (before, now))."""
    objects = isinstance(before, dict) and isinstance(now, dict)
    if objects and before.get("class_name") == now.get("class_name"):
        for name in sorted({*before, *now} if added or not path else {*before} & {*now}):
            # The arguments of an object lie below "config", which gin does not know.
            inside = ".".join(filter(None, (path, name if name != "config" else "")))
            yield from _differences(before.get(name), now.get(name), inside, added=added)
    elif before != now:
        yield path, (_shown(before), _shown(now))


def _shown(value) -> str:
    return value["class_name"] if isinstance(value, dict) and "class_name" in value else json.dumps(value)[:60]
