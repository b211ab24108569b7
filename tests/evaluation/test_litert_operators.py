"""Differentiable copies of LiteRT files: every operator against the interpreter, in float32 and int8."""

import functools

import numpy as np
import pytest
import stored
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

from oracles import litert_files
from tfrobust.evaluation.engine import litert, litert_graph, litert_operators

_RANDOM = np.random.default_rng(0)


def _constant(*shape):
    return _RANDOM.normal(size=shape).astype("float32")


_KERNEL, _DEPTH, _DENSE = _constant(3, 3, 4, 6), _constant(3, 3, 4, 2), _constant(4, 5)
_ODD, _SLOPE, _FULL = _constant(1, 1, 4, 4), _constant(1, 1, 4), _constant(6, 6, 4)


# The operators that quantized models consist of: each function takes x float32 [b, 6, 6, 4] in [-1, 1].
_QUANTIZED = stored.table(globals(), "quantized")
# Operators that stay in float32.
_FLOAT = stored.table(globals(), "float_operators")


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


def _step(graph: litert_graph.Graph, position: int) -> float:
    """Return the largest quantization step on the way to a tensor; 0 if nothing is quantized."""
    outputs = [graph.tensors[output] for operator in graph.needed_operators(position) for output in operator.outputs]
    return max([float(tensor.scale.max()) for tensor in outputs if tensor.quantized], default=0.0)


def _compare(file: litert.File, name: str) -> None:
    position, images = file.graph.outputs[name], _images(5, 100)
    expected, step = file.run(images, position), _step(file.graph, position)
    copied = litert_graph.Copy(file.graph, position)(tf.constant(images)).numpy()
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
    assert {operator.name for file in files for operator in file.graph.operators} == litert_operators.OPERATORS.keys()


def _grouped(x):
    halves = zip(tf.split(x, 2, -1), tf.split(_KERNEL[:, :, :2], 2, -1), strict=True)
    return tf.concat([tf.nn.conv2d(part, kernel, 1, "SAME") for part, kernel in halves], -1)


# Without oneDNN, `conv2d` has no gradient with dilations or groups.
_DIFFERENTIABLE = {"dilated": lambda x: tf.nn.convolution(x, _KERNEL, 1, "VALID", dilations=2), "grouped": _grouped}


def test_gradients_of_the_copy_are_those_of_the_functions_that_were_converted():
    images, graph = tf.constant(_images(3, 7)), _file("float32").graph
    for name, function in {**_QUANTIZED, **_FLOAT, **_DIFFERENTIABLE}.items():
        gradients = []
        for variant in (function, litert_graph.Copy(graph, graph.outputs[name])):
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
    monkeypatch.delitem(litert_operators.OPERATORS, "CONV_2D")
    with pytest.raises(litert_operators.UncoveredError, match="CONV_2D"):
        litert_graph.Copy(graph, graph.outputs["conv"])
    litert_graph.Copy(graph, graph.outputs["dense"])
