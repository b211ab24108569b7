"""LiteRT files that mean harm or are broken, made of a whole one by the objects of the generated schema."""

import random

import flatbuffers
import numpy as np
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
CASES = {
    "custom operator": (_sets(_code, builtinCode=32, deprecatedBuiltinCode=32, customCode=b"FlexWriteFile"), "'FlexWr"),
    "custom operator without a name": (_sets(_code, builtinCode=32, deprecatedBuiltinCode=32), "custom operator ''"),
    "name of a builtin operator": (_sets(_code, customCode=b"x"), "custom operator 'x'"),
    "loop": (_sets(_code, builtinCode=119), "operator WHILE"),
    "loop in the old field": (_sets(_code, deprecatedBuiltinCode=119), "operator WHILE"),
    "call": (_sets(_code, builtinCode=31), "operator CALL"),
    "state": (_sets(_code, builtinCode=142), "operator VAR_HANDLE"),
    "unknown operator": (_sets(_code, builtinCode=5000), "operator number 5000"),
    "operator of a later format": (_sets(_code, builtinCode=173), "STABLEHLO_CUSTOM_CALL"),
    "another version": (_sets(lambda model: model, version=4), "version 4"),
    "no subgraph": (_sets(lambda model: model, subgraphs=[]), "0 subgraphs"),
    "101 subgraphs": (lambda model: setattr(model, "subgraphs", model.subgraphs * 101), "101 subgraphs"),
    "filled buffer 0": (_filled, "buffer 0"),
    "buffer elsewhere in the file": (_sets(lambda model: model.buffers[1], offset=8, size=2**40), "field offset"),
    "another file": (_external, "field number 8 in Model"),
    "control dependencies": (_metadata(b"model_control_dependencies"), "'model_control_dependencies'"),
    "metadata beyond the buffers": (_metadata(b"min_runtime_version", 10**6), "buffer of its metadata"),
    "text": (_sets(_tensor, type=5), "type STRING"),
    "unknown type": (_sets(_tensor, type=100), "type 100"),
    "variable": (_sets(_tensor, isVariable=True), "is a variable"),
    "sparse": (_sets(_constant, sparsity=schema.SparsityParametersT()), "field sparsity"),
    "2^40 elements": (_sets(_tensor, shape=[1, 2**20, 2**20, 1], shapeSignature=None), "more than 2147483648 bytes"),
    "negative size": (_sets(_tensor, shape=[1, -8, 8, 1]), "(1, -8, 8, 1)"),
    "nine dimensions": (_sets(_tensor, shape=[1] * 9), "9 dimensions"),
    "two shapes": (_sets(_tensor, shapeSignature=[-1, 8]), "two shapes"),
    "sizes that differ": (_sets(_tensor, shapeSignature=[-1, 16, 16, 1]), "'(-1, 16, 16, 1)', which differ"),
    "a fixed number that differs": (_sets(_tensor, shapeSignature=[5, 8, 8, 1]), "which differ"),
    "a million rows": (_sets(_tensor, shape=[10**6, 8, 8, 1], shapeSignature=None), "1000000 examples at a time"),
    "no such buffer": (_sets(_tensor, buffer=10**6), "buffer of tensor 0"),
    "constant too short": (_sets(_constant, shape=[1000, 1000]), "4000000 bytes"),
    "scales without zero points": (_quantized([1.0], None), "1 scales and 0 zero points"),
    "scales that do not fit": (_quantized([1.0] * 17, [0] * 17), "17 scales"),
    "dimension of the scales": (_quantized([1.0], [0], 100), "dimension 100"),
    "scale that is no number": (_quantized([float("nan")], [0]), "not finite"),
    "zero point of 40 bits": (_quantized([1.0], [2**40]), "32 bits"),
    "input that is not there": (_sets(_graph, inputs=[10**6]), "tensor of an input"),
    "output that is not there": (_sets(_graph, outputs=[-1]), "tensor of an input or output"),
    "input twice": (lambda model: setattr(_graph(model), "inputs", [0, 0]), "occurs twice"),
    "no such operator": (_sets(_operator, opcodeIndex=10**6), "code of operator 0"),
    "reads what is not there": (_sets(_operator, inputs=[0, 10**6]), "tensor of operator 0"),
    "reads ahead": (_reads_ahead, "nothing before it"),
    "writes a constant": (_writes_constant, "writes a constant"),
    "writes its input": (lambda model: setattr(_operator(model), "outputs", _graph(model).inputs), "writes a constant"),
    "writes again": (_writes_again, "written already"),
    "output never written": (_sets(lambda model: _graph(model), operators=[]), "never written"),
    "options of another operator": (_other_options, "not its own"),
    "options of a later format": (_unknown_options, "field builtin_options_2"),
    "custom options": (_sets(_operator, customOptions=[1, 2]), "field custom_options"),
    "intermediate tensors": (_sets(_operator, intermediates=[0]), "keeps a state"),
    "inputs that change": (_sets(_operator, mutatingVariableInputs=[True]), "keeps a state"),
    "signature twice": (_twice("signatureDefs"), "have the same name"),
    "signature without a name": (_sets(_signature, signatureKey=None), "has none"),
    "signature of no subgraph": (_sets(_signature, subgraphIndex=7), "subgraph of the signature"),
    "signature of no input": (_sets(lambda model: _signature(model).inputs[0], tensorIndex=10**6), "names inputs"),
    "output without a name": (_sets(lambda model: _signature(model).outputs[0], name=None), "or one has none"),
}


def _at_root(number: int):
    """Replace the first number of the root table, the distance to its list of positions."""

    def change(content: bytes) -> bytes:
        root = int.from_bytes(content[:4], "little")
        return content[:root] + number.to_bytes(4, "little", signed=True) + content[root + 4 :]

    return change


# Name -> (a change of the bytes, part of the line).
DAMAGED = {
    "empty": (lambda content: b"", "no LiteRT file"),
    "not the format": (lambda content: content[:4] + b"TFL2" + content[8:], "no LiteRT file"),
    "only a beginning": (lambda content: content[:8], "outside of the file"),
    "half": (lambda content: content[: len(content) // 2], "outside of the file"),
    "root beyond the end": (lambda content: b"\xff\xff\xff\x7f" + content[4:], "outside of the file"),
    "root between two places": (lambda content: bytes([content[0] + 1]) + content[1:], "between two places"),
    "positions before the beginning": (_at_root(2**30), "outside of the file"),
    "positions beyond the end": (_at_root(-(2**30)), "outside of the file"),
}


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
