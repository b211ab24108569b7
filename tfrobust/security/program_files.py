"""Check the files of a SavedModel other than its graph: their names, sizes, kinds and links."""

from __future__ import annotations

import functools
import os
import pathlib
import stat
from collections.abc import Iterable

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from tensorflow.core.framework import graph_debug_info_pb2
from tensorflow.core.protobuf import fingerprint_pb2, saved_model_pb2

from tfrobust.structs import Finding

PROGRAM = "saved_model.pb"
# Alternative files of the program; which one a loader reads depends on the loader.
_OTHER_PROGRAMS = ("saved_model.cpb", "saved_model.pbtxt")
_LARGEST_PROGRAM = 2**29  # bytes; weights lie in variables/
_MOST_FILES = 10_000
_MOST_GRAPHS = 100
_DEEPEST_FOLDER = 50
MOST_PARTS = 5_000_000  # messages at all depths
# Name -> (its message type, maximum number of bytes).
_SMALL_PARTS = {
    "fingerprint.pb": (fingerprint_pb2.FingerprintDef, 2**16),
    "debug/saved_model_debug_info.pb": (graph_debug_info_pb2.GraphDebugInfo, 2**24),
}
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5  # wire types
_AGAIN = "Export the model again, or get an unchanged copy."


def finding(evidence: str, remedy: str) -> Finding:
    """Return a fault that keeps a model from being loaded; the evidence ends without a period."""
    return Finding("scan", "fail", evidence, remedy)


def shown(name, limit: int = 60) -> str:
    """Return a name from a file quoted, printable and short."""
    text = repr(str(name)[: limit + 1])
    return text if len(text) <= limit else f"{text[: limit - 4]}...'"


def findings(directory: pathlib.Path) -> list[Finding]:
    """Return the faults that keep a folder from being read at all."""
    faults = _entry_findings(directory)
    if faults:
        return faults
    program = directory / PROGRAM
    if not program.is_file():
        return [finding(f"{PROGRAM} is missing", "Name the folder of a SavedModel or of one of its versions.")]
    faults = [
        finding(f"{name} stands beside {PROGRAM}, and a loader may take either", f"Remove {name}.")
        for name in _OTHER_PROGRAMS
        if os.path.lexists(directory / name)
    ]
    size = program.stat().st_size
    if size > _LARGEST_PROGRAM:
        evidence = f"{PROGRAM} has {size} bytes, more than {_LARGEST_PROGRAM}"
        faults.append(finding(evidence, "Export with weights as variables, not as constants."))
    return faults + _small_part_findings(directory)


def _small_part_findings(directory: pathlib.Path) -> list[Finding]:
    """Reject other files that a loader reads if they are too large or not of their message type."""
    faults = []
    for name, (kind, largest) in _SMALL_PARTS.items():
        path = directory / name
        if not path.exists():
            continue
        try:
            fault = "" if path.stat().st_size <= largest else f"has more than {largest} bytes"
            fault or kind.FromString(path.read_bytes())
        except (DecodeError, OSError):
            fault = "is damaged"
        if fault:
            faults.append(finding(f"{name} {fault}", f"Remove {name}."))
    return faults


def _entry_findings(directory: pathlib.Path) -> list[Finding]:
    root, count = directory.resolve(), 0
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            count += 1
            path = pathlib.Path(folder, name)
            inside = shown(path.relative_to(root))
            try:
                mode = path.stat().st_mode
                leads_out = path.is_symlink() and not path.resolve().is_relative_to(root)
            except (OSError, RuntimeError):  # a dangling or circular link
                return [finding(f"{inside} cannot be read", "Remove it, or put the file there.")]
            if leads_out:
                return [finding(f"the link {inside} leads out of the folder", "Copy the file itself there.")]
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                return [finding(f"{inside} is neither a file nor a folder", "Remove it.")]
        # os.walk calls itself for each level, and Python limits that.
        if len(pathlib.Path(folder).relative_to(root).parts) > _DEEPEST_FOLDER:
            return [finding(f"it has folders more than {_DEEPEST_FOLDER} deep", "Name the folder of the model alone.")]
        if count > _MOST_FILES:
            return [finding(f"it holds more than {_MOST_FILES} files", "Name the folder of the model alone.")]
    return []


def parsed(directory: pathlib.Path) -> saved_model_pb2.SavedModel | Finding:
    """Return the program as a protocol buffer, or the fault that prevents it."""
    program = saved_model_pb2.SavedModel()
    content = (directory / PROGRAM).read_bytes()
    if count_messages(content, program.DESCRIPTOR, MOST_PARTS) > MOST_PARTS:
        return finding(f"{PROGRAM} has more than {MOST_PARTS} parts", "Export a smaller model.")
    try:
        program.ParseFromString(content)
    except DecodeError:
        return finding(f"{PROGRAM} is damaged, or not a SavedModel", _AGAIN)
    if not program.meta_graphs:
        return finding(f"{PROGRAM} has no graph", _AGAIN)
    if len(program.meta_graphs) > _MOST_GRAPHS:
        return finding(f"{PROGRAM} has more than {_MOST_GRAPHS} graphs", "Export the model for serving alone.")
    return program


def count_messages(content: bytes, kind: Descriptor, most: int) -> int:
    """Count the messages inside a serialized message, at all depths, before it is parsed; stop above `most`.

    Two bytes of a file can take 200 bytes of memory.

    Damaged content is counted as far as it can be read: the parser, which reads it in the same order, ends there too.

    Args:
        content: the serialized message.
        kind: its type.
        most: the count ends at the first number above this one.

    Returns:
        The number of messages, at most `most` + 1.
    """
    count, at = 0, 0
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
                count += 1
                if count > most or at + size > end:
                    break
                open_messages.append((_inner(inner[key >> 3]), at + size))
    except IndexError:  # a number that does not end
        pass
    return count


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


def asset_findings(directory: pathlib.Path, names: Iterable[str]) -> list[Finding]:
    """Return asset files that lie outside `assets/` or do not exist."""
    faults = []
    for name in sorted(set(names)):
        path = pathlib.PurePosixPath(name)
        if not name or path.is_absolute() or ".." in path.parts or "\\" in name or not name.isprintable():
            faults.append(finding(f"the asset {shown(name)} lies outside assets/", _AGAIN))
        elif not _is_file(directory / "assets" / name):
            faults.append(finding(f"the asset {shown(name)} is missing in assets/", _AGAIN))
    return faults


def _is_file(path: pathlib.Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long
        return False
