"""Check untrusted archives before they are unpacked: the paths and the unpacked sizes of their members."""

from __future__ import annotations

import gzip
import lzma
import os
import pathlib
import stat
import tarfile
import tokenize
import zipfile
import zlib

from tfrobust.common import files
from tfrobust.errors import InputError

# Exceptions that the standard library raises for damaged or forged archives. RuntimeError: encrypted, or an unknown
# compression. TypeError: an array whose header has a Boolean as a length.
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError, TypeError)
# Also exceptions of NumPy for arrays in such an archive, whose header it parses as Python text.
ARRAY_ERRORS = (*ZIP_ERRORS, KeyError, AttributeError, MemoryError, OverflowError, SyntaxError, tokenize.TokenError)
# RecursionError: tarfile reads a header in front of a header in a call of its own.
TAR_ERRORS = (tarfile.TarError, zlib.error, EOFError, OSError, RecursionError)
_MOST_PARTS = 10_000
# Above this size, neither a member nor the whole archive may expand by more than this factor; pictures never do.
_LARGEST_UNASKED = 2**28
_MOST_GROWTH = 100
# Parsed JSON takes up to 25 times as much memory as its text.
_LARGEST_JSON = 2**24
# The central directory at the end of a zip file, which is read whole.
_LARGEST_LIST = 2**22
_LARGEST_READ = 2**28
_LARGEST_TAR = 2**31


def check_zip(path, test_contents: bool = True) -> None:
    """Raise ValueError for a zip file that expands excessively, has paths outside its folder, or is damaged.

    Args:
        path: a `.keras` or `.npz` file; a regular file, or a link to one.
        test_contents: True: compare all checksums, which reads the whole file; False: the reader will do so anyway.
    """
    name = pathlib.Path(path).name[-60:]
    try:
        with files.regular(path) as file:
            # The record that ZipFile itself uses; the central directory has not been read yet.
            end = zipfile._EndRecData(file)
            if end and end[zipfile._ECD_SIZE] > _LARGEST_LIST:
                raise RefusedArchiveError(
                    f"{name} is not read: its list of members has {end[zipfile._ECD_SIZE]} bytes."
                )
            archive = zipfile.ZipFile(file)
            fault = _zip_fault(archive.infolist(), os.fstat(file.fileno()).st_size)
            if fault:
                raise RefusedArchiveError(f"{name} is not read: {fault}.")
            broken = archive.testzip() if test_contents else None
    except InputError:
        raise
    except ZIP_ERRORS as error:
        raise InputError(f"{name} cannot be read: truncated, or not a zip archive ({str(error)[:80]}).") from error
    if broken is not None:
        raise InputError(f"{name} is damaged: its member {broken[:60]!r} does not match the recorded checksum.")


class RefusedArchiveError(InputError):
    """Error for an archive that is intact but malicious."""


def _zip_fault(parts: list[zipfile.ZipInfo], size: int) -> str:
    if len(parts) > _MOST_PARTS:
        return f"it has {len(parts)} members, more than {_MOST_PARTS}"
    if len({part.filename for part in parts}) < len(parts):
        return "a name occurs twice in it"
    for part in parts:
        name, path = repr(part.filename[:60]), pathlib.PurePosixPath(part.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in part.filename or stat.S_ISLNK(part.external_attr >> 16):
            return f"its member {name} leads out of the archive"
        if path.suffix == ".json" and part.file_size > _LARGEST_JSON:
            return f"its member {name} has {part.file_size} bytes, more than {_LARGEST_JSON}"
    stored = sum(part.compress_size for part in parts)
    if stored > size:
        return "its members overlap"
    totals = (stored, sum(part.file_size for part in parts))
    for packed, grown in (totals, *((part.compress_size, part.file_size) for part in parts)):
        if grown > _LARGEST_UNASKED and grown > _MOST_GROWTH * packed:
            return f"{packed} bytes of it would unpack to {grown}"
    return ""


def read_tar(path, choose) -> dict[str, bytes]:
    """Read files from a tar archive, plain or gzipped, into memory; nothing is written to disk.

    Args:
        path: the archive.
        choose: a function from the names of all regular files (without folders) to the names of those to read.

    Raises:
        ValueError: it expands excessively, or any error of `choose`.
        One of `TAR_ERRORS`: damaged, or no archive.
    """
    with (
        files.regular(path) as file,
        gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == b"\x1f\x8b" else file as stream,
        tarfile.TarFile(fileobj=_Bounded(stream)) as archive,
    ):
        members, total = {}, 0
        # All entries count, also folders and files of one name: a size below 0 leads tarfile back to earlier ones.
        for count, member in enumerate(archive, 1):
            total += max(0, member.size)
            if total > _LARGEST_TAR or count > _MOST_PARTS:
                raise RefusedArchiveError(
                    f"{pathlib.Path(path).name[-60:]} is not read: it unpacks to more than {_LARGEST_TAR} bytes or "
                    f"{_MOST_PARTS} files and folders."
                )
            if member.isreg() and not member.issparse():
                members[pathlib.PurePosixPath(member.name).name] = member
        return {name: archive.extractfile(members[name]).read() for name in choose(set(members))}


class _Bounded:
    """Stream with an upper bound on the size of one read, since headers may claim any length."""

    def __init__(self, stream):
        self._stream = stream
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, size: int) -> bytes:
        if size > _LARGEST_READ:
            raise OSError(f"a part of {size} bytes")
        return self._stream.read(size)
