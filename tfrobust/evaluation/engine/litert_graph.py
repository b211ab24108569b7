"""LiteRT files as graphs of tensors and operators, and their differentiable copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

from tfrobust.evaluation.engine.litert_operators import OPERATORS, UncoveredError
from tfrobust.ops.gradients import straight_through

_NAMES = {number: name for name, number in vars(schema.BuiltinOperator).items() if isinstance(number, int)}
# By the number of TensorType.
_DTYPES = {
    0: np.float32,
    1: np.float16,
    2: np.int32,
    3: np.uint8,
    4: np.int64,
    6: np.bool_,
    7: np.int16,
    9: np.int8,
}
# Operators that change the representation of their input, but not its value.
_SAME_VALUE = ("DEQUANTIZE", "QUANTIZE")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Tensor of a file.

    Attributes:
        name: in the file.
        shape: with None in a position of any size.
        dtype: of its stored values; None for a type that is not covered.
        scale: float32 [m], one per entry along `axis`, or m = 1; None if it is not quantized.
        zero_point: int64 [m]; None if it is not quantized.
        axis: of the scales.
        constant: stored values, of `dtype` and `shape`; None if they are computed.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: type | None
    scale: np.ndarray | None
    zero_point: np.ndarray | None
    axis: int
    constant: np.ndarray | None

    @property
    def quantized(self) -> bool:
        """True if its values are integers that stand for (q - zero point) x scale."""
        return self.scale is not None and self.dtype is not None and np.issubdtype(self.dtype, np.integer)

    def real(self, stored: np.ndarray) -> np.ndarray:
        """Return what stored values stand for: float32, or integers of a tensor that is not quantized."""
        if not self.quantized:
            return stored.astype(np.float32) if np.issubdtype(stored.dtype, np.floating) else stored
        scale, zero_point = self._along_axis(stored.ndim)
        return ((stored.astype(np.float64) - zero_point) * scale).astype(np.float32)

    def stored(self, real: np.ndarray) -> np.ndarray:
        """Return the nearest stored values: rounded, and cut off at the limits of the type."""
        if not self.quantized:
            return real.astype(self.dtype)
        scale, zero_point = self._along_axis(real.ndim)
        limits = np.iinfo(self.dtype)
        return np.clip(np.rint(real.astype(np.float64) / scale) + zero_point, limits.min, limits.max).astype(self.dtype)

    def rounded(self, value: tf.Tensor) -> tf.Tensor:
        """Return real values as the file would store them, differentiated as the identity, also beyond the limits."""
        if not self.quantized:
            return value
        scale, zero_point = self._along_axis(value.shape.rank)
        limits = np.iinfo(self.dtype)
        lowest, highest = ((limit - zero_point).astype(np.float32) for limit in (limits.min, limits.max))
        scale = scale.astype(np.float32)
        return straight_through(value, tf.clip_by_value(tf.round(value / scale), lowest, highest) * scale)

    def _along_axis(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        if len(self.scale) == 1:
            return self.scale[0].astype(np.float64), self.zero_point[0]
        shape = [1] * rank
        shape[self.axis] = -1
        return self.scale.astype(np.float64).reshape(shape), self.zero_point.reshape(shape)


@dataclasses.dataclass(frozen=True)
class Operator:
    """Operator of a file.

    Attributes:
        name: of the builtin operator.
        options: of the flatbuffer; None if it has none.
        inputs: positions of tensors; -1 for an input that is left out.
        outputs: positions of tensors.
        fixed_batch: the number of images that the file takes at a time; 0 if any.
    """

    name: str
    options: object
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    fixed_batch: int

    def option(self, name: str, default):
        """Return an option; the default if the file leaves all options out."""
        return getattr(self.options, name, default)


class Graph:
    """Main subgraph of a LiteRT file.

    Args:
        content: the file, checked by `security.litert_files`.

    Attributes:
        tensors: all tensors, by position.
        operators: in the order of execution.
        inputs: name -> position.
        outputs: name -> position.
    """

    def __init__(self, content: bytes):
        model = schema.ModelT.InitFromPackedBuf(content, 0)
        subgraph = model.subgraphs[0]
        self.tensors = [_tensor(packed, model.buffers) for packed in subgraph.tensors]
        self.inputs, self.outputs = self._inputs_and_outputs(model, subgraph)
        codes = [_NAMES.get(max(code.builtinCode, code.deprecatedBuiltinCode)) for code in model.operatorCodes]
        batch = self.fixed_batch
        self.operators = [
            Operator(
                codes[packed.opcodeIndex],
                packed.builtinOptions,
                _positions(packed.inputs),
                _positions(packed.outputs),
                batch,
            )
            for packed in subgraph.operators
        ]
        self._makers = {position: operator for operator in self.operators for position in operator.outputs}

    @property
    def fixed_batch(self) -> int:
        """The number of images that the file takes at a time; 0 if any."""
        first = [self.tensors[position].shape[:1] for position in self.inputs.values()]
        return next((shape[0] or 0 for shape in first if shape), 0)

    @property
    def parameters(self) -> int:
        """Number of real values among the constants: weights, biases and the like, without shapes and axes."""
        constants = [tensor for tensor in self.tensors if tensor.constant is not None]
        return sum(
            tensor.constant.size
            for tensor in constants
            if tensor.quantized or not np.issubdtype(tensor.dtype, np.integer)
        )

    def maker(self, position: int) -> Operator | None:
        """Return the operator that computes a tensor's values, whatever their representation; None for an input."""
        operator = self._makers.get(position)
        while operator is not None and operator.name in _SAME_VALUE:
            operator = self._makers.get(operator.inputs[0])
        return operator

    def needed_operators(self, position: int) -> Iterator[Operator]:
        """Yield the operators that a tensor depends on, in the order of execution."""
        positions = {position}
        for operator in reversed(self.operators):
            if positions.intersection(operator.outputs):
                positions.update(operator.inputs)
        return (operator for operator in self.operators if positions.intersection(operator.outputs))

    def _inputs_and_outputs(self, model, subgraph) -> tuple[dict[str, int], dict[str, int]]:
        """Return inputs and outputs by their names in the signature, or without one by those of their tensors."""
        signatures = [signature for signature in model.signatureDefs or () if signature.subgraphIndex == 0]
        signatures.sort(key=lambda signature: signature.signatureKey != b"serving_default")
        if signatures:
            sides = (signatures[0].inputs, signatures[0].outputs)
            return tuple(
                {entry.name.decode(errors="replace"): int(entry.tensorIndex) for entry in side} for side in sides
            )
        sides = (_positions(subgraph.inputs), _positions(subgraph.outputs))
        return tuple({self.tensors[position].name: position for position in side} for side in sides)


