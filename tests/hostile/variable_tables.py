"""`variables.index` byte by byte: as TensorFlow writes it, and such that the process which reads it ends."""

import dataclasses
import struct

import stored
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2

FLOAT, STRING = types_pb2.DT_FLOAT, types_pb2.DT_STRING
DATA = 64  # bytes of the only data file


def _checksum(content: bytes) -> int:
    """CRC-32C, bit by bit, masked."""
    value = 0xFFFFFFFF
    for byte in content:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) % 2**32


def number(value: int) -> bytes:
    """A whole number of variable length."""
    encoded = b""
    while value >= 128:
        encoded, value = encoded + bytes([value % 128 + 128]), value // 128
    return encoded + bytes([value])


def entry(key: bytes, value: bytes, shared: int = 0, length: int | None = None) -> bytes:
    """One entry of a block, whose key begins as the one before it does."""
    length = len(value) if length is None else length
    return number(shared) + number(len(key)) + number(length) + key + value


def block(entries: list[bytes], starts: tuple[int, ...] = (0,), packing: int = 0, spoil: int = 0) -> bytes:
    """A block and what follows it."""
    content = b"".join(entries) + struct.pack(f"<{len(starts)}I", *starts) + struct.pack("<I", len(starts))
    packed = content + bytes([packing])
    return packed + struct.pack("<I", _checksum(packed) ^ spoil)


@dataclasses.dataclass(kw_only=True)
class Table:
    """The parts of a file, valid ones by default."""

    entries: list[bytes]
    starts: tuple[int, ...] = (0,)
    last: bytes = b"z"
    packing: int = 0
    spoil: int = 0
    offset: int = 0
    size: int | None = None
    end: bytes = struct.pack("<Q", 0xDB4775248B80FB57)

    def content(self) -> bytes:
        data = block(self.entries, self.starts, self.packing, self.spoil)
        size = len(data) - 5 if self.size is None else self.size
        places = block([entry(self.last, number(self.offset) + number(size))])
        footer = number(0) * 2 + number(len(data)) + number(len(places) - 5)
        return data + places + footer.ljust(40, b"\0") + self.end


def header(**changes) -> bytes:
    return entry(b"", tensor_bundle_pb2.BundleHeaderProto(**{"num_shards": 1, **changes}).SerializeToString())


def variable(name: str = "w", sizes=(4, 4), **changes) -> bytes:
    """The entry of a variable of the type float32."""
    fields = {"dtype": FLOAT, "offset": 0, "size": 64, **changes}
    message = tensor_bundle_pb2.BundleEntryProto(**fields)
    for size in sizes:
        message.shape.dim.add(size=size)
    return entry(name.encode(), message.SerializeToString())


def _table(*entries: bytes, **changes) -> bytes:
    return Table(entries=[header(), *entries], **changes).content()


def sliced(start: int, length: int, stored: int = 0) -> bytes:
    """A variable of two slices, of which the file says where they lie in it."""
    message = tensor_bundle_pb2.BundleEntryProto(dtype=FLOAT, size=stored)
    message.shape.dim.add(size=4)
    message.slices.add().extent.add(start=start, length=length)
    return entry(b"w", message.SerializeToString())


VALID = _table(variable())
_LONG = variable("v" * 20)
_INSIDE = len(header()) + len(_LONG) - 30
_NO_SHAPE = tensor_bundle_pb2.BundleEntryProto(dtype=FLOAT)
_NO_SHAPE.shape.unknown_rank = True

# Name -> (content, a part of what is found).
CASES = stored.cases(__file__, "variable_tables", globals())
