"""Safe loading of LiteRT files (`.tflite`), which are programs, too: checked against a list before they are run.

    content = load("model.tflite")
    interpreter = ai_edge_litert.interpreter.Interpreter(model_content=content)

The checked bytes themselves are returned, so that a change of the file between check and use has no effect.
"""

from __future__ import annotations

import math
import pathlib

import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

from tfrobust.common.files import read_bounded
from tfrobust.errors import InputError
from tfrobust.security import rehearsal
from tfrobust.security.flatbuffer import Damaged, Reader
from tfrobust.security.litert_schema import METADATA, OPTIONS, TABLES, TYPES
from tfrobust.security.program_files import finding, shown
from tfrobust.structs import Finding

SUFFIX = ".tflite"
LARGEST = 2**29  # bytes of a file
MOST_SUBGRAPHS = 100
MOST_TENSORS = 200_000  # of all subgraphs, and as many operators
MOST_DIMENSIONS = 8
MOST_AT_A_TIME = 4096  # examples of a fixed number
LARGEST_TENSORS = 2**31  # bytes of all tensors that are not constant, in their declared shapes
_IDENTIFIER, _VERSION = b"TFL3", 3
_AGAIN = "Convert the model again, or get an unchanged copy."
_CONVERT = "Convert the model with builtin operators only, such as by tfrobust.export --litert=float32."
_OPERATOR_NAMES = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
_TYPE_NAMES = {value: name for name, value in vars(schema.TensorType).items() if isinstance(value, int)}


class _Refused(Exception):
    """Holds the finding."""


def is_litert(path) -> bool:
    """Return True if a path names a LiteRT file, by its suffix."""
    return pathlib.PurePath(path).suffix == SUFFIX


def scan(path) -> list[Finding]:
    """Scan a LiteRT file for unsafe or invalid content, without giving it to an interpreter.

    Each operator must be one of `security.litert_schema.OPTIONS`: builtin, without state, control flow or access to
    files. All offsets, indices, sizes and shapes must be valid and bounded as described in `guides/safety.md`.

    The scan cannot tell if the outputs are correct, or if the interpreter itself is vulnerable.

    Returns:
        The first fault; none if the file may be loaded.

    Raises:
        OSError: the file does not exist or cannot be read.
    """
    try:
        return scan_content(read_bounded(path, LARGEST))
    except InputError as error:
        return [finding(str(error).rstrip("."), "Name one file of at most that size.")]


def scan_content(content: bytes) -> list[Finding]:
    """Scan the content of a LiteRT file as `scan` does."""
    try:
        _check(content)
    except Damaged as error:
        return [finding(f"the file {error}", _AGAIN)]
    except _Refused as error:
        return [error.args[0]]
    return []


def load(path, use: rehearsal.Use = rehearsal.A_FEW) -> bytes:
    """Return the content of a LiteRT file that passes `scan`, and that a separate process has run.

    Raises:
        InputError (a ValueError): one line with the finding, or with the reason why it cannot be run; or the package
            ai-edge-litert is missing.
        FileNotFoundError: the file does not exist.
    """
    name = rehearsal.named(path)
    try:
        content = read_bounded(path, LARGEST)
    except InputError as error:
        raise InputError(f"{name} is not loaded: {error}") from error
    for first in scan_content(content):
        raise InputError(f"{name} is not loaded: {first.evidence}. {first.remedy}")
    interpreter_class()
    rehearsal.rehearse(path, use)
    return content


def interpreter_class():
    """Return the class of interpreters.

    Raises:
        InputError: ai-edge-litert is not installed.
    """
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        raise InputError("a .tflite file needs the package ai-edge-litert: pip install 'tfrobust[litert]'.") from None
    return Interpreter


