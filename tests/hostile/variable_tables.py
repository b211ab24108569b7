"""`variables.index` byte by byte: as TensorFlow writes it, and such that the process which reads it ends."""

import dataclasses
import struct

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
CASES = {
    "a size below nothing": (_table(variable(sizes=(-4, -4))), "no known shape"),
    "one size below nothing": (_table(variable(sizes=(4, -1), size=0)), "no known shape"),
    "sizes whose product wraps round": (_table(variable(sizes=(2**62, 2**62, 4))), "more than 2^40 elements"),
    "sizes whose product is one": (_table(variable(sizes=(2**32, 2**32), size=0)), "more than 2^40 elements"),
    "sizes and none": (_table(variable(sizes=(2**62, 2**62, 0), size=0)), "more than 2^40 elements"),
    "a size of a terabyte": (_table(variable(sizes=(2**38,))), "does not match its 64 bytes"),
    "300 dimensions": (_table(variable(sizes=(1,) * 300, size=4)), "300 dimensions"),
    "no rank": (_table(entry(b"w", _NO_SHAPE.SerializeToString())), "no known shape"),
    "no type": (_table(variable(dtype=0)), "no known type"),
    "a type of tomorrow": (_table(variable(dtype=9999)), "no known type"),
    "less stored than it needs": (_table(variable(size=60)), "does not match its 60 bytes"),
    "more stored than it needs": (_table(variable(sizes=(4,))), "does not match its 64 bytes"),
    "words without bytes": (_table(variable(sizes=(65,), dtype=STRING)), "does not match its 64 bytes"),
    "stored below nothing": (_table(variable(size=-64)), "is in no data file"),
    "stored before the beginning": (_table(variable(offset=-8)), "is in no data file"),
    "stored behind the end": (_table(variable(offset=8)), "after the end of its data file"),
    "stored far behind the end": (_table(variable(offset=2**62)), "after the end of its data file"),
    "stored in no file": (_table(variable(shard_id=1)), "is in no data file"),
    "stored in a file below nothing": (_table(variable(shard_id=-1)), "is in no data file"),
    "the same bytes many times": (_table(*(variable(f"v{n}") for n in range(9))), "less than its variables"),
    "a slice outside": (_table(sliced(3, 2)), "slices of other shapes"),
    "a slice before the beginning": (_table(sliced(-1, 2)), "slices of other shapes"),
    "a slice without end": (_table(sliced(2**62, 2**62)), "slices of other shapes"),
    "slices and bytes": (_table(sliced(0, 2, stored=16)), "slices of other shapes"),
    "an entry that is no protocol buffer": (_table(entry(b"w", b"\xff" * 9)), "index is damaged"),
    "a header that is no protocol buffer": (Table(entries=[entry(b"", b"\xff" * 9)]).content(), "index is damaged"),
    "no header": (Table(entries=[variable()]).content(), "does not start with a header"),
    "nothing in it": (Table(entries=[]).content(), "not in order"),
    "no data files": (Table(entries=[header(num_shards=0)]).content(), "data files are missing"),
    "data files below nothing": (Table(entries=[header(num_shards=-1)]).content(), "data files are missing"),
    "two data files": (Table(entries=[header(num_shards=2)]).content(), "2 data files are missing"),
    "a billion data files": (Table(entries=[header(num_shards=2**30)]).content(), "data files are missing"),
    "a block of 2^35 bytes": (_table(variable(), size=2**35), "after the end of the file"),
    "a block of 2^60 bytes": (_table(variable(), size=2**60), "after the end of the file"),
    "a block beyond the file": (_table(variable(), offset=2**40), "after the end of the file"),
    "a block where 64 bits end": (_table(variable(), offset=2**64 - 1), "after the end of the file"),
    "a block whose place has more bits": (_table(variable(), offset=2**64), "a number in it does not end"),
    "a block of nothing": (_table(variable(), size=0), "after the end of the file"),
    "a block under another name": (_table(variable(), last=b"a"), "not in order"),
    "a compressed block": (_table(variable(), packing=1), "compressed"),
    "another checksum": (_table(variable(), spoil=1), "recorded checksum"),
    "names twice": (_table(variable(), variable()), "not in order"),
    "names not in order": (_table(variable("b"), variable("a")), "not in order"),
    "a name that begins as none does": (_table(entry(b"w", b"", shared=9)), "longer than its block"),
    "a value longer than its block": (_table(entry(b"w", b"", length=2**31)), "longer than its block"),
    "a value longer than a number": (_table(entry(b"w", b"", length=2**32)), "a number in it does not end"),
    "a number without end": (_table(b"\xff" * 20), "a number in it does not end"),
    "no place to begin": (_table(variable(), starts=()), "length of a block is unknown"),
    "a place to begin inside an entry": (_table(_LONG, starts=(0, _INSIDE)), "in several ways"),
    "a place to begin behind the block": (_table(variable(), starts=(0, 2**31)), "in several ways"),
    "places to begin not in order": (_table(variable(), starts=(0, 0)), "in several ways"),
    "another first place to begin": (_table(variable(), starts=(len(header()),)), "in several ways"),
    "another end": (_table(variable(), end=b"\0" * 8), "does not end like a table"),
    "no end": (VALID[:40], "does not end like a table"),
    "nothing": (b"", "does not end like a table"),
    "its end alone": (VALID[-48:], "after the end of the file"),
    "more than is read": (b"\0" * (2**23 + 1), "more than 8388608 bytes"),
}
