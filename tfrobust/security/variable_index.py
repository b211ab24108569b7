"""Read `variables.index`, a SavedModel's table of variables, in Python and with bounds: TensorFlow trusts it.

The file is a sorted string table: blocks of (key, value) pairs, a block with the position of each block, and a footer
with the position of that one. The keys are the names of variables. The first key, "", has a `BundleHeaderProto`; each
other key a `BundleEntryProto`, which gives the variable's position in the data files.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib
import struct
from collections.abc import Iterator, Sequence

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2

from tfrobust.security.program_files import finding, shown
from tfrobust.security.program_sizes import shape_fault
from tfrobust.structs import Finding

LARGEST_INDEX = 2**23  # bytes; an index of a thousand variables has 50,000
_AGAIN = "Export the model again, or get an unchanged copy."
_FOOTER, _MAGIC = 48, 0xDB4775248B80FB57
_BLOCK_END = 5  # bytes: the block's compression and its checksum
# Types whose elements have individual lengths in a data file, so that the shape does not determine the number of bytes.
_OF_ANY_LENGTH = (types_pb2.DT_STRING, types_pb2.DT_VARIANT)


class _DamagedIndexError(ValueError):
    """Error for a file that TensorFlow would not write; its message continues after the name of the file."""


@dataclasses.dataclass(frozen=True)
class _Variable:
    """One entry: bytes in memory by its shape, bytes stored, and True in `sliced` if it only lists its slices."""

    name: str
    shape: list[int]
    size: int
    stored: int
    sliced: bool


def findings(directory: pathlib.Path) -> list[Finding]:
    """Return why the variables of a SavedModel cannot be read, or do not fit into their data files."""
    folder = directory / "variables"
    if not folder.is_dir():
        return []
    index, data = folder / "variables.index", list(folder.glob("variables.data-*"))
    if not index.is_file():
        return [finding("variables/variables.index is missing", _AGAIN)] if data else []
    reason = fault(index)
    return [finding(reason, _AGAIN)] if reason else []


def fault(index: pathlib.Path) -> str:
    """Return why the variables of an index cannot be read, or do not fit into the data files beside it; "" if they do.

    Args:
        index: an existing file, of a SavedModel or of a checkpoint.
    """
    try:
        variables, stored = _read_index(index)
    except (_DamagedIndexError, DecodeError, struct.error) as error:
        return f"{index.name} is damaged" + (f": {error}" if isinstance(error, _DamagedIndexError) else "")
    for needed in (
        sum(variable.stored for variable in variables),
        sum(variable.size for variable in variables if variable.sliced),
    ):
        if needed > stored:
            largest = max(variables, key=lambda variable: variable.size)
            return (
                f"its files hold {stored} bytes, less than its variables, such as {shown(largest.name)} {largest.shape}"
            )
    return ""


def _read_index(index: pathlib.Path) -> tuple[list[_Variable], int]:
    """Return the variables in the order of the file, and the total size of the data files in bytes."""
    if index.stat().st_size > LARGEST_INDEX:
        raise _DamagedIndexError(f"it has more than {LARGEST_INDEX} bytes")
    pairs = _pairs(index.read_bytes())
    key, value = next(pairs, (None, b""))
    if key != b"":
        raise _DamagedIndexError("it does not start with a header")
    count = tensor_bundle_pb2.BundleHeaderProto.FromString(value).num_shards
    # Larger counts need more files than a folder may hold.
    files = [index.with_name(f"variables.data-{number:05d}-of-{count:05d}") for number in range(min(count, 10_000))]
    if not files or not all(file.is_file() for file in files):
        raise _DamagedIndexError(f"some of its {count} data files are missing")
    sizes = [file.stat().st_size for file in files]
    return [_variable(key, value, sizes) for key, value in pairs], sum(sizes)


def _variable(key: bytes, value: bytes, files: Sequence[int]) -> _Variable:
    entry = tensor_bundle_pb2.BundleEntryProto.FromString(value)
    name = key.decode(errors="replace")
    shape = [dimension.size for dimension in entry.shape.dim]
    fault = "has no known shape" if entry.shape.unknown_rank or min(shape, default=0) < 0 else shape_fault(shape)
    try:
        item_size = tf.as_dtype(entry.dtype).size
    except TypeError:
        fault = "has no known type"
    if fault:
        raise _DamagedIndexError(f"{shown(name)} {fault}")
    elements, stored = math.prod(shape), entry.size
    if not (0 <= entry.shard_id < len(files) and 0 <= entry.offset and 0 <= stored):
        raise _DamagedIndexError(f"{shown(name)} is in no data file")
    if entry.offset + stored > files[entry.shard_id]:
        raise _DamagedIndexError(f"{shown(name)} ends after the end of its data file")
    of_any_length = entry.dtype in _OF_ANY_LENGTH
    fits = elements <= stored if of_any_length else elements * item_size == stored
    if not fits and not entry.slices:
        raise _DamagedIndexError(f"{shown(name)} {shape} does not match its {stored} bytes")
    if entry.slices and (stored or of_any_length or not all(_lies_in(part, shape) for part in entry.slices)):
        raise _DamagedIndexError(f"{shown(name)} has slices of other shapes")
    return _Variable(name, shape, stored if of_any_length else elements * item_size, stored, bool(entry.slices))


def _lies_in(part, shape: list[int]) -> bool:
    """Return True if a slice lies inside a tensor; a slice without a length covers the whole dimension."""
    if len(part.extent) != len(shape):
        return False
    for extent, size in zip(part.extent, shape, strict=True):
        is_full = not extent.HasField("length") and extent.start == 0
        if not is_full and not (0 <= extent.start <= extent.start + extent.length <= size and extent.length > 0):
            return False
    return True


# --------------------------------------------------------------------------------------------------- the table


def _pairs(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs of all blocks, with increasing keys, so that a search finds the same entries as a walk."""
    if len(content) < _FOOTER or struct.unpack("<Q", content[-8:]) != (_MAGIC,):
        raise _DamagedIndexError("it does not end like a table")
    _, _, at = _handle(content, len(content) - _FOOTER)  # skips the handle of an unused block
    places = _block(content, *_handle(content, at)[:2])
    before, end = None, 0
    for last, handle in places:
        offset, size, _ = _handle(handle, 0)
        if offset < end:
            raise _DamagedIndexError("its blocks overlap")
        end = offset + size
        pairs = _block(content, offset, size)
        keys = [key for key, _ in pairs]
        if not keys or (before is not None and keys[0] <= before) or keys[-1] > last:
            raise _DamagedIndexError("its blocks are not in order")
        before = last
        yield from pairs