def _check(content: bytes) -> None:
    if content[4:8] != _IDENTIFIER:
        _refuse("it is no LiteRT file, whose bytes 4 to 8 are 'TFL3'", "Name a .tflite file.")
    reader = Reader(content, TABLES)
    model = reader.root("Model")
    if model["version"] != _VERSION:
        _refuse(f"it has version {model['version']} of the format, not {_VERSION}", _AGAIN)
    graphs, buffers = model["subgraphs"] or [], model["buffers"] or []
    if not 1 <= len(graphs) <= MOST_SUBGRAPHS:
        _refuse(f"it has {len(graphs)} subgraphs; 1 to {MOST_SUBGRAPHS} are allowed", _CONVERT)
    for kind in ("tensors", "operators"):
        count = sum(len(graph[kind] or ()) for graph in graphs)
        if count > MOST_TENSORS:
            _refuse(f"it has {count} {kind}, more than {MOST_TENSORS}", _CONVERT)
    if buffers and _length(buffers[0]["data"]):
        _refuse("its buffer 0 is not empty", _AGAIN)
    _check_metadata(model, len(buffers))
    operators = [_operator_name(code) for code in model["operator_codes"] or []]
    bytes_left = LARGEST_TENSORS
    for graph in graphs:
        bytes_left -= _check_tensors(graph["tensors"] or [], buffers, bytes_left)
        _check_operators(reader, graph, operators, buffers)
    _check_signatures(model, graphs)


def _check_metadata(model: dict, buffer_count: int) -> None:
    listed = model["metadata"] or []
    places = [entry["buffer"] for entry in listed]
    if model["metadata_buffer"] is not None:
        places += model["metadata_buffer"].tolist()
    _check_indices(places, buffer_count, "buffer of its metadata")
    for entry in listed:
        if entry["name"] not in METADATA:
            _refuse(f"it has metadata {shown(entry['name'])}, which may change what is run", _CONVERT)


def _operator_name(code: dict) -> str:
    # Files before 2020 have their operator in a byte.
    number = max(code["builtin_code"], code["deprecated_builtin_code"])
    name = _OPERATOR_NAMES.get(number, f"number {number}")
    if code["custom_code"] is not None or name == "CUSTOM":
        _refuse(f"it has the custom operator {shown(code['custom_code'] or '')}", _CONVERT)
    if name not in OPTIONS:
        _refuse(f"it has the operator {name}, which is not in the list of allowed ones", _CONVERT)
    return name


def _check_tensors(tensors: list[dict], buffers: list[dict], most: int) -> int:
    """Check each tensor by itself; return the bytes of those that are not constant, at most `most`."""
    total = 0
    for number, tensor in enumerate(tensors):
        subject = f"tensor {number}"
        kind = _TYPE_NAMES.get(tensor["type"], tensor["type"])
        if kind not in TYPES:
            _refuse(f"{subject} is of the type {kind}; {', '.join(TYPES)} are allowed", _CONVERT)
        if tensor["is_variable"]:
            _refuse(f"{subject} is a variable, so that outputs depend on earlier calls", _CONVERT)
        shape = _shape(tensor["shape"], 0, subject)
        signature = _shape(tensor["shape_signature"], -1, subject)
        if signature and len(signature) != len(shape):
            _refuse(f"{subject} has two shapes of different lengths", _AGAIN)
        if any(size not in (-1, other) for size, other in zip(signature, shape, strict=False)):
            _refuse(f"{subject} has the shapes {shown(shape)} and {shown(signature)}, which differ", _AGAIN)
        _check_indices([tensor["buffer"]], len(buffers), f"buffer of {subject}")
        size, stored = math.prod(shape) * TYPES[kind], _length(buffers[tensor["buffer"]]["data"])
        if stored and stored != size:
            _refuse(f"{subject} has {stored} bytes and the shape {shown(shape)} of {kind}, {size} bytes", _AGAIN)
        total += 0 if stored else size
        if total > most:
            _refuse(f"its tensors take more than {LARGEST_TENSORS} bytes", "Convert a model of smaller images.")
        if tensor["quantization"]:
            _check_quantization(tensor["quantization"], shape, subject)
    return total


def _shape(vector: np.ndarray | None, least: int, subject: str) -> tuple[int, ...]:
    if _length(vector) > MOST_DIMENSIONS:
        _refuse(f"{subject} has {len(vector)} dimensions, more than {MOST_DIMENSIONS}", _CONVERT)
    shape = () if vector is None else tuple(vector.tolist())
    if any(size < least for size in shape):
        _refuse(f"{subject} has the shape {shown(shape)}", _AGAIN)
    return shape


def _check_quantization(quantization: dict, shape: tuple[int, ...], subject: str) -> None:
    scales, zeros, axis = quantization["scale"], quantization["zero_point"], quantization["quantized_dimension"]
    if _length(scales) != _length(zeros):
        _refuse(f"{subject} has {_length(scales)} scales and {_length(zeros)} zero points", _AGAIN)
    if not _length(scales):
        return
    if not 0 <= axis < max(len(shape), 1) or len(scales) not in (1, *shape[axis : axis + 1]):
        _refuse(f"{subject} has {len(scales)} scales, which do not fit its dimension {axis}", _AGAIN)
    if not (np.isfinite(scales).all() and (scales >= 0).all() and (np.abs(zeros) < 2**31).all()):
        _refuse(f"{subject} has a scale that is negative or not finite, or a zero point beyond 32 bits", _AGAIN)


