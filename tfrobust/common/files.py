"""Atomic file replacement and bounded reading: files stay whole, old or new, even if the process is killed."""

from __future__ import annotations

import codecs
import contextlib
import io
import itertools
import os
import pathlib
import re
import stat
from collections.abc import Iterator

from tfrobust.errors import InputError

SAVED_MODEL_FILE, LITERT_FILE = "saved_model.pb", "model.tflite"
LARGEST_TEXT = 2**26  # bytes, of a report or a vocabulary
_count = itertools.count()


def write_atomically(path, data: bytes | str, private: bool = False) -> None:
    """Write a whole file atomically: write a temporary file next to it, fsync, rename, fsync.

    Args:
        path: the file to write; its folder must exist.
        data: bytes, or text, which is encoded as UTF-8.
        private: True: only the owner can read the file, from its first byte on.
    """
    with replacing(path) as temporary:
        if private:
            temporary.touch(0o600)
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


def expanded(path) -> pathlib.Path:
    """Return a path with `~` and `~user` replaced by the home folder; a name of no user stays as it is."""
    return pathlib.Path(os.path.expanduser(path))


@contextlib.contextmanager
def regular(path) -> Iterator[io.BufferedReader]:
    """Open an untrusted file for reading.

    Raises:
        InputError: a pipe, a device or a folder, from which reading might never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would otherwise wait for a writer
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError(f"{path} is not a regular file.")
        yield file


def read_bounded(path, most: int = LARGEST_TEXT) -> bytes:
    """Return the content of an untrusted regular file; raise InputError if it has more than `most` bytes."""
    with regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise InputError(f"{path} has {size} bytes; at most {most} are read."[-300:])
        return file.read(size)  # with `most`, Python would allocate that much


def read_text(path, most: int = LARGEST_TEXT) -> str:
    """Read an untrusted text file: `text_of` its content; raise InputError as that and `read_bounded` do."""
    return text_of(read_bounded(path, most), path)


def text_of(content: bytes, where) -> str:
    """Decode text in UTF-8, without the byte order mark and the carriage returns that editors on Windows write.

    Raises:
        InputError: another encoding.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{str(where)[-200:]} is text in UTF-16; save it as UTF-8.")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        raise InputError(
            f"{str(where)[-200:]} is no text in UTF-8: line {line} has the byte 0x{byte:02x}; save it as UTF-8."
        ) from error


def check_writable(folder, flag: str) -> None:
    """Raise InputError if a folder, or its nearest existing parent, cannot be written to.

    An object store (gs://, s3://) has neither the rename nor the lock that a run needs, so it is refused as well.

    Args:
        folder: the folder that will be written to, perhaps hours later.
        flag: the flag that sets it.
    """
    if re.match(r"[A-Za-z][\w+.-]+:/", str(folder)):
        raise InputError(
            f"{flag} is {str(folder)[:100]}, but runs write to folders only, which have renames and locks: name a "
            "folder, and copy it to the object store after the run."
        )
    ancestor = pathlib.Path(folder).absolute()
    while not os.path.lexists(ancestor):
        ancestor = ancestor.parent
    if not ancestor.is_dir():
        kind = "a file" if ancestor.is_file() else "no folder"
        raise InputError(f"{ancestor} is {kind}; {flag} must be a folder.")
    if not os.access(ancestor, os.W_OK | os.X_OK):
        raise InputError(f"{ancestor} cannot be written to; use another {flag}.")


def require_model(path) -> None:
    """Raise FileNotFoundError if nothing is at the path of a model."""
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"There is no model at {path}: name a SavedModel directory, or a .keras, .tflite or weights file."
        )


@contextlib.contextmanager
def replacing(path) -> Iterator[pathlib.Path]:
    """Yield a temporary path next to `path` with the same suffix; the file written there replaces `path`.

    If the block raises, the temporary file is removed and `path` is unchanged. Temporary files that killed processes
    left for the same `path` are removed.
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
    """Wait until the content of a file is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_directory(directory) -> None:
    """Wait until the entries of a folder are on disk."""
    fsync_file(directory)


def fsync_tree(directory) -> None:
    """Wait until every file and folder below `directory`, itself included, is on disk."""
    for folder, _, names in os.walk(directory, topdown=False):
        for name in names:
            fsync_file(os.path.join(folder, name))
        fsync_directory(folder)


def _remove_leftovers(path: pathlib.Path) -> None:
    pattern = re.compile(rf"\.tmp-(\d+)-\d+-{re.escape(path.name)}")
    for entry in path.parent.iterdir():
        match = pattern.fullmatch(entry.name)
        if match and not _is_running(int(match[1])):
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


def saved_model_directory(folder: pathlib.Path) -> pathlib.Path:
    """Return a folder if it is a SavedModel, else its newest numbered version or the model of a workdir.

    Raises:
        InputError: there is none.
    """
    return _newest(folder, SAVED_MODEL_FILE)


def model_directory(folder: pathlib.Path) -> pathlib.Path:
    """Return the same for a folder of SavedModels or of LiteRT files; errors as in `saved_model_directory`."""
    return _newest(folder, SAVED_MODEL_FILE, LITERT_FILE)


def _newest(root: pathlib.Path, *names: str) -> pathlib.Path:
    def is_model(folder: pathlib.Path) -> bool:
        return any((folder / name).exists() for name in names)

    if is_model(root):
        return root
    versions = [child for child in root.iterdir() if child.name.isdecimal() and is_model(child)]
    if not versions and is_model(root / "staged"):
        return root / "staged"
    if not versions:
        raise InputError(f"{root} has neither {' nor '.join(names)} nor a numbered version with one.")
    return max(versions, key=lambda child: int(child.name))
