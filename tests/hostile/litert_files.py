"""LiteRT files that mean harm or are broken, made of a whole one by the objects of the generated schema."""

import random

import flatbuffers
import numpy as np
import stored
from tensorflow.lite.python import schema_py_generated as schema


def unpacked(content: bytes) -> schema.ModelT:
    """Return a file as objects."""
    return schema.ModelT.InitFromPackedBuf(bytearray(content), 0)


def packed(model: schema.ModelT) -> bytes:
    """Return objects as a file."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _graph(model):
    return model.subgraphs[0]


def _first(model, operator: str):
    """Return the first operator of a kind."""
    number = getattr(schema.BuiltinOperator, operator)
    codes = [code for code, operator_code in enumerate(model.operatorCodes) if operator_code.builtinCode == number]
    return next(candidate for candidate in _graph(model).operators if candidate.opcodeIndex in codes)


def _constant(model):
    """Return the first constant tensor with at least two elements."""
    return next(
        tensor
        for tensor in _graph(model).tensors
        if model.buffers[tensor.buffer].data is not None and len(model.buffers[tensor.buffer].data) >= 8
    )


def _sets(where, **values):
    def change(model):
        target = where(model)
        for name, value in values.items():
            assert hasattr(target, name)
            setattr(target, name, value)

    return change


def _code(model):
    return model.operatorCodes[0]


def _tensor(model):
    return _graph(model).tensors[0]


def _operator(model):
    return _graph(model).operators[0]


def _signature(model):
    return model.signatureDefs[0]


def _quantized(scale, zero, axis=0):
    quantization = schema.QuantizationParametersT()
    quantization.scale, quantization.zeroPoint, quantization.quantizedDimension = scale, zero, axis
    return _sets(_constant, quantization=quantization)


def _metadata(name: bytes, buffer: int = 0):
    def change(model):
        metadata = schema.MetadataT()
        metadata.name, metadata.buffer = name, buffer
        model.metadata = [metadata]

    return change


def _twice(part: str):
    def change(model):
        listed = getattr(model, part)
        setattr(model, part, [*listed, *listed])

    return change


def _writes_again(model):
    first, second = _graph(model).operators[:2]
    second.outputs = first.outputs


def _writes_constant(model):
    _operator(model).outputs = [_graph(model).tensors.index(_constant(model))]


def _reads_ahead(model):
    graph = _graph(model)
    graph.operators[0].inputs = [graph.operators[-1].outputs[0], *list(graph.operators[0].inputs)[1:]]


def _other_options(model):
    operator = _first(model, "CONV_2D")
    operator.builtinOptionsType = schema.BuiltinOptions.ReshapeOptions
    operator.builtinOptions = schema.ReshapeOptionsT()


def _unknown_options(model):
    operator = _first(model, "CONV_2D")
    operator.builtinOptions2Type = schema.BuiltinOptions2.StablehloTransposeOptions
    operator.builtinOptions2 = schema.StablehloTransposeOptionsT()


def _filled(model):
    model.buffers[0].data = np.ones(4, np.uint8)


def _external(model):
    model.externalBufferGroups = [schema.ExternalBufferGroupT()]
    model.externalBufferGroups[0].name = b"/etc/passwd"


# Name -> (a change of the objects, part of the line).
CASES = stored.cases(__file__, "litert", globals())


def _at_root(number: int):
    """Replace the first number of the root table, the distance to its list of positions."""

    def change(content: bytes) -> bytes:
        root = int.from_bytes(content[:4], "little")
        return content[:root] + number.to_bytes(4, "little", signed=True) + content[root + 4 :]

    return change


# Name -> (a change of the bytes, part of the line).
DAMAGED = stored.cases(__file__, "damaged_litert", globals())


def change_litert(path, chance: random.Random) -> None:
    """A LiteRT file: numbers of its objects, or some bytes."""
    content = bytearray(path.read_bytes())
    if chance.random() < 0.4:
        # Most bytes are weights, and the tables lie in the second half.
        for _ in range(chance.choice((1, 1, 3, 20))):
            content[chance.randrange(len(content))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        path.write_bytes(content if chance.random() < 0.8 else content[: chance.randrange(len(content))])
        return
    model = unpacked(content)
    for _ in range(chance.choice((1, 1, 2, 4))):
        _change_object(model, chance)
    try:
        path.write_bytes(packed(model))
    except Exception:  # what the builder cannot write
        path.write_bytes(content)


def _change_object(top, chance: random.Random) -> None:
    """Change one attribute of an object somewhere in a model."""
    node, path = top, []
    while True:
        inner = [value for value in vars(node).values() if isinstance(value, list) or hasattr(value, "__dict__")]
        inner = [item for value in inner for item in (value if isinstance(value, list) else [value])]
        inner = [item for item in inner if hasattr(item, "__dict__")]
        if not inner or (path and chance.random() < 0.25):
            break
        node = chance.choice(inner)
        path.append(node)
    name = chance.choice(sorted(vars(node)))
    value = getattr(node, name)
    if isinstance(value, (int, float)):
        value = chance.choice((0, 1, -1, 2, 3, 100, 2**15, 2**31 - 1, value + 1, value - 1))
    elif isinstance(value, np.ndarray) and value.size:
        value = value.copy()
        value.flat[chance.randrange(min(value.size, 1000))] = chance.choice((0, 1, -1, 2, 100)) % 256
    elif isinstance(value, list) and value:
        value = chance.choice((value[:-1], value[::-1], [*value, value[0]], []))
    else:
        value = None
    setattr(node, name, value)