def _block(content: bytes, offset: int, size: int) -> list[tuple[bytes, bytes]]:
    """Return the pairs of one block."""
    if offset + size + _BLOCK_END > len(content) - _FOOTER or size < 8:
        raise _DamagedIndexError("a block ends after the end of the file")
    block = content[offset : offset + size]
    packing, checksum = struct.unpack("<BI", content[offset + size : offset + size + _BLOCK_END])
    if packing:
        raise _DamagedIndexError("it is compressed")
    if checksum != _checksum(content[offset : offset + size + 1]):
        raise _DamagedIndexError("a block does not have the recorded checksum")
    (count,) = struct.unpack("<I", block[-4:])
    end = size - 4 - 4 * count
    if count < 1 or end < 0:
        raise _DamagedIndexError("the length of a block is unknown")
    pairs, entry_starts = [], {0}
    key, at = b"", 0
    while at < end:
        began = at
        shared, at = _number(block, at)
        unshared, at = _number(block, at)
        length, at = _number(block, at)
        if shared > len(key) or at + unshared + length > end:
            raise _DamagedIndexError("an entry is longer than its block")
        if not shared:
            entry_starts.add(began)
        previous, key = key, key[:shared] + block[at : at + unshared]
        at += unshared + length
        if pairs and key <= previous:
            raise _DamagedIndexError("its names are not in order")
        pairs.append((key, block[at - length : at]))
    # TensorFlow starts a search at these positions. They must be those of entries, or it would read other data.
    starts = struct.unpack(f"<{count}I", block[end:-4])
    if starts[0] or not entry_starts.issuperset(starts) or any(a >= b for a, b in itertools.pairwise(starts)):
        raise _DamagedIndexError("a block can be read in several ways")
    return pairs


def _handle(content: bytes, at: int) -> tuple[int, int, int]:
    """Return the offset and the size of a block, and the start of the next field."""
    offset, at = _number(content, at, bits=64)
    size, at = _number(content, at, bits=64)
    return offset, size, at


def _number(content: bytes, at: int, bits: int = 32) -> tuple[int, int]:
    """Return a variable-length integer, and the start of the next field."""
    value = 0
    for shift in range(0, bits, 7):
        if at >= len(content):
            break
        byte = content[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            if value >= 2**bits:
                break
            return value, at
    raise _DamagedIndexError("a number in it does not end")


def _checksum(content: bytes) -> int:
    """Return the CRC-32C of bytes, masked as in string tables."""
    value = 0xFFFFFFFF
    for byte in content:
        value = _TABLE[(value ^ byte) & 255] ^ value >> 8
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    values = range(256)
    for _ in range(8):
        values = [value >> 1 ^ (0x82F63B78 if value & 1 else 0) for value in values]
    return tuple(values)


_TABLE = _table()