def _check_operators(reader: Reader, graph: dict, names: list[str], buffers: list[dict]) -> None:
    """Check that each operator reads what exists, and writes each tensor once, and no constant or input."""
    tensors = graph["tensors"] or []
    constant = {number for number, tensor in enumerate(tensors) if _length(buffers[tensor["buffer"]]["data"])}
    inputs, outputs = _number_list(graph["inputs"]), _number_list(graph["outputs"])
    _check_indices(inputs + outputs, len(tensors), "tensor of an input or output")
    largest = max((int(tensors[index]["shape"][0]) for index in inputs if _length(tensors[index]["shape"])), default=0)
    if largest > MOST_AT_A_TIME:
        _refuse(f"it takes {largest} examples at a time, more than {MOST_AT_A_TIME}", "Convert it for any number.")
    computed = set(inputs) | constant
    if len(set(inputs)) < len(inputs) or constant & set(inputs):
        _refuse("an input of it occurs twice, or is a constant", _AGAIN)
    for number, operator in enumerate(graph["operators"] or []):
        _check_indices([operator["opcode_index"]], len(names), f"code of operator {number}")
        subject = f"operator {number} ({names[operator['opcode_index']]})"
        _check_options(reader, operator, names[operator["opcode_index"]], subject)
        # -1 is an optional input that is left out.
        read = [index for index in _number_list(operator["inputs"]) if index != -1]
        written = _number_list(operator["outputs"])
        _check_indices(read + written, len(tensors), f"tensor of {subject}")
        if not set(read) <= computed:
            _refuse(f"{subject} reads a tensor that nothing before it has written", _AGAIN)
        if computed & set(written) or len(set(written)) < len(written):
            _refuse(f"{subject} writes a constant, an input, or a tensor that is written already", _AGAIN)
        computed |= set(written)
        if _length(operator["intermediates"]) or np.any(_number_list(operator["mutating_variable_inputs"])):
            _refuse(f"{subject} keeps a state between calls", _CONVERT)
    if not set(outputs) <= computed:
        _refuse("an output of it is never written", _AGAIN)


def _check_options(reader: Reader, operator: dict, name: str, subject: str) -> None:
    kind, at, expected = operator["builtin_options_type"], operator["builtin_options"], OPTIONS[name]
    if kind == 0 and at is None:
        return
    if kind != getattr(schema.BuiltinOptions, expected) or expected == "NONE" or at is None:
        _refuse(f"{subject} has options of the kind {kind}, which are not its own", _AGAIN)
    reader.table(expected, at)


def _check_signatures(model: dict, graphs: list[dict]) -> None:
    keys = [definition["signature_key"] for definition in model["signature_defs"] or []]
    if None in keys or len(set(keys)) < len(keys):
        _refuse("two of its signatures have the same name, or one has none", _AGAIN)
    for signature in model["signature_defs"] or []:
        subject = f"signature {shown(signature['signature_key'])}"
        _check_indices([signature["subgraph_index"]], len(graphs), f"subgraph of the {subject}")
        graph = graphs[signature["subgraph_index"]]
        for side in ("inputs", "outputs"):
            listed, allowed = signature[side] or [], _number_list(graph[side])
            names = [part["name"] for part in listed]
            if None in names or len(set(names)) < len(names):
                _refuse(f"two {side} of the {subject} have the same name, or one has none", _AGAIN)
            if not {part["tensor_index"] for part in listed} <= set(allowed):
                _refuse(f"the {subject} names {side} that its subgraph does not have", _AGAIN)


def _check_indices(indices: list[int], count: int, subject: str) -> None:
    if any(not 0 <= index < count for index in indices):
        _refuse(f"the number of the {subject} is beyond the last one, {count - 1}", _AGAIN)


def _length(vector) -> int:
    return 0 if vector is None else len(vector)


def _number_list(vector: np.ndarray | None) -> list[int]:
    return [] if vector is None else vector.tolist()


def _refuse(evidence: str, remedy: str):
    raise _Refused(finding(evidence, remedy))
