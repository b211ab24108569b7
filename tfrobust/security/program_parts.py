"""Count the messages of a protocol buffer before it is parsed: two bytes of a file can take 200 bytes of memory."""

from __future__ import annotations

import functools

from google.protobuf.descriptor import Descriptor

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5  # wire types


def count(content: bytes, kind: Descriptor, most: int) -> int:
    """Count the messages inside a serialized message, at all depths; stop above `most`.

    Damaged content is counted as far as it can be read: the parser, which reads it in the same order, ends there too.

    Args:
        content: the serialized message.
        kind: its type.
        most: the count ends at the first number above this one.

    Returns:
        The number of messages, at most `most` + 1.
    """
    found, at = 0, 0
    open_messages = [(_inner(kind), len(content))]
    try:
        while open_messages:
            inner, end = open_messages[-1]
            if at >= end:
                open_messages.pop()
                continue
            key, at = _number(content, at)
            wire = key & 7
            if wire == _VARINT:
                _, at = _number(content, at)
            elif wire in (_FIXED64, _FIXED32):
                at += 8 if wire == _FIXED64 else 4
            elif wire == _DELIMITED:
                size, at = _number(content, at)
                if key >> 3 not in inner:
                    at += size
                    continue
                found += 1
                if found > most or at + size > end:
                    break
                open_messages.append((_inner(inner[key >> 3]), at + size))
    except IndexError:  # a number that does not end
        pass
    return found


@functools.cache
def _inner(kind: Descriptor) -> dict[int, Descriptor]:
    """Return the types of the messages inside a message, by the numbers of their fields."""
    return {field.number: field.message_type for field in kind.fields if field.message_type is not None}


def _number(content: bytes, at: int) -> tuple[int, int]:
    """Return a variable-length integer, and the start of what follows."""
    value = shift = 0
    while (byte := content[at]) > 127:
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if shift > 63:
            raise IndexError
    return value | byte << shift, at + 1
