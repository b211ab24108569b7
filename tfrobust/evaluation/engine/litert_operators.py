"""Operators of LiteRT as TensorFlow operations with gradients: `OPERATORS`, by the name of the builtin operator.

Values are real numbers: a quantized tensor is represented by (q - zero point) x scale. Each function takes an operator
and its inputs, and returns one output, or several in a list. An input is a NumPy array if it is a constant of the file,
a tensor otherwise, and None if it is left out. Rounding is differentiated as the identity (straight-through).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfrobust.errors import Failure
from tfrobust.ops.gradients import straight_through


class UncoveredError(Failure):
    """The file holds something that has no differentiable copy; the message is a noun phrase that names it."""


# ---------------------------------------------------------------------------------------------- activations

# By the number of ActivationFunctionType.
_FUSED = {
    0: lambda value: value,
    1: tf.nn.relu,
    2: lambda value: tf.clip_by_value(value, -1.0, 1.0),
    3: tf.nn.relu6,
    4: tf.nn.tanh,
}


def _fused(op, value):
    """Apply the activation that is fused into an operator."""
    kind = op.option("fusedActivationFunction", 0)
    if kind not in _FUSED:
        raise UncoveredError(f"the fused activation {kind} of {op.name}")
    return _FUSED[kind](value)


def _unary(function: Callable) -> Callable:
    return lambda op, value: function(value)


def _binary(function: Callable) -> Callable:
    return lambda op, first, second: _fused(op, function(first, second))


def _rounding(function: Callable) -> Callable:
    """Return an operator that rounds, differentiated as the identity."""
    return lambda op, value: straight_through(value, function(value))


def _prelu(op, value, slope):
    return tf.where(value >= 0, value, slope * value)


def _softmax(op, value):
    return tf.nn.softmax(op.option("beta", 1.0) * value)


# ------------------------------------------------------------------------------------------- linear operators

_PADDINGS = ("SAME", "VALID")


def _window(op) -> dict:
    return {
        "strides": [op.option("strideH", 1), op.option("strideW", 1)],
        "padding": _PADDINGS[op.option("padding", 0)],
    }


def _dilations(op) -> list[int]:
    return [op.option("dilationHFactor", 1), op.option("dilationWFactor", 1)]


def _conv(op, value, kernel, bias=None):
    kernel = tf.transpose(kernel, [1, 2, 3, 0])  # from [out, h, w, in]
    groups, odd = divmod(value.shape[-1], kernel.shape[2])
    if odd or kernel.shape[3] % groups:
        raise UncoveredError("CONV_2D with channels that fit no groups")
    # On CPU, a convolution with groups has no gradient; without oneDNN, one with dilations has none in `conv2d` either.
    window, dilations = _window(op), _dilations(op)
    convolution = tf.nn.conv2d if max(window["strides"]) > 1 else tf.nn.convolution
    parts = zip(tf.split(value, groups, axis=-1), tf.split(kernel, groups, axis=-1), strict=True)
    outputs = [convolution(part, group_kernel, dilations=dilations, **window) for part, group_kernel in parts]
    return _fused(op, _biased(tf.concat(outputs, axis=-1) if groups > 1 else outputs[0], bias))


def _depthwise_conv(op, value, kernel, bias=None):
    height, width, channels = kernel.shape[1:]
    if channels % value.shape[-1]:
        raise UncoveredError("DEPTHWISE_CONV_2D with channels that are no multiple of its input's")
    kernel = tf.reshape(kernel, [height, width, value.shape[-1], -1])
    window = _window(op)
    strides = window["strides"]
    if strides[0] != strides[1]:
        raise UncoveredError("DEPTHWISE_CONV_2D with two different strides")
    output = tf.nn.depthwise_conv2d(value, kernel, [1, *strides, 1], window["padding"], dilations=_dilations(op))
    return _fused(op, _biased(output, bias))


def _fully_connected(op, value, kernel, bias=None):
    if op.option("weightsFormat", 0):
        raise UncoveredError("FULLY_CONNECTED with shuffled weights")
    if not op.option("keepNumDims", False):
        value = tf.reshape(value, [-1, kernel.shape[1]])
    return _fused(op, _biased(tf.matmul(value, kernel, transpose_b=True), bias))


def _biased(value, bias):
    return value if bias is None else value + bias


def _batch_matmul(op, first, second):
    return tf.matmul(first, second, transpose_a=op.option("adjX", False), transpose_b=op.option("adjY", False))


# --------------------------------------------------------------------------------------- pools and reductions


def _pool(function: Callable) -> Callable:
    def pool(op, value):
        size = [op.option("filterHeight", 1), op.option("filterWidth", 1)]
        return _fused(op, function(value, size, **_window(op)))

    return pool


def _reduction(function: Callable) -> Callable:
    def reduce(op, value, axes):
        axes = [int(axis) for axis in np.atleast_1d(_constant(op, axes, "axes"))]
        return function(value, axis=axes, keepdims=op.option("keepDims", False))

    return reduce


# --------------------------------------------------------------------------------------------------- shapes


def _constant(op, value, operand: str) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise UncoveredError(f"{op.name} with computed {operand}")
    return value


def _reshape(op, value, shape=None):
    shape = np.asarray(op.option("newShape", ()), np.int32) if shape is None else shape
    if isinstance(shape, np.ndarray) and op.fixed_batch and shape.size and shape[0] == op.fixed_batch:
        # The file takes `fixed_batch` images at a time; its copy takes any number.
        batch = tf.shape(value)[:1] * (shape[0] // op.fixed_batch)
        return tf.reshape(value, tf.concat([batch, shape[1:]], axis=0))
    return tf.reshape(value, shape)


def _squeeze(op, value):
    axes = op.option("squeezeDims", None)
    return tf.squeeze(value, None if axes is None or not len(axes) else [int(axis) for axis in axes])


def _split(op, axis, value):
    return tf.split(value, op.option("numSplits", 1), axis=int(_constant(op, axis, "axis")))


def _split_v(op, value, sizes, axis):
    return tf.split(value, _constant(op, sizes, "sizes").tolist(), axis=int(_constant(op, axis, "axis")))


def _strided_slice(op, value, begin, end, strides):
    masks = {f"{name}_mask": op.option(f"{other}Mask", 0) for name, other in _MASKS.items()}
    return tf.strided_slice(value, begin, end, strides, **masks)


_MASKS = {
    "begin": "begin",
    "end": "end",
    "ellipsis": "ellipsis",
    "new_axis": "newAxis",
    "shrink_axis": "shrinkAxis",
}


def _gather(op, value, places):
    return tf.gather(value, places, axis=op.option("axis", 0), batch_dims=op.option("batchDims", 0))


def _mirror_pad(op, value, paddings):
    return tf.pad(value, paddings, ("REFLECT", "SYMMETRIC")[op.option("mode", 0)])


def _resize(function: Callable) -> Callable:
    def resize(op, value, size):
        corners, centers = op.option("alignCorners", False), op.option("halfPixelCenters", False)
        return function(images=value, size=size, align_corners=corners, half_pixel_centers=centers)

    return resize


_DTYPES = {0: tf.float32, 1: tf.float16, 2: tf.int32, 4: tf.int64, 6: tf.bool}


def _cast(op, value):
    kind = op.option("outDataType", 0)
    if kind not in _DTYPES:
        raise UncoveredError(f"CAST to the type {kind}")
    # Real numbers are float32 here.
    return tf.cast(value, tf.float32 if _DTYPES[kind] == tf.float16 else _DTYPES[kind])


OPERATORS: dict[str, Callable] = {
    "ABS": _unary(tf.abs),
    "ADD": _binary(tf.add),
    "AVERAGE_POOL_2D": _pool(tf.nn.avg_pool2d),
    "BATCH_MATMUL": _batch_matmul,
    "BROADCAST_TO": lambda op, value, shape: tf.broadcast_to(value, shape),
    "CAST": _cast,
    "CEIL": _rounding(tf.math.ceil),
    "CONCATENATION": lambda op, *values: _fused(op, tf.concat(values, axis=op.option("axis", 0))),
    "CONV_2D": _conv,
    "DEPTHWISE_CONV_2D": _depthwise_conv,
    "DEPTH_TO_SPACE": lambda op, value: tf.nn.depth_to_space(value, op.option("blockSize", 0)),
    "DEQUANTIZE": lambda op, value: value,
    "DIV": _binary(tf.divide),
    "ELU": _unary(tf.nn.elu),
    "EXP": _unary(tf.exp),
    "EXPAND_DIMS": lambda op, value, axis: tf.expand_dims(value, int(_constant(op, axis, "axis").item())),
    "FLOOR": _rounding(tf.floor),
    "FULLY_CONNECTED": _fully_connected,
    "GATHER": _gather,
    "GELU": lambda op, value: tf.nn.gelu(value, approximate=op.option("approximate", False)),
    "GREATER_EQUAL": lambda op, first, second: tf.greater_equal(first, second),
    "HARD_SWISH": _unary(lambda value: value * tf.nn.relu6(value + 3.0) / 6.0),
    "L2_NORMALIZATION": lambda op, value: _fused(op, tf.nn.l2_normalize(value, axis=-1, epsilon=1e-12)),
    "LEAKY_RELU": lambda op, value: tf.nn.leaky_relu(value, op.option("alpha", 0.0)),
    "LOG": _unary(tf.math.log),
    "LOGISTIC": _unary(tf.nn.sigmoid),
    "LOG_SOFTMAX": _unary(tf.nn.log_softmax),
    "MAXIMUM": _binary(tf.maximum),
    "MAX_POOL_2D": _pool(tf.nn.max_pool2d),
    "MEAN": _reduction(tf.reduce_mean),
    "MINIMUM": _binary(tf.minimum),
    "MIRROR_PAD": _mirror_pad,
    "MUL": _binary(tf.multiply),
    "NEG": _unary(tf.negative),
    "PACK": lambda op, *values: tf.stack(values, axis=op.option("axis", 0)),
    "PAD": lambda op, value, paddings: tf.pad(value, paddings),
    "PADV2": lambda op, value, paddings, fill: tf.pad(value, paddings, constant_values=tf.reshape(fill, [])),
    "POW": _binary(tf.pow),
    "PRELU": _prelu,
    "QUANTIZE": lambda op, value: value,
    "REDUCE_PROD": _reduction(tf.reduce_prod),
    "REDUCE_MAX": _reduction(tf.reduce_max),
    "REDUCE_MIN": _reduction(tf.reduce_min),
    "RELU": _unary(tf.nn.relu),
    "RELU6": _unary(tf.nn.relu6),
    "RELU_0_TO_1": _unary(lambda value: tf.clip_by_value(value, 0.0, 1.0)),
    "RELU_N1_TO_1": _unary(lambda value: tf.clip_by_value(value, -1.0, 1.0)),
    "RESHAPE": _reshape,
    "RESIZE_BILINEAR": _resize(tf.raw_ops.ResizeBilinear),
    "RESIZE_NEAREST_NEIGHBOR": _resize(tf.raw_ops.ResizeNearestNeighbor),
    "ROUND": _rounding(tf.round),
    "RSQRT": _unary(tf.math.rsqrt),
    "SELECT_V2": lambda op, condition, first, second: tf.where(condition, first, second),
    "SHAPE": lambda op, value: tf.shape(value),
    "SIGN": _rounding(tf.sign),
    "SLICE": lambda op, value, begin, size: tf.slice(value, begin, size),
    "SOFTMAX": _softmax,
    "SPACE_TO_DEPTH": lambda op, value: tf.nn.space_to_depth(value, op.option("blockSize", 0)),
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "SQRT": _unary(tf.sqrt),
    "SQUARE": _unary(tf.square),
    "SQUARED_DIFFERENCE": _binary(tf.math.squared_difference),
    "SQUEEZE": _squeeze,
    "STRIDED_SLICE": _strided_slice,
    "SUB": _binary(tf.subtract),
    "SUM": _reduction(tf.reduce_sum),
    "TANH": _unary(tf.tanh),
    "TILE": lambda op, value, multiples: tf.tile(value, multiples),
    "TRANSPOSE": lambda op, value, order: tf.transpose(value, order),
    "UNPACK": lambda op, value: tf.unstack(value, axis=op.option("axis", 0)),
    "ZEROS_LIKE": _unary(tf.zeros_like),
}
