"""Read a FlatBuffers file by a schema, with every position checked before it is used.

The generated readers of FlatBuffers trust the file: an offset may point before its beginning, and a million vectors may
be the same one. This reader knows the fields of each table, and refuses everything that lies outside of the file, that
the schema does not have, or that takes more steps than a limit.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

MOST_TABLES = 1_000_000
MOST_NUMBERS = 50_000_000  # in the vectors of all tables, bytes excepted
# A file may name one part in many places. What is read must not be much more than the file: each table takes at least 8
# bytes, and texts and vectors count as often as they are named.
_TABLE_BYTES, _MOST_TIMES = 8, 2
_SIZES = {kind: struct.calcsize(kind) for kind in "?bBhHiIqQf"}
_TABLE_START = 4  # bytes of the offset to the table of field positions


class Damaged(ValueError):
    """The content is no valid FlatBuffers file of the schema; the message is a clause."""


class Reader:
    """Reader of one file.

    A schema names the fields of each table in the order of their numbers: {table: {field: kind}}. A kind is a struct
    character such as "i" (a number); "str"; "[i]" (a vector of numbers); "Name" or "[Name]" (a table, or a vector of
    tables); "@" for a table whose kind another field tells, of which the position is returned; or "" for a field that
    must be absent.

    Args:
        content: of the file.
        schema: see above.
    """

    def __init__(self, content: bytes, schema: Mapping[str, Mapping[str, str]]):
        self._content, self._schema = content, schema
        self._tables = self._numbers = self._bytes = 0

    def root(self, name: str) -> dict:
        """Return the root table as in `table`."""
        return self.table(name, self._number("I", 0))

    def table(self, name: str, at: int) -> dict:
        """Return the fields of the table at a position.

        Returns:
            {field: value}. A missing number is 0; a missing vector, text or table is None.

        Raises:
            Damaged: a part lies outside of the file, or the table has a field that the schema does not allow.
        """
        self._tables += 1
        if self._tables > MOST_TABLES:
            raise Damaged(f"has more than {MOST_TABLES} parts")
        self._count(_TABLE_BYTES)
        fields = self._schema[name]
        positions, size = self._layout(at)
        kinds = [*fields.items(), *((f"number {n}", "") for n in range(len(fields), len(positions)))]
        values = {}
        for (field, kind), offset in zip(kinds, [*positions, *[0] * (len(kinds) - len(positions))], strict=True):
            width = _SIZES.get(kind, 4)
            if offset and not kind:
                raise Damaged(f"has the field {field} in {name}, which is not read")
            if offset and (offset < _TABLE_START or offset + width > size):
                raise Damaged(f"has the field {field} outside of its {name}")
            if kind:
                values[field] = self._value(kind, at + offset if offset else 0)
        return values

    def _layout(self, at: int) -> tuple[tuple[int, ...], int]:
        """Return the positions of a table's fields within it, 0 for a missing one, and its size."""
        start = at - self._number("i", at)
        count, odd = divmod(self._number("H", start) - 4, 2)
        size = self._number("H", start + 2)
        if odd or count < 0 or start + 4 + 2 * count > len(self._content) or at + size > len(self._content):
            raise Damaged("has a table that ends outside of the file")
        return struct.unpack_from(f"<{count}H", self._content, start + 4), size

    def _value(self, kind: str, at: int):
        if kind in _SIZES:
            return self._number(kind, at) if at else 0
        if not at:
            return None
        at += self._number("I", at)
        if kind == "@":
            return at
        if kind == "str":
            text = self._vector("B", at)
            self._count(len(text))
            return bytes(text).decode(errors="replace")
        if not kind.startswith("["):
            return self.table(kind, at)
        inner = kind[1:-1]
        if inner in _SIZES:
            return self._vector(inner, at)
        offsets = self._vector("I", at).tolist()
        if len(offsets) > MOST_TABLES:
            raise Damaged(f"has more than {MOST_TABLES} parts")
        return [self.table(inner, at + 4 + 4 * i + offset) for i, offset in enumerate(offsets)]

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > _MOST_TIMES * len(self._content):
            raise Damaged("names its parts so often that reading it takes more than its size")

    def _number(self, kind: str, at: int):
        if at < 0 or at + _SIZES[kind] > len(self._content) or at % _SIZES[kind]:
            raise Damaged("has a number outside of the file, or between two places for one")
        return struct.unpack_from(f"<{kind}", self._content, at)[0]

    def _vector(self, kind: str, at: int) -> np.ndarray:
        count, width = self._number("I", at), _SIZES[kind]
        if at + 4 + count * width > len(self._content) or (at + 4) % width:
            raise Damaged("has a vector that ends outside of the file")
        self._numbers += count * (width > 1)
        self._count(count * width * (width > 1))
        if self._numbers > MOST_NUMBERS:
            raise Damaged(f"has more than {MOST_NUMBERS} numbers in its vectors")
        return np.frombuffer(self._content, np.dtype(kind).newbyteorder("<"), count, at + 4)
