"""Files that are either the old ones or the new ones, whole, whenever the process is killed."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import re
from collections.abc import Iterator

_count = itertools.count()


def write_atomically(path, data: bytes | str) -> None:
    """Writes a whole file under its name, or leaves what was there: write beside, fsync, rename, fsync.

    Args:
        path: where; its folder must exist.
        data: bytes, or text, which is written as UTF-8.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def replacing(path) -> Iterator[pathlib.Path]:
    """Yields a temporary name beside `path` with the same suffix; what the block wrote there becomes `path`.

    If the block raises, the temporary file goes and `path` stays what it was. Temporary files that killed
    processes left for the same `path` are removed.
    """
    path = pathlib.Path(path)
    _remove_leftovers(path)
    temporary = path.with_name(f".tmp-{os.getpid()}-{next(_count)}-{path.name}")
    try:
        yield temporary
        fsync_file(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def fsync_file(path) -> None:
    """Waits until the content of a file is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_directory(directory) -> None:
    """Waits until the names in a folder are on the disk."""
    fsync_file(directory)


def fsync_tree(directory) -> None:
    """Waits until every file and folder below `directory`, itself included, is on the disk."""
    for folder, _, names in os.walk(directory, topdown=False):
        for name in names:
            fsync_file(os.path.join(folder, name))
        fsync_directory(folder)


def _remove_leftovers(path: pathlib.Path) -> None:
    pattern = re.compile(rf"\.tmp-(\d+)-\d+-{re.escape(path.name)}")
    for entry in path.parent.iterdir():
        found = pattern.fullmatch(entry.name)
        if found and not _is_running(int(found[1])):
            entry.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    if process == os.getpid():
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def saved_model_directory(place: pathlib.Path) -> pathlib.Path:
    """The SavedModel that a folder is, or the newest of its numbered versions; ValueError where there is none."""
    if (place / "saved_model.pb").exists():
        return place
    versions = [child for child in place.iterdir() if child.name.isdecimal() and (child / "saved_model.pb").exists()]
    if not versions:
        raise ValueError(f"{place} holds neither saved_model.pb nor a numbered version with one.")
    return max(versions, key=lambda child: int(child.name))
