"""Share read-only results that are costly to make: the first test that needs one makes it for all workers."""

import fcntl
import os
import pathlib
import shutil
from collections.abc import Callable

import pytest


def shared_folder(factory: pytest.TempPathFactory, name: str, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Return the folder that `make` has filled. What fails is tried again by the next test that asks."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # without workers, that folder's parent belongs to all runs
        base = base.parent
    folder, marker = base / f"once-{name}", base / f"once-{name}.whole"
    with open(base / f"once-{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not marker.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            marker.touch()
    return folder
