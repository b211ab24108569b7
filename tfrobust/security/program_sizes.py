"""Bound the resources that the graph of a SavedModel may require: constants, declared shapes, calls, objects."""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Iterator, Mapping

import tensorflow as tf
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from tensorflow.core.framework import node_def_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_object_graph_pb2

from tfrobust.security.program_files import count_messages, finding, shown
from tfrobust.structs import Finding

LARGEST_CONSTANTS = 2**31  # bytes in total; a few bytes in a file can represent any number of equal values
MOST_DIMENSIONS = 254
MOST_ELEMENTS = 2**40
_MOST_OPERATIONS = 10_000_000
_MOST_CALLS_DEEP = 200
_MOST_OBJECTS = 200_000
# Parts of the nested arguments and outputs of one function, and of all.
MOST_STRUCTURE, MOST_STRUCTURES = 10_000, 500_000
_MOST_OBJECTS_DEEP = 200
# Bytes in memory of one element of a type without a fixed size.
_ELEMENT_SIZES = {types_pb2.DT_STRING: 24, types_pb2.DT_RESOURCE: 256, types_pb2.DT_VARIANT: 256}
_TENSOR, _SHAPE = tensor_pb2.TensorProto.DESCRIPTOR, tensor_shape_pb2.TensorShapeProto.DESCRIPTOR
_YIELDED = frozenset({_TENSOR, _SHAPE, node_def_pb2.NodeDef.DESCRIPTOR})
_SMALLER = "Export a smaller model."


def findings(graph: meta_graph_pb2.MetaGraphDef, calls: Mapping, main) -> list[Finding]:
    """Return the parts of one graph that are larger than a model needs.

    Args:
        graph: a meta graph, whose functions do not call themselves.
        calls: place -> function -> number of nodes there that name it. A place is a function or `main`.
        main: the key of the main graph.

    Returns:
        The findings of the first check that fails; [] if none does.
    """
    return (
        _structure_findings(graph.object_graph_def)
        or _tensor_findings(graph)
        or _call_findings(graph, calls, main)
        or _object_findings(graph.object_graph_def)
    )


# ---------------------------------------------------------------------------------------- constants and shapes


def _tensor_findings(graph: meta_graph_pb2.MetaGraphDef) -> list[Finding]:
    """Reject constants with too many bytes and shapes with too many elements, in any field of the file."""
    total = 0
    for message, path in _sized_messages(graph):
        kind, fault = message.DESCRIPTOR, ""
        if kind is _TENSOR:
            size = _bytes(message)
            total += size or 0
            if size is None or total > LARGEST_CONSTANTS:
                fault = f"is a constant of {'no known size' if size is None else 'too many bytes'}"
        elif kind is _SHAPE:
            fault = shape_fault([dimension.size for dimension in message.dim])
        elif message.op == "Const" and not ("value" in message.attr and message.attr["value"].HasField("tensor")):
            fault = "is a constant of no known size"
        if fault:
            return [finding(f"{_where(path)} {fault}", "Export with weights as variables, not as constants.")]
    return []


def shape_fault(sizes: list[int]) -> str:
    """Return why a declared shape (-1 for a dimension of any size) is invalid for a model's tensors, or ""."""
    if len(sizes) > MOST_DIMENSIONS:
        return f"has a shape of {len(sizes)} dimensions, more than {MOST_DIMENSIONS}"
    if min(sizes, default=0) < -1:
        return "has a shape of negative size"
    # A dimension of 0 must not hide the others: TensorFlow multiplies all of them.
    return "has a shape of more than 2^40 elements" if math.prod(max(size, 1) for size in sizes) > MOST_ELEMENTS else ""


def _bytes(tensor: tensor_pb2.TensorProto) -> int | None:
    """Return the bytes of a constant in memory; None where they cannot be determined."""
    sizes = [dimension.size for dimension in tensor.tensor_shape.dim]
    if tensor.tensor_shape.unknown_rank or min(sizes, default=0) < 0 or len(sizes) > MOST_DIMENSIONS:
        return None
    item_size = element_size(tensor.dtype)
    return None if item_size is None else item_size * math.prod(sizes)


def element_size(kind: int) -> int | None:
    """Return the bytes in memory of one element of a DataType; None where there is no such type."""
    try:
        return _ELEMENT_SIZES.get(kind) or tf.as_dtype(kind).size or None
    except TypeError:
        return None


