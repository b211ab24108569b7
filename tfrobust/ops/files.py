"""Files that are either the old ones or the new ones, whole, whenever the process is killed."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import re
import stat
from collections.abc import Iterator
from typing import BinaryIO

from tfrobust.errors import InputError

LARGEST_TEXT = 2**26  # of a report or a vocabulary
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
def regular(path) -> Iterator[BinaryIO]:
    """Open a file of others for reading.

    Raises:
        InputError: a pipe, a device or a folder, which might never end or never answer.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # the opening of a pipe would wait for a writer
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError(f"{path} is no regular file."[:300])
        yield file


def read_bounded(path, most: int = LARGEST_TEXT) -> bytes:
    """Return the content of a regular file of others; InputError for one of more than `most` bytes."""
    with regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise InputError(f"{path} has {size} bytes; at most {most} are read."[-300:])
        return file.read(most)


def check_writable(folder, what: str) -> None:
    """Raise InputError if a folder, or the nearest one above it that exists, cannot be written to.

    Args:
        folder: where something will be written, perhaps hours later.
        what: the flag that names it.
    """
    place = pathlib.Path(folder).absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        kind = "a file" if place.is_file() else "no folder"
        raise InputError(f"{place} is {kind}; {what} is a folder."[:300])
    if not os.access(place, os.W_OK | os.X_OK):
        raise InputError(f"{place} cannot be written to; use another {what}."[:300])


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
        raise InputError(f"{place} holds neither saved_model.pb nor a numbered version with one.")
    return max(versions, key=lambda child: int(child.name))
