"""Rehearse the loading of a SavedModel in a separate process, where a crash or a lack of memory does no harm."""

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


def remember(directory) -> None:
    """Register a SavedModel that this process has just written: it needs no rehearsal, wherever it is moved to."""
    _own.add(_digest(pathlib.Path(directory)))


def rehearse(directory) -> None:
    """Load a SavedModel and call it on one example in another process, with limits on memory and time.

    Args:
        directory: a SavedModel without findings in a scan.

    Raises:
        InputError (a ValueError): TensorFlow crashes, takes too much memory or time, or cannot load it.
    """
    directory = pathlib.Path(directory).resolve()
    if _digest(directory) in _own:
        return
    fault = run(str(directory), memory_limit(directory), SECONDS)
    if fault:
        raise InputError(f"{named(directory)} is not loaded: {fault}. Export it again, or get an unchanged copy."[:300])


def run(directory: str, largest: int, seconds: int) -> str:
    """Return why a model must not be loaded, as a clause; "" if it may be."""
    # -P keeps the folder of that file off the path; the directory is absolute, so it cannot be mistaken for a flag.
    command = [sys.executable, "-P", rehearsal_process.__file__, directory, str(largest), str(seconds)]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    try:
        done = subprocess.run(command, env=environment, timeout=seconds, **streams)
    except subprocess.TimeoutExpired:
        return f"TensorFlow has not loaded and called it within {seconds} s"
    return verdict(done.returncode, done.stdout, largest)


def verdict(code: int, printed: bytes, largest: int) -> str:
    """Return the fault shown by the end of a rehearsal, as `run` does."""
    if code < 0:
        name = signal.Signals(-code).name
        return f"TensorFlow crashes on it, or needs more than {largest} bytes ({name})"
    try:
        fault = json.loads(printed.splitlines()[-1])
    except (ValueError, IndexError):
        return f"TensorFlow crashes on it (code {code})"
    return f"TensorFlow cannot load it ({shown(fault, 160)[1:-1]})" if fault else ""


def memory_limit(directory: pathlib.Path) -> int:
    """Return the bytes that a process may take which loads a model.

    Files count by what they take on the disk, so holes do not, and a file of many links counts once.
    """
    found = (path.stat() for path in directory.rglob("*") if path.is_file())
    stored = {(each.st_dev, each.st_ino): min(each.st_size, 512 * each.st_blocks) for each in found}
    return LARGEST + _TIMES_FILES * sum(stored.values()) + _PER_PROCESSOR * (os.cpu_count() or 1)


def named(directory) -> str:
    """Return a path, shortened to its end if it is too long for a line."""
    name = str(directory)
    return name if len(name) <= 70 else f"...{name[-67:]}"


def _digest(directory: pathlib.Path) -> str:
    """Return a hash of the files that TensorFlow loads; the index holds the checksums of the data."""
    found = hashlib.sha256()
    for name in ("saved_model.pb", "variables/variables.index"):
        path = directory / name
        content = path.read_bytes() if path.is_file() else b""
        found.update(len(content).to_bytes(8, "little") + content)
    return found.hexdigest()