class Copy:
    """Differentiable copy of a LiteRT file, from the input to one tensor.

    Weights are dequantized. After each operator the values are rounded as in the file, which is differentiated as the
    identity (straight-through). Fused and other activations keep their own derivatives.

    Args:
        graph: the file.
        output: position of the tensor to compute.

    Raises:
        UncoveredError: the tensor depends on an operator or on a type that `OPERATORS` and this class do not cover.
    """

    def __init__(self, graph: Graph, output: int):
        self._graph, self._output = graph, output
        (self._input,) = graph.inputs.values()
        self._operators = list(graph.needed_operators(output))
        for operator in self._operators:
            if operator.name not in OPERATORS:
                raise UncoveredError(operator.name or "an unknown operator")
            for position in (*operator.inputs, *operator.outputs):
                tensor = graph.tensors[position]
                if position >= 0 and tensor.dtype is None:
                    raise UncoveredError(f"a type of {operator.name}'s tensors")
        self._constants = {
            input_position: _value(graph.tensors[input_position])
            for input_position in {
                position for operator in self._operators for position in operator.inputs if position >= 0
            }
            if graph.tensors[input_position].constant is not None
        }

    def __call__(self, images: tf.Tensor, rounding: bool = True) -> tf.Tensor:
        """Compute the tensor.

        Args:
            images: float32 [b, h, w, c], real values, also for a file with integer inputs.
            rounding: False: leave out the rounding of activations.

        Returns:
            float32, the tensor's real values.
        """
        values = {**self._constants, self._input: self._rounded(self._input, images, rounding)}
        for operator in self._operators:
            inputs = [None if position < 0 else values[position] for position in operator.inputs]
            while inputs and inputs[-1] is None:
                inputs.pop()
            outputs = OPERATORS[operator.name](operator, *inputs)
            outputs = outputs if isinstance(outputs, list) else [outputs]
            for position, output in zip(operator.outputs, outputs, strict=True):
                values[position] = self._rounded(position, output, rounding)
        return values[self._output]

    def _rounded(self, position: int, value, rounding: bool):
        return self._graph.tensors[position].rounded(value) if rounding else value


def _value(tensor: Tensor):
    """Return the real values of a constant: a tensor on the device if they are fractional, else an array."""
    real = tensor.real(tensor.constant)
    # Created once: constants in the graphs of the attacks would be copied into each.
    with tf.init_scope():
        return tf.constant(real) if real.dtype == np.float32 else real


def _tensor(packed, buffers) -> Tensor:
    dtype = None if packed.sparsity is not None else _DTYPES.get(packed.type)
    signature = packed.shape if packed.shapeSignature is None else packed.shapeSignature
    shape = () if signature is None else tuple(None if size < 0 else int(size) for size in signature)
    data, constant = buffers[packed.buffer].data, None
    if data is not None and len(data) and dtype is not None:
        stored = np.frombuffer(np.asarray(data, np.uint8).tobytes(), np.dtype(dtype).newbyteorder("<"))
        constant = stored.reshape([] if packed.shape is None else packed.shape)
    quantization = packed.quantization
    if quantization is None or quantization.scale is None or not len(quantization.scale):
        scale = zero_point = None
    else:
        scale = np.asarray(quantization.scale, np.float32)
        zero_point = (
            np.zeros(len(scale), np.int64)
            if quantization.zeroPoint is None
            else np.asarray(quantization.zeroPoint, np.int64)
        )
    axis = 0 if quantization is None else int(quantization.quantizedDimension)
    return Tensor((packed.name or b"").decode(errors="replace"), shape, dtype, scale, zero_point, axis, constant)


def _positions(vector) -> tuple[int, ...]:
    return () if vector is None else tuple(int(position) for position in vector)
