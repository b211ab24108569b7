"""Differentiable copies of LiteRT files: every operator against the interpreter, in float32 and int8."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

from oracles import litert_files
from tfrobust.evaluation.engine import litert
from tfrobust.evaluation.engine.litert_graph import Copy, Graph
from tfrobust.evaluation.engine.litert_operators import OPERATORS, UncoveredError

_RANDOM = np.random.default_rng(0)


def _constant(*shape):
    return _RANDOM.normal(size=shape).astype("float32")


_KERNEL, _DEPTH, _DENSE = _constant(3, 3, 4, 6), _constant(3, 3, 4, 2), _constant(4, 5)
_ODD, _SLOPE, _FULL = _constant(1, 1, 4, 4), _constant(1, 1, 4), _constant(6, 6, 4)


# The operators that quantized models consist of: each function takes x float32 [b, 6, 6, 4] in [-1, 1].
_QUANTIZED = {
    "conv": lambda x: tf.nn.relu(tf.nn.conv2d(x, _KERNEL, 2, "SAME") + 0.1),
    "dilated": lambda x: tf.nn.conv2d(x, _KERNEL, 1, "VALID", dilations=2),
    "grouped": lambda x: tf.nn.conv2d(x, _KERNEL[:, :, :2], 1, "SAME"),
    "depthwise": lambda x: tf.nn.relu6(tf.nn.depthwise_conv2d(x, _DEPTH, [1, 1, 1, 1], "SAME")),
    "dense": lambda x: tf.linalg.matmul(tf.reduce_mean(x, [1, 2]), _DENSE) + 0.5,
    "dense_along_images": lambda x: tf.tensordot(x, _DENSE, 1),
    "add": lambda x: tf.nn.relu(x + _FULL),
    "sub": lambda x: x[..., :1] - x,
    "mul": lambda x: x * x[..., 1:2],
    "average": lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"),
    "maximum_pool": lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"),
    "mean": lambda x: tf.reduce_mean(x, [1, 2], keepdims=True),
    "sum": lambda x: tf.reduce_sum(x, -1),
    "largest": lambda x: tf.reduce_max(x, [1, 2]),
    "smallest": lambda x: tf.reduce_min(x, -1, keepdims=True),
    "pad": lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 1], [0, 0]]),
    "pad_value": lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 1], [0, 0]], constant_values=0.5),
    "mirror": lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 1], [0, 0]], "REFLECT"),
    "flat": lambda x: tf.reshape(x, [-1, 144]),
    "computed_shape": lambda x: tf.reshape(x, tf.stack([tf.shape(x)[0], 36, 4])),
    "joined": lambda x: tf.concat([x, x[..., :2]], -1),
    "split": lambda x: tf.split(x, 2, -1)[1],
    "split_unequal": lambda x: tf.split(x, [1, 3], -1)[1],
    "transposed": lambda x: tf.transpose(x, [0, 3, 1, 2]),
    "strided": lambda x: x[:, 1:5:2, ::-1, 2],
    "slice": lambda x: tf.slice(x, [0, 1, 0, 0], [-1, 3, 6, 4]),
    "packed": lambda x: tf.stack([x[..., 0], x[..., 3]], 1),
    "unpacked": lambda x: tf.unstack(x, axis=1)[2],
    "gathered": lambda x: tf.gather(x, [3, 0, 0], axis=-1),
    "expanded": lambda x: tf.expand_dims(x, 1),
    "softmax": tf.nn.softmax,
    "log_softmax": tf.nn.log_softmax,
    "sigmoid": tf.nn.sigmoid,
    "tanh": tf.nn.tanh,
    "relu": tf.nn.relu,
    "relu6": tf.nn.relu6,
    "unit_relu": lambda x: tf.minimum(tf.maximum(x * 1.5, -1.0), 1.0),
    "short_relu": lambda x: tf.maximum(tf.minimum(x * 1.5, 1.0), 0.0),
    "leaky": lambda x: tf.nn.leaky_relu(x, 0.3),
    "chosen": lambda x: tf.where(x >= 0.1, x, _SLOPE * x),
    "hard_swish": lambda x: x * tf.nn.relu6(x + 3.0) / 6.0,
    "abs": tf.abs,
    "greater": lambda x: tf.maximum(x, _FULL),
    "less": lambda x: tf.minimum(x, _FULL),
    "squared_difference": lambda x: tf.math.squared_difference(x, _FULL),
    "nearest": lambda x: tf.compat.v1.image.resize_nearest_neighbor(x, [12, 12]),
    "bilinear": lambda x: tf.image.resize(x, [9, 9]),
    "to_depth": lambda x: tf.nn.space_to_depth(x, 2),
    "to_space": lambda x: tf.nn.depth_to_space(x, 2),
    "matmul": lambda x: tf.matmul(x[..., 0], x[..., 1], transpose_b=True),
    "normalized": lambda x: tf.nn.l2_normalize(x, -1),
}
# Operators that stay in float32.
_FLOAT = {
    "div": lambda x: x / (2.0 + x[..., :1]),
    "elu": tf.nn.elu,
    "exp": tf.exp,
    "gelu": lambda x: tf.nn.gelu(1.1 * x),
    "gelu_tanh": lambda x: tf.nn.gelu(1.2 * x, approximate=True),
    "log": lambda x: tf.math.log(x + 2.0),
    "neg": lambda x: -tf.exp(x),
    "power": lambda x: tf.pow(x + 2.0, 1.7),
    "rsqrt": lambda x: tf.math.rsqrt(x + 2.0),
    "sqrt": lambda x: tf.sqrt(x + 2.0),
    "square": tf.square,
    "product": lambda x: tf.reduce_prod(x, -1),
    "cast": lambda x: tf.cast(tf.shape(x)[0], tf.float32) * x,
    "tile": lambda x: tf.tile(x, [1, 2, 1, 1]),
    "broadcast": lambda x: tf.broadcast_to(x[:, :1], tf.shape(x)),
    "round": lambda x: tf.round(3 * x) / 3,
    "floor": lambda x: tf.floor(3 * x) / 3,
    "ceil": lambda x: tf.math.ceil(3 * x) / 3,
    "sign": lambda x: tf.sign(x + 0.013),
    "zeros": lambda x: tf.concat([tf.zeros_like(x[..., :1]), x], -1),
}


def _squeeze_options():
    options = schema.SqueezeOptionsT()
    options.squeezeDims = [1]
    return options


# The converter never writes these; by name, a function whose last operator is replaced, and options.
_REPLACED = {
    "PRELU": (lambda x: x + _SLOPE,),
    "RELU_0_TO_1": (tf.nn.relu,),
    "SQUEEZE": (lambda x: tf.nn.relu(x[:, :1]), schema.BuiltinOptions.SqueezeOptions, _squeeze_options()),
}
_ROUNDED = ("round", "floor", "ceil", "sign")


def _images(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, size=[count, 6, 6, 4]).astype("float32")


@functools.cache
def _file(kind: str) -> litert.File:
    functions = _QUANTIZED if kind == "int8" else {**_QUANTIZED, **_FLOAT}
    return litert.File(litert_files.converted(functions, _images(80, 0), kind), kind)


@functools.cache
def _file_with(name: str) -> litert.File:
    """Return a file whose last operator is replaced by another one."""
    function, *options = _REPLACED[name]
    content = litert_files.converted({"output": function}, _images(1, 0))
    return litert.File(litert_files.changed(content, litert_files.with_last_operator(name, *options)), name)


def _step(graph: Graph, position: int) -> float:
    """Return the largest quantization step on the way to a tensor; 0 if nothing is quantized."""
    outputs = [graph.tensors[output] for operator in graph.needed_operators(position) for output in operator.outputs]
    return max([float(tensor.scale.max()) for tensor in outputs if tensor.quantized], default=0.0)


def _compare(file: litert.File, name: str) -> None:
    position, images = file.graph.outputs[name], _images(5, 100)
    expected, step = file.run(images, position), _step(file.graph, position)
    copied = Copy(file.graph, position)(tf.constant(images)).numpy()
    assert copied.shape == expected.shape
    assert np.abs(expected).max() > 0
    gap = np.abs(copied - expected)
    assert gap.max() <= 1e-5 * (1 + np.abs(expected).max()) + 2.01 * step, name
    assert gap.mean() <= 1e-5 * (1 + np.abs(expected).max()) + 0.15 * step, name


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_the_copy_of_each_operator_equals_the_interpreter_within_two_steps(kind):
    outputs = _file(kind).graph.outputs
    assert outputs.keys() == (_QUANTIZED if kind == "int8" else _QUANTIZED | _FLOAT).keys()
    quantized = [name for name, position in outputs.items() if _step(_file(kind).graph, position)]
    # The converter leaves a change of shape in float32 if nothing else happens to the input.
    assert len(quantized) >= 45 if kind == "int8" else not quantized
    for name in outputs:
        _compare(_file(kind), name)


def test_the_copy_of_operators_that_the_converter_never_writes_equals_the_interpreter():
    for name in _REPLACED:
        assert _file_with(name).graph.operators[-1].name == name
        _compare(_file_with(name), "output")


def test_every_operator_of_the_table_was_compared():
    files = [_file("float32"), _file("int8"), *map(_file_with, _REPLACED)]
    assert {operator.name for file in files for operator in file.graph.operators} == OPERATORS.keys()


def _grouped(x):
    halves = zip(tf.split(x, 2, -1), tf.split(_KERNEL[:, :, :2], 2, -1), strict=True)
    return tf.concat([tf.nn.conv2d(part, kernel, 1, "SAME") for part, kernel in halves], -1)


# Without oneDNN, `conv2d` has no gradient with dilations or groups.
_DIFFERENTIABLE = {"dilated": lambda x: tf.nn.convolution(x, _KERNEL, 1, "VALID", dilations=2), "grouped": _grouped}


def test_gradients_of_the_copy_are_those_of_the_functions_that_were_converted():
    images, graph = tf.constant(_images(3, 7)), _file("float32").graph
    for name, function in {**_QUANTIZED, **_FLOAT, **_DIFFERENTIABLE}.items():
        gradients = []
        for variant in (function, Copy(graph, graph.outputs[name])):
            with tf.GradientTape() as tape:
                tape.watch(images)
                outputs = variant(images)
                weights = np.random.default_rng(0).normal(size=outputs.shape).astype("float32")
                total = tf.reduce_sum(weights * outputs)
            gradients.append(tape.gradient(total, images))
        if name in _ROUNDED:  # differentiated as the identity
            np.testing.assert_allclose(gradients[1], weights, rtol=1e-5, err_msg=name)
        else:
            np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-4, atol=1e-5, err_msg=name)


def test_quantized_values_are_differentiated_as_the_identity_also_beyond_their_limits():
    graph = _file("int8").graph
    (position,) = graph.inputs.values()
    maker = next(
        operator for operator in graph.operators if operator.name == "QUANTIZE" and position in operator.inputs
    )
    tensor = graph.tensors[maker.outputs[0]]
    scale, zero_point = float(tensor.scale[0]), int(tensor.zero_point[0])
    values = tf.constant([0.3, -0.7, 5.0, -5.0])
    with tf.GradientTape() as tape:
        tape.watch(values)
        rounded = tensor.rounded(values)
    levels = [round(0.3 / scale), round(-0.7 / scale), 127 - zero_point, -128 - zero_point]
    np.testing.assert_allclose(rounded, np.array(levels) * scale, rtol=1e-5)
    np.testing.assert_array_equal(tape.gradient(rounded, values), np.ones(4))


def test_an_operator_without_a_copy_is_named(monkeypatch):
    graph = _file("float32").graph
    monkeypatch.delitem(OPERATORS, "CONV_2D")
    with pytest.raises(UncoveredError, match="CONV_2D"):
        Copy(graph, graph.outputs["conv"])
    Copy(graph, graph.outputs["dense"])
