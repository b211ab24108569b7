"""Rehearse the loading of a model in a separate process, where a crash or a lack of memory does no harm."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys

from tfrobust.errors import InputError
from tfrobust.security import rehearsal_process
from tfrobust.security.program_files import shown

LARGEST = 2**32  # bytes, plus 4 times what the model's files take on the disk, plus the processors' share
SECONDS = 300
_TIMES_FILES = 4
# TensorFlow starts several threads for each processor, and their stacks count.
_PER_PROCESSOR = 2**26
# Digests of models whose content this process has written itself.
_own: set[str] = set()


def remember(model) -> None:
    """Register a model that this process has just written: it needs no rehearsal, wherever it is moved to."""
    _own.add(_digest(pathlib.Path(model)))


def rehearse(model) -> None:
    """Load a model and call it on one example in another process, with limits on memory and time.

    Args:
        model: a SavedModel, or a LiteRT file, without findings in a scan.

    Raises:
        InputError (a ValueError): TensorFlow or LiteRT crashes, takes too much memory or time, or cannot load it.
    """
    model = pathlib.Path(model).resolve()
    if _digest(model) in _own:
        return
    fault = run(str(model), memory_limit(model), SECONDS)
    if fault:
        what = f"{'LiteRT' if model.is_file() else 'TensorFlow'} {fault}"
        raise InputError(f"{named(model)} is not loaded: {what}. Export it again, or get an unchanged copy."[:300])


def run(model: str, largest: int, seconds: int) -> str:
    """Return why a model must not be loaded, as a clause about its runtime without the subject; "" if it may be."""
    # -P keeps the folder of that file off the path; the model's path is absolute, so it cannot be mistaken for a flag.
    command = [sys.executable, "-P", rehearsal_process.__file__, model, str(largest), str(seconds)]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    try:
        done = subprocess.run(command, env=environment, timeout=seconds, **streams)
    except subprocess.TimeoutExpired:
        return f"has not loaded and called it within {seconds} s"
    return verdict(done.returncode, done.stdout, largest)


def verdict(code: int, printed: bytes, largest: int) -> str:
    """Return the fault shown by the end of a rehearsal, as `run` does."""
    if code < 0:
        name = signal.Signals(-code).name
        return f"crashes on it, or needs more than {largest} bytes ({name})"
    try:
        fault = json.loads(printed.splitlines()[-1])
    except (ValueError, IndexError):
        return f"crashes on it (code {code})"
    return f"cannot load it ({shown(fault, 160)[1:-1]})" if fault else ""


def memory_limit(model: pathlib.Path) -> int:
    """Return the bytes that a process may take which loads a model.

    Files count by what they take on the disk, so holes do not, and a file of many links counts once.
    """
    found = (path.stat() for path in (model, *model.rglob("*")) if path.is_file())
    stored = {(each.st_dev, each.st_ino): min(each.st_size, 512 * each.st_blocks) for each in found}
    return LARGEST + _TIMES_FILES * sum(stored.values()) + _PER_PROCESSOR * (os.cpu_count() or 1)


def named(directory) -> str:
    """Return a path, shortened to its end if it is too long for a line."""
    name = str(directory)
    return name if len(name) <= 70 else f"...{name[-67:]}"


def _digest(model: pathlib.Path) -> str:
    """Return a hash of the files that are loaded; the index of a SavedModel holds the checksums of the data."""
    found = hashlib.sha256()
    for path in (model, model / "saved_model.pb", model / "variables/variables.index"):
        content = path.read_bytes() if path.is_file() else b""
        found.update(len(content).to_bytes(8, "little") + content)
    return found.hexdigest()