def _sized_messages(graph: Message) -> Iterator[tuple[Message, tuple]]:
    """Walk all fields that can hold a constant or a shape; yield constants, shapes and nodes, with the path to each.

    A path is (name of a field, message, path to the message that has the field).
    """
    waiting: list[tuple[Message, tuple]] = [(graph, ())]
    while waiting:
        message, path = waiting.pop()
        kind = message.DESCRIPTOR
        if kind in _YIELDED:
            yield message, path
        if kind is _SHAPE:
            continue
        for field, value in message.ListFields():
            kind = field.message_type
            if kind is None or not _can_hold(kind):
                continue
            if not field.is_repeated:
                waiting.append((value, (field.name, value, path)))
                continue
            children = value.values() if kind.GetOptions().map_entry else value
            waiting += [(child, (field.name, child, path)) for child in children]


@functools.cache
def _can_hold(kind: Descriptor) -> bool:
    """Return True if messages of a type are, or can hold, a constant or a shape."""
    waiting, seen = [kind], set()
    while waiting:
        message = waiting.pop()
        if message in (_TENSOR, _SHAPE):
            return True
        if message.full_name not in seen:
            seen.add(message.full_name)
            waiting += [field.message_type for field in message.fields if field.message_type is not None]
    return False


def _where(path: tuple) -> str:
    fields, node, function = [], "", ""
    while path:
        field, message, path = path
        fields.append(field)
        if isinstance(message, node_def_pb2.NodeDef):
            node = f"node {shown(message.name, 40)}"
        elif field == "function" and hasattr(message, "signature"):
            function = f" of function {shown(message.signature.name, 50)}"
    if node:
        return node + (function or " of the graph")
    return f"the field {'.'.join(reversed(fields))}"


# -------------------------------------------------------------------------------- structures, calls and objects


def _structure_findings(graph: saved_object_graph_pb2.SavedObjectGraph) -> list[Finding]:
    """Reject nested arguments and outputs of functions that are too many: a loader decodes them slowly."""
    total = 0
    for name, function in graph.concrete_functions.items():
        count = 0
        for part in (function.canonicalized_input_signature, function.output_signature):
            count += count_messages(part.SerializeToString(), part.DESCRIPTOR, MOST_STRUCTURE)
        total += count
        if count > MOST_STRUCTURE or total > MOST_STRUCTURES:
            most = MOST_STRUCTURE if count > MOST_STRUCTURE else MOST_STRUCTURES
            evidence = f"arguments and outputs of function {shown(name, 50)} have too many parts, more than {most}"
            return [finding(evidence, "Export a function of fewer outputs.")]
    return []


def _call_findings(graph: meta_graph_pb2.MetaGraphDef, calls: Mapping, main) -> list[Finding]:
    """Reject calls that are too deep, or that together run too many operations, without unrolling them."""
    operations = {function.signature.name: len(function.node_def) for function in graph.graph_def.library.function}
    operations[main] = len(graph.graph_def.node)
    callers = collections.defaultdict(list)
    for caller, called in calls.items():
        for name in called:
            callers[name].append(caller)
    depth = dict.fromkeys(calls, 0)
    missing = {caller: len(called) for caller, called in calls.items()}
    ready = [caller for caller, count in missing.items() if not count]
    while ready:
        name = ready.pop()
        if operations[name] > _MOST_OPERATIONS:
            where = "its graph" if name == main else f"the function {shown(name)}"
            evidence = f"{where} runs more than {_MOST_OPERATIONS} operations, those of the functions it calls included"
            return [finding(evidence, _SMALLER)]
        if depth[name] > _MOST_CALLS_DEEP:
            return [finding(f"calls of its functions are more than {_MOST_CALLS_DEEP} deep", _SMALLER)]
        for caller in callers[name]:
            operations[caller] += calls[caller][name] * operations[name]
            depth[caller] = max(depth[caller], depth[name] + 1)
            missing[caller] -= 1
            if not missing[caller]:
                ready.append(caller)
    return []


def _object_findings(graph: saved_object_graph_pb2.SavedObjectGraph) -> list[Finding]:
    """Reject objects that are too many, or too far from the root that a loader returns."""
    count = len(graph.nodes)
    if count > _MOST_OBJECTS:
        return [finding(f"it has {count} objects, more than {_MOST_OBJECTS}", _SMALLER)]
    seen, level, depth = {0}, [0] if count else [], 0
    while level:
        if depth > _MOST_OBJECTS_DEEP:
            return [finding(f"its objects are more than {_MOST_OBJECTS_DEEP} deep", _SMALLER)]
        children = {child.node_id for number in level for child in graph.nodes[number].children} - seen
        if any(not 0 <= child < count for child in children):
            return [finding("an object of it has a part that is not there", "Export the model again.")]
        seen |= children
        level, depth = list(children), depth + 1
    return []
