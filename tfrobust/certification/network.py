"""From a Keras model to the sequence of operations that it computes in inference mode."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NoReturn

import keras
import numpy as np
import tensorflow as tf

from tfrobust.certification import operations
from tfrobust.certification.operations import Operation
from tfrobust.errors import InputError
from tfrobust.models.backbone import Backbone
from tfrobust.models.heads.linear import LinearHead, LinearProjection, MLPHead, MLPProjection
from tfrobust.models.resnets.stages import SymmetricMaxPooling
from tfrobust.models.shared import foreign
from tfrobust.models.shared.blocks import ConvolutionUnit, PreActivationBlock, ResidualBlock
from tfrobust.models.shared.dropout import CountedDropout, DropPath
from tfrobust.models.shared.encoder import Encoder
from tfrobust.models.shared.functional import BranchedModels
from tfrobust.models.shared.normalization import BranchedBatchNormalization
from tfrobust.ops import keras_private

# Activations that increase; ReLU and leaky ReLU have an operation of their own.
_MONOTONE = {
    keras.activations.elu: tf.nn.elu,
    keras.activations.sigmoid: tf.math.sigmoid,
    keras.activations.softplus: tf.math.softplus,
    keras.activations.tanh: tf.math.tanh,
}
_SLOPES = {keras.activations.relu: 0.0, tf.nn.relu: 0.0, keras.activations.leaky_relu: 0.2}


class NoBoundsError(InputError):
    """A network that bounds cannot pass; the message names the layer."""


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """The operations of a classifier, in the order of their computation.

    Attributes:
        nodes: (operation, positions of its inputs); position 0 is the image, position i the output of node i - 1.
        other_arithmetic: which part does not compute in float32, by name, or casts its input; "" if none. There are no
            sound bounds then.
        probabilities: True if a softmax followed the last node. It keeps the order of the logits.
    """

    nodes: tuple[tuple[Operation, tuple[int, ...]], ...]
    other_arithmetic: str = ""
    probabilities: bool = False

    def after_scaling(self, scale: float, shift: float) -> Network:
        """Return the network of x -> scale x + shift, then this network."""
        moved = [(operation, tuple(position + 1 for position in positions)) for operation, positions in self.nodes]
        first = (operations.Scaling("pixel range", scale, shift), (0,))
        return dataclasses.replace(self, nodes=(first, *moved))


def walk(model: keras.Layer) -> Network:
    """Return the operations of a built classifier.

    Covered are sequential, functional and tfrobust's own models (encoders, heads, methods) of these layers: dense,
    convolution, batch normalization, ReLU, leaky ReLU, ELU, sigmoid, softplus, tanh, max and average pooling, zero
    padding, flatten, reshape, add, rescaling, normalization, dropout. A softmax is covered as the last one, a
    sigmoid is not: it makes large logits equal in float32.

    Args:
        model: images [b, h, w, c] (or clips [b, t, h, w, c]) -> logits or probabilities [b, k].

    Returns:
        The network, which reads the variables of the model whenever bounds are computed.

    Raises:
        NoBoundsError (a ValueError): the first layer that is not covered, by name.
    """
    return _Walker().network(model)


class _Walker:
    """Collects the operations; a value is known by its position."""

    def __init__(self):
        self.nodes: list[tuple[Operation, tuple[int, ...]]] = []
        self.other_arithmetic = ""

    def network(self, model) -> Network:
        end, nodes = self.walk(model, 0), self.nodes
        if end != len(nodes):
            raise NoBoundsError(f"the model {model.name} does not end with the last of its layers, so it has no bounds")
        last = nodes[-1][0] if nodes else None
        final = isinstance(last, operations.Softmax)
        if getattr(last, "function", None) is tf.math.sigmoid:
            _refuse(last, "as the last layer, where float32 makes large logits equal")
        nodes = nodes[:-1] if final else nodes
        for operation, _ in nodes:
            if isinstance(operation, operations.Softmax):
                _refuse(operation, "before the end of the network")
        return Network(tuple(nodes), self.other_arithmetic, final)

    def add(self, operation: Operation, *positions: int) -> int:
        self.nodes.append((operation, positions))
        return len(self.nodes)

    def require_float32(self, part, dtype: str, verb: str) -> None:
        """Note the first part that does not do with float32 what the verb says."""
        if dtype != "float32" and not self.other_arithmetic:
            kind = type(part).__name__
            self.other_arithmetic = f"the layer {part.name} of type {kind} {verb} {dtype}, not float32"

    def walk(self, layer, position: int) -> int:
        """Add the operations of a layer or model with one input; return the position of its output."""
        if isinstance(layer, keras.Layer):
            self.require_float32(layer, layer.compute_dtype, "computes in")
            self.require_float32(layer, layer.dtype_policy.name, "has the policy")
        if hasattr(layer, "propagate"):  # a training method, whose deployed path this is
            return self.chain([layer.encoder, layer.head], position)
        if isinstance(layer, Encoder):
            return self.encoder(layer, position)
        if (functional := keras_private.functional(layer)) is not None:
            return self.functional(functional, position)
        if isinstance(layer, keras.Sequential):
            return self.chain(layer.layers, position)
        handler = _HANDLERS.get(type(layer))
        if handler is None:
            _refuse(layer)
        return handler(self, layer, position)

    def chain(self, layers, position: int) -> int:
        """Add layers in sequence."""
        for layer in layers:
            position = self.walk(layer, position)
        return position

    def encoder(self, encoder: Encoder, position: int) -> int:
        """Add the normalization of pixels, the stages and the neck."""
        kind = type(encoder)
        standard = kind.standardize in (Encoder.standardize, Backbone.standardize)
        if isinstance(encoder, Backbone):
            gray = encoder.input_spec.shape[-1] != foreign.input_shape(encoder.model)[-1]
            standard = standard and encoder.channel_order == "rgb" and not gray
        if kind.call is not Encoder.call or not standard or encoder.resize_to:
            _refuse(encoder, "which changes pixels or runs its stages in a way of its own")
        mean = 0.0 if encoder.pixel_mean is None else np.asarray(encoder.pixel_mean)
        std = 1.0 if encoder.pixel_std is None else np.asarray(encoder.pixel_std)
        if encoder.pixel_mean is not None or encoder.pixel_std is not None:
            position = self.add(operations.Scaling(f"{encoder.name}: pixels", 1 / std, -mean / std), position)
        return self.chain([layer for part in (*encoder.stage_layers, encoder.neck) for layer in part], position)

    def functional(self, model, position: int) -> int:
        """Add the calls of a functional model."""
        if len(model.inputs) != 1 or len(model.outputs) != 1:
            _refuse(model, f"{len(model.inputs)} inputs and {len(model.outputs)} outputs")
        positions = {id(model.inputs[0]): position}
        for call in keras_private.calls(model):
            if call.is_input:
                self.require_float32(call.operation, call.outputs[0].dtype, "casts pixels to")
                continue
            settings = dict(call.arguments.kwargs)
            if settings.get("training") is False:  # Keras notes it for every Dropout
                del settings["training"]
            if any(value is not None for value in settings.values()):
                _refuse(call.operation, "called with arguments besides its input")
            sources = [positions[id(tensor)] for tensor in call.input_tensors]
            if type(call.operation) in _SUMS or type(call.operation).__name__ == "Add":
                if len(sources) < 2 or len({tuple(tensor.shape) for tensor in call.input_tensors}) > 1:
                    _refuse(call.operation, "a constant, or summands of several shapes")
                end = functools.reduce(self.adder(call.operation), sources)
            elif len(sources) == 1 and len(call.outputs) == 1:
                end = self.walk(call.operation, sources[0])
            else:
                _refuse(call.operation)
            self.require_float32(call.operation, call.outputs[0].dtype, "returns")
            positions[id(call.outputs[0])] = end
        return positions[id(model.outputs[0])]

    def adder(self, layer) -> Callable[[int, int], int]:
        """Return the function that adds the sum of two positions."""
        return lambda first, second: self.add(operations.Sum(layer.name), first, second)

    def activation(self, layer, position: int, function=None) -> int:
        """Add an activation function: that of a layer, or a given one."""
        function = layer.activation if function is None else function
        if function is keras.activations.linear:
            return position
        if function is keras.activations.softmax:
            return self.add(operations.Softmax(layer.name), position)
        if function in _SLOPES:
            return self.add(operations.ReLU(layer.name, _SLOPES[function]), position)
        if function not in _MONOTONE:
            _refuse(layer, f"with the activation {getattr(function, '__name__', function)}")
        return self.add(operations.Monotone(layer.name, _MONOTONE[function]), position)


def _refuse(layer, reason: str = "") -> NoReturn:
    reason = f" ({reason})" if reason else ""
    raise NoBoundsError(f"the layer {layer.name} of type {type(layer).__name__}{reason} has no bounds")


# ------------------------------------------------------------------------------------------------------- layers


def _affine(kind) -> Callable:
    """Return the handler of a layer with a kernel and an activation."""

    def handle(walker: _Walker, layer, position: int) -> int:
        if getattr(layer, "data_format", "channels_last") != "channels_last" or getattr(layer, "lora_enabled", False):
            _refuse(layer, "channels first or LoRA")
        if getattr(layer, "quantization_mode", None):
            _refuse(layer, "quantized")
        return walker.activation(layer, walker.add(kind(layer), position))

    return handle


def _normalization(walker: _Walker, layer: keras.layers.BatchNormalization, position: int) -> int:
    if layer.axis not in (-1, layer.input_spec.ndim - 1 if layer.input_spec.ndim else -1):
        _refuse(layer, "not over the last axis")
    return walker.add(operations.BatchNormalization(layer), position)


def _constant_normalization(walker: _Walker, layer: keras.layers.Normalization, position: int) -> int:
    if layer.invert:
        _refuse(layer, "inverted")
    std = np.maximum(np.sqrt(np.asarray(layer.variance, np.float64)), keras.backend.epsilon())
    mean = np.asarray(layer.mean, np.float64)
    return walker.add(operations.Scaling(layer.name, 1 / std, -mean / std), position)


def _rescaling(walker: _Walker, layer: keras.layers.Rescaling, position: int) -> int:
    return walker.add(operations.Scaling(layer.name, np.asarray(layer.scale), np.asarray(layer.offset)), position)


def _relu(walker: _Walker, layer: keras.layers.ReLU, position: int) -> int:
    if layer.max_value is not None or layer.threshold:
        _refuse(layer, "with a maximum or a threshold")
    return _leaky_relu(walker, layer, position)


def _leaky_relu(walker: _Walker, layer: keras.layers.LeakyReLU, position: int) -> int:
    slope = float(layer.negative_slope)
    if slope and not 1e-6 <= slope < 1:
        _refuse(layer, "with a slope outside [1e-6, 1)")
    return walker.add(operations.ReLU(layer.name, slope), position)


def _elu(walker: _Walker, layer: keras.layers.ELU, position: int) -> int:
    if layer.alpha != 1:
        _refuse(layer, "with alpha other than 1")
    return walker.activation(layer, position, keras.activations.elu)


def _softmax(walker: _Walker, layer: keras.layers.Softmax, position: int) -> int:
    if layer.axis != -1:
        _refuse(layer, "not over the last axis")
    return walker.activation(layer, position, keras.activations.softmax)


def _pooling(walker: _Walker, layer, position: int) -> int:
    if layer.data_format != "channels_last":
        _refuse(layer, "channels first")
    averages = layer.pool_mode == "average"
    pool = keras.ops.average_pool if averages else keras.ops.max_pool
    function = functools.partial(pool, pool_size=layer.pool_size, strides=layer.strides, padding=layer.padding)
    if not averages:
        return walker.add(operations.MaxPooling(layer.name, function), position)
    sizes = (layer.pool_size, layer.strides) if layer.padding == "valid" else None
    return walker.add(operations.Average(layer.name, function, math.prod(layer.pool_size), sizes), position)


def _global_pooling(walker: _Walker, layer, position: int) -> int:
    if layer.data_format != "channels_last":
        _refuse(layer, "channels first")
    averages = "Average" in type(layer).__name__
    reduce = tf.reduce_mean if averages else tf.reduce_max

    def function(hidden):
        return reduce(hidden, list(range(1, hidden.shape.rank - 1)), keepdims=layer.keepdims)

    if averages:
        return walker.add(operations.Average(layer.name, function, None), position)
    return walker.add(operations.MaxPooling(layer.name, function), position)


def _symmetric_pooling(walker: _Walker, layer: SymmetricMaxPooling, position: int) -> int:
    return walker.add(operations.MaxPooling(layer.name, layer.call), position)


def _flatten(walker: _Walker, layer, position: int) -> int:
    if layer.data_format != "channels_last":
        _refuse(layer, "channels first")

    def function(hidden):
        return tf.reshape(hidden, [tf.shape(hidden)[0], math.prod(hidden.shape[1:])])

    return walker.add(operations.Rearrangement(layer.name, function), position)


def _reshape(walker: _Walker, layer: keras.layers.Reshape, position: int) -> int:
    def function(hidden):
        return tf.reshape(hidden, [tf.shape(hidden)[0], *layer.compute_output_shape(hidden.shape)[1:]])

    return walker.add(operations.Rearrangement(layer.name, function), position)


def _padding(walker: _Walker, layer: keras.layers.ZeroPadding2D, position: int) -> int:
    if layer.data_format != "channels_last":
        _refuse(layer, "channels first")
    return walker.add(_pad(layer.name, layer.padding), position)


def _pad(name: str, margins) -> operations.Rearrangement:
    around = [[0, 0], *map(list, margins), [0, 0]]
    before = tuple(margin[0] for margin in around[1:-1])
    return operations.Rearrangement(name, lambda hidden: tf.pad(hidden, around), before)


def _unchanged(walker: _Walker, layer, position: int) -> int:
    """Return the position: the layer does nothing in inference mode."""
    return position


def _head(walker: _Walker, layer, position: int) -> int:
    if layer.normalized:
        _refuse(layer, "normalized features")
    return walker.chain(layer.chain, position)


def _branched(walker: _Walker, layer: BranchedBatchNormalization, position: int) -> int:
    return walker.walk(layer.norms[0], position)


def _unit(walker: _Walker, unit: ConvolutionUnit, position: int) -> int:
    if unit.margins:
        position = walker.add(_pad(unit.name, [[margin] * 2 for margin in unit.margins]), position)
    return walker.chain(unit.chain, position)


def _residual(walker: _Walker, block: ResidualBlock, position: int) -> int:
    ends = walker.chain(block.units, position), walker.chain(block.shortcut, position)
    return walker.walk(block.activation, walker.adder(block)(*ends))


def _preactivation(walker: _Walker, block: PreActivationBlock, position: int) -> int:
    activated = walker.chain(block.entry, position)
    begins_activated = block.shortcut == "activated" or (block.shortcut == "standard" and block.project)
    skipped = walker.chain(block.projection, activated if begins_activated else position)
    return walker.adder(block)(walker.chain(block.units, activated), skipped)


_LAYERS = keras.layers
_SUMS = (_LAYERS.Add,)
_HANDLERS: dict[type, Callable[[_Walker, keras.Layer, int], int]] = {
    _LAYERS.Dense: _affine(operations.Dense),
    **dict.fromkeys((_LAYERS.Conv1D, _LAYERS.Conv2D, _LAYERS.Conv3D), _affine(operations.Convolution)),
    _LAYERS.BatchNormalization: _normalization,
    _LAYERS.Normalization: _constant_normalization,
    _LAYERS.Rescaling: _rescaling,
    _LAYERS.Activation: _Walker.activation,
    _LAYERS.ReLU: _relu,
    _LAYERS.LeakyReLU: _leaky_relu,
    _LAYERS.ELU: _elu,
    _LAYERS.Softmax: _softmax,
    **dict.fromkeys((_LAYERS.MaxPooling2D, _LAYERS.AveragePooling2D), _pooling),
    **dict.fromkeys((_LAYERS.MaxPooling3D, _LAYERS.AveragePooling3D), _pooling),
    **dict.fromkeys((_LAYERS.GlobalAveragePooling2D, _LAYERS.GlobalMaxPooling2D), _global_pooling),
    **dict.fromkeys((_LAYERS.GlobalAveragePooling3D, _LAYERS.GlobalMaxPooling3D), _global_pooling),
    SymmetricMaxPooling: _symmetric_pooling,
    _LAYERS.Flatten: _flatten,
    _LAYERS.Reshape: _reshape,
    **dict.fromkeys((_LAYERS.ZeroPadding2D, _LAYERS.ZeroPadding3D), _padding),
    **dict.fromkeys((_LAYERS.InputLayer, _LAYERS.Identity, _LAYERS.Dropout, _LAYERS.SpatialDropout2D), _unchanged),
    **dict.fromkeys((_LAYERS.GaussianNoise, CountedDropout, DropPath), _unchanged),
    **dict.fromkeys((LinearHead, LinearProjection, MLPHead, MLPProjection), _head),
    BranchedBatchNormalization: _branched,
    BranchedModels: lambda walker, layer, position: walker.walk(layer.models[0], position),
    ConvolutionUnit: _unit,
    ResidualBlock: _residual,
    PreActivationBlock: _preactivation,
}
