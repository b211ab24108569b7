"""Check files in the IDX format of MNIST, plain or gzipped, before their arrays are allocated."""

from __future__ import annotations

import gzip
import math
import os
import pathlib
import struct
import zlib

import numpy as np

from tfrobust.common import files
from tfrobust.errors import InputError

# The third byte of a file names the type of its numbers. Published sets of images store unsigned bytes.
_BYTES = 0x08
_TYPES = {0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}
_LARGEST = 2**31
# deflate never expands by more than this factor. Above the first size no published set comes near the second.
_MOST_GROWTH = 1032
_LARGEST_UNASKED, _MOST_GROWTH_OF_LARGE = 2**28, 100


def read_idx(path, ranks: tuple[int, ...]) -> np.ndarray:
    """Read an array of unsigned bytes from an IDX file.

    The magic number, the type, the number of dimensions and the byte count are checked before memory is allocated.

    Args:
        path: the file, plain or gzipped; its content decides, not its name.
        ranks: the numbers of dimensions that are accepted.

    Returns:
        uint8 with the shape of the header, read-only.

    Raises:
        InputError: names the file and the fault.
    """
    name = pathlib.Path(path).name[-60:]
    try:
        with files.regular(path) as file:
            stored = os.fstat(file.fileno()).st_size
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            with gzip.GzipFile(fileobj=file) if packed else file as stream:
                shape, header = _shape(stream, name, ranks)
                count = math.prod(shape)
                _check_count(count, stored if packed else stored - header, packed, name)
                content = stream.read(count)
                if len(content) < count or stream.read(1):
                    raise InputError(
                        f"{name} is damaged: its data are not the {count} bytes that its header announces."
                    )
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name} is damaged or cut short ({str(error)[:80]}); get it again.") from error
    return np.frombuffer(content, np.uint8).reshape(shape)


def _shape(stream, name: str, ranks: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Read the header and return the shape and the size of the header in bytes."""
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in (_BYTES, *_TYPES):
        raise InputError(f"{name} is no IDX file: it begins with {magic.hex() or 'nothing'}, not with 000008.")
    if magic[2] != _BYTES:
        raise InputError(f"{name} holds numbers of type {_TYPES[magic[2]]}; only unsigned bytes are read.")
    rank = magic[3]
    if rank not in ranks:
        raise InputError(f"{name} has {rank} dimensions, not {' or '.join(map(str, ranks))}: is it another file?")
    lengths = stream.read(4 * rank)
    if len(lengths) < 4 * rank:
        raise InputError(f"{name} is cut short within its header.")
    shape = struct.unpack(f">{rank}I", lengths)
    if not all(shape):
        raise InputError(f"{name} is empty: its header announces the shape {list(shape)}.")
    return shape, 4 + 4 * rank


def _check_count(count: int, stored: int, packed: bool, name: str) -> None:
    """Raise InputError if the bytes that a header announces cannot be in the file, or are too many."""
    most = min(_LARGEST, stored * _MOST_GROWTH if packed else stored)
    if packed and count > _LARGEST_UNASKED:
        most = min(most, stored * _MOST_GROWTH_OF_LARGE)
    if count > most or (not packed and count < stored):
        held = f"{stored} bytes {'compressed' if packed else 'of data'}"
        raise InputError(f"{name} is not read: its header announces {count} bytes, and the file has {held}.")
