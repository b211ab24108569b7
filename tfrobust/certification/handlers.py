"""Turn layers into operations: a table of handlers by type of layer, and one of activation functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, cast

import keras
import numpy as np
import tensorflow as tf

from tfrobust.certification import affine, nonlinear
from tfrobust.errors import InputError
from tfrobust.models.heads.linear import LinearHead, LinearProjection, MLPHead, MLPProjection
from tfrobust.models.resnets.stages import SymmetricMaxPooling
from tfrobust.models.shared.blocks import ConvolutionUnit, PreActivationBlock, ResidualBlock
from tfrobust.models.shared.dropout import CountedDropout, DropPath
from tfrobust.models.shared.functional import BranchedModels
from tfrobust.models.shared.group_sort import GroupSort, sorted_groups
from tfrobust.models.shared.normalization import BranchedBatchNormalization

if TYPE_CHECKING:
    from tfrobust.certification.network import Walker


class NoBoundsError(InputError):
    """A network that bounds cannot pass; the message names the layer."""


def refuse(layer, reason: str = "") -> NoReturn:
    """Raise NoBoundsError with the name and the type of a layer, and the reason."""
    reason = f" ({reason})" if reason else ""
    raise NoBoundsError(f"the layer {layer.name} of type {type(layer).__name__}{reason} has no bounds")


# -------------------------------------------------------------------------------------------- activation functions


def _curve(function, derivative, convex: bool = False) -> Callable:
    return lambda walker, layer, position: walker.add(
        nonlinear.Curve(layer.name, function, derivative, convex), position
    )


def _monotone(function) -> Callable:
    return lambda walker, layer, position: walker.add(nonlinear.Monotone(layer.name, function), position)


def _dip(function, bottom: float) -> Callable:
    return lambda walker, layer, position: walker.add(nonlinear.Dip(layer.name, function, bottom), position)


def _rectifier(below: float) -> Callable:
    return lambda walker, layer, position: walker.add(nonlinear.ReLU(layer.name, below), position)


def _capped(walker: Walker, layer, position: int, below: float = 0.0, most: float = 6.0) -> int:
    """Add min(ReLU(x), most) as most - ReLU(most - ReLU(x)), so that its bounds and splits are those of ReLUs."""
    for slope in (below, 0.0):
        position = walker.add(nonlinear.ReLU(layer.name, slope), position)
        position = walker.add(affine.Scaling(layer.name, -1.0, float(np.float32(most))), position)
    return position


def _hard_sigmoid(walker: Walker, layer, position: int) -> int:
    """Add min(ReLU(x + 3), 6) / 6."""
    position = _capped(walker, layer, walker.add(affine.Scaling(layer.name, 1.0, 3.0), position))
    return walker.add(affine.Scaling(layer.name, 1 / 6, 0.0), position)


def _logistic_slope(hidden):
    value = tf.math.sigmoid(hidden)
    return value * (1 - value)


_KERAS = keras.activations
ACTIVATIONS: dict[Callable, Callable] = {
    _KERAS.linear: lambda walker, layer, position: position,
    _KERAS.softmax: lambda walker, layer, position: walker.add(nonlinear.Softmax(layer.name), position),
    **dict.fromkeys((_KERAS.relu, tf.nn.relu), _rectifier(0.0)),
    **dict.fromkeys((_KERAS.relu6, tf.nn.relu6), _capped),
    _KERAS.leaky_relu: _rectifier(0.2),
    _KERAS.hard_sigmoid: _hard_sigmoid,
    _KERAS.elu: _curve(tf.nn.elu, lambda hidden: tf.exp(tf.minimum(hidden, 0.0)), convex=True),
    _KERAS.softplus: _curve(tf.math.softplus, tf.math.sigmoid, convex=True),
    _KERAS.sigmoid: _curve(tf.math.sigmoid, _logistic_slope),
    _KERAS.tanh: _curve(tf.math.tanh, lambda hidden: 1 - tf.square(tf.math.tanh(hidden))),
    _KERAS.softsign: _curve(tf.nn.softsign, lambda hidden: 1 / tf.square(1 + tf.abs(hidden))),
    _KERAS.selu: _monotone(tf.nn.selu),
    _KERAS.exponential: _monotone(tf.exp),
    _KERAS.silu: _dip(tf.nn.silu, -1.278464542761074),
    _KERAS.gelu: _dip(lambda hidden: tf.nn.gelu(hidden, approximate=False), -0.751791524693564),
    _KERAS.hard_silu: _dip(lambda hidden: hidden * tf.nn.relu6(hidden + 3) / 6, -1.5),
}


# ------------------------------------------------------------------------------------------------- several inputs


def _sum(walker: Walker, layer, positions: list[int], shapes: set[tuple]) -> int:
    if len(positions) < 2 or len(shapes) > 1:
        refuse(layer, "a constant, or summands of several shapes")
    return functools.reduce(lambda first, second: walker.add(affine.Sum(layer.name), first, second), positions)


def _difference(walker: Walker, layer, positions: list[int], shapes: set[tuple]) -> int:
    negative = [walker.add(affine.Scaling(layer.name, -1.0, 0.0), position) for position in positions[1:]]
    return _sum(walker, layer, [*positions[:1], *negative], shapes)


def _mean(walker: Walker, layer, positions: list[int], shapes: set[tuple]) -> int:
    total = _sum(walker, layer, positions, shapes)
    return walker.add(affine.Scaling(layer.name, 1 / len(positions), 0.0), total)


def _concatenation(walker: Walker, layer: keras.layers.Concatenate, positions: list[int], shapes: set[tuple]) -> int:
    rank = len(next(iter(shapes)))
    axis = layer.axis % rank
    if not axis or len(positions) < 2:
        refuse(layer, "of examples, or of a single tensor")
    return walker.add(affine.Concatenation(layer.name, axis - rank), *positions)


# --------------------------------------------------------------------------------------------------------- layers


def _require_plain(layer) -> None:
    """Refuse a layer whose kernel is not simply a variable, or whose channels do not come last."""
    if getattr(layer, "data_format", "channels_last") != "channels_last" or getattr(layer, "lora_enabled", False):
        refuse(layer, "channels first or LoRA")
    if getattr(layer, "quantization_mode", None):
        refuse(layer, "quantized")


def _dense(walker: Walker, layer: keras.layers.Dense, position: int) -> int:
    _require_plain(layer)
    return walker.activation(layer, walker.add(affine.Dense(layer.name, layer.kernel, layer.bias), position))


def _padded(walker: Walker, layer, position: int) -> tuple[affine.Geometry, int]:
    """Return the geometry of a convolution, and the position of its input with the padding of "causal" ones."""
    _require_plain(layer)
    if layer.padding != "causal":
        return affine.Geometry(layer.strides, layer.dilation_rate, layer.padding), position
    before = layer.dilation_rate[0] * (layer.kernel_size[0] - 1)
    position = walker.add(pad(layer.name, [(before, 0)]), position)
    return affine.Geometry(layer.strides, layer.dilation_rate, "valid"), position


def _convolution(walker: Walker, layer, position: int) -> int:
    geometry, position = _padded(walker, layer, position)
    operation = affine.Convolution(layer.name, layer.kernel, layer.bias, geometry, layer.groups)
    return walker.activation(layer, walker.add(operation, position))


def _depthwise(walker: Walker, layer, position: int) -> int:
    geometry, position = _padded(walker, layer, position)
    operation = affine.DepthwiseConvolution(layer.name, layer.kernel, layer.bias, geometry)
    return walker.activation(layer, walker.add(operation, position))


def _separable(walker: Walker, layer, position: int) -> int:
    geometry, position = _padded(walker, layer, position)
    depthwise = affine.DepthwiseConvolution(layer.name, layer.depthwise_kernel, None, geometry)
    ones = (1,) * layer.rank
    geometry = affine.Geometry(ones, ones, "valid")
    pointwise = affine.Convolution(layer.name, layer.pointwise_kernel, layer.bias, geometry)
    return walker.activation(layer, walker.add(pointwise, walker.add(depthwise, position)))


def _transposed(walker: Walker, layer, position: int) -> int:
    if any(step != 1 for step in layer.dilation_rate):
        refuse(layer, "transposed and dilated")
    geometry, position = _padded(walker, layer, position)
    padding = layer.output_padding
    operation = affine.TransposedConvolution(layer.name, layer.kernel, layer.bias, geometry, padding)
    return walker.activation(layer, walker.add(operation, position))


def _normalization(walker: Walker, layer: keras.layers.BatchNormalization, position: int) -> int:
    if layer.axis not in (-1, layer.input_spec.ndim - 1 if layer.input_spec.ndim else -1):
        refuse(layer, "not over the last axis")
    return walker.add(affine.BatchNormalization(layer), position)


def _layer_normalization(walker: Walker, layer: keras.layers.LayerNormalization, position: int) -> int:
    if list(layer.axis) != [-1] or layer.rms_scaling or layer.epsilon < 1e-12:
        refuse(layer, "not over the last axis, by the root mean square, or with an epsilon below 1e-12")
    return walker.add(nonlinear.LayerNormalization(layer.name, layer.gamma, layer.beta, layer.epsilon), position)


def _constant_normalization(walker: Walker, layer: keras.layers.Normalization, position: int) -> int:
    if layer.invert:
        refuse(layer, "inverted")
    std = np.maximum(np.sqrt(np.asarray(layer.variance, np.float64)), keras.backend.epsilon())
    mean = np.asarray(layer.mean, np.float64)
    return walker.add(affine.Scaling(layer.name, 1 / std, -mean / std), position)


def _rescaling(walker: Walker, layer: keras.layers.Rescaling, position: int) -> int:
    return walker.add(affine.Scaling(layer.name, np.asarray(layer.scale), np.asarray(layer.offset)), position)


def _activation(walker: Walker, layer: keras.layers.Activation, position: int) -> int:
    return walker.activation(layer, position)


def _relu(walker: Walker, layer: keras.layers.ReLU, position: int) -> int:
    slope = _slope(layer)
    if layer.threshold:
        return walker.add(nonlinear.Monotone(layer.name, functools.partial(_thresholded, layer, slope)), position)
    if layer.max_value is None:
        return walker.add(nonlinear.ReLU(layer.name, slope), position)
    return _capped(walker, layer, position, slope, layer.max_value)


def _thresholded(layer: keras.layers.ReLU, slope: float, hidden):
    """Return x above the threshold, at most the maximum, and slope (x - threshold) up to it."""
    threshold = np.float32(layer.threshold).astype(hidden.dtype.as_numpy_dtype)
    most = hidden if layer.max_value is None else tf.minimum(hidden, layer.max_value)
    return tf.where(hidden > threshold, most, slope * (hidden - threshold))


def _leaky_relu(walker: Walker, layer: keras.layers.LeakyReLU, position: int) -> int:
    return walker.add(nonlinear.ReLU(layer.name, _slope(layer)), position)


def _slope(layer) -> float:
    slope = float(layer.negative_slope)
    if slope and not 1e-6 <= slope < 1:
        refuse(layer, "with a slope outside [1e-6, 1)")
    return slope


def _prelu(walker: Walker, layer: keras.layers.PReLU, position: int) -> int:
    slopes = np.asarray(layer.alpha)
    if not np.all((slopes >= 0) & (slopes < 1)):
        refuse(layer, "with a slope outside [0, 1)")
    return walker.add(nonlinear.ReLU(layer.name, layer.alpha), position)


def _elu(walker: Walker, layer: keras.layers.ELU, position: int) -> int:
    if layer.alpha != 1:
        refuse(layer, "with alpha other than 1")
    return walker.activation(layer, position, keras.activations.elu)


def _softmax(walker: Walker, layer: keras.layers.Softmax, position: int) -> int:
    if layer.axis != -1:
        refuse(layer, "not over the last axis")
    return walker.activation(layer, position, keras.activations.softmax)


def _pooling(walker: Walker, layer, position: int) -> int:
    if layer.data_format != "channels_last":
        refuse(layer, "channels first")
    averages = layer.pool_mode == "average"
    pool = functools.partial(keras.ops.average_pool if averages else keras.ops.max_pool, data_format="channels_last")

    def function(hidden):
        sizes, strides = layer.pool_size, layer.strides
        if len(sizes) < 3:
            return pool(hidden, sizes, strides, layer.padding)
        # Kernels in three dimensions have no float64: first the maps of each place of the first axis, then that axis.
        maps = pool(tf.reshape(hidden, [-1, *hidden.shape[2:]]), sizes[1:], strides[1:], layer.padding)
        lines = tf.reshape(maps, [-1, hidden.shape[1], math.prod(maps.shape[1:3]), maps.shape[-1]])
        lines = pool(lines, (sizes[0], 1), (strides[0], 1), layer.padding)
        return tf.reshape(lines, [-1, lines.shape[1], *maps.shape[1:]])

    if not averages:
        shared = math.prod(-(-size // step) for size, step in zip(layer.pool_size, layer.strides, strict=True))
        return walker.add(nonlinear.Ordering(layer.name, function, shared), position)
    windows = (layer.pool_size, layer.strides) if layer.padding == "valid" else None
    return walker.add(affine.Average(layer.name, function, math.prod(layer.pool_size), windows), position)


def _global_pooling(walker: Walker, layer, position: int) -> int:
    if layer.data_format != "channels_last":
        refuse(layer, "channels first")
    averages = "Average" in type(layer).__name__
    reduce = tf.reduce_mean if averages else tf.reduce_max

    def function(hidden):
        return reduce(hidden, list(range(1, hidden.shape.rank - 1)), keepdims=layer.keepdims)

    if averages:
        return walker.add(affine.Average(layer.name, function, None), position)
    return walker.add(nonlinear.Ordering(layer.name, function, 1), position)


def _symmetric_pooling(walker: Walker, layer: SymmetricMaxPooling, position: int) -> int:
    return walker.add(nonlinear.Ordering(layer.name, layer.call), position)


def _flatten(walker: Walker, layer, position: int) -> int:
    if layer.data_format != "channels_last":
        refuse(layer, "channels first")

    def function(hidden):
        return tf.reshape(hidden, [tf.shape(hidden)[0], math.prod(hidden.shape[1:])])

    return walker.add(affine.Rearrangement(layer.name, function), position)


def _reshape(walker: Walker, layer: keras.layers.Reshape, position: int) -> int:
    def function(hidden):
        return tf.reshape(hidden, [tf.shape(hidden)[0], *layer.compute_output_shape(hidden.shape)[1:]])

    return walker.add(affine.Rearrangement(layer.name, function), position)


def _permute(walker: Walker, layer: keras.layers.Permute, position: int) -> int:
    return walker.add(affine.Rearrangement(layer.name, lambda hidden: tf.transpose(hidden, [0, *layer.dims])), position)


def _repeat_vector(walker: Walker, layer: keras.layers.RepeatVector, position: int) -> int:
    return walker.add(affine.Copies(layer.name, lambda hidden: tf.repeat(hidden[:, None], layer.n, 1)), position)


def _up_sampling(walker: Walker, layer, position: int) -> int:
    interpolation = getattr(layer, "interpolation", "nearest")
    if getattr(layer, "data_format", "channels_last") != "channels_last" or interpolation != "nearest":
        refuse(layer, "channels first, or not nearest")
    sizes = (layer.size,) if isinstance(layer.size, int) else layer.size

    def function(hidden):
        for axis, size in enumerate(sizes, 1):
            hidden = tf.repeat(hidden, size, axis)
        return hidden

    return walker.add(affine.Copies(layer.name, function), position)


def _padding(walker: Walker, layer, position: int) -> int:
    return walker.add(pad(layer.name, _margins(layer, layer.padding)), position)


def _cropping(walker: Walker, layer, position: int) -> int:
    margins = _margins(layer, layer.cropping)

    def function(hidden):
        inner = [slice(before, size - after) for (before, after), size in zip(margins, hidden.shape[1:-1], strict=True)]
        return hidden[(slice(None), *inner)]

    before = tuple(-margin[0] for margin in margins)
    return walker.add(affine.Rearrangement(layer.name, function, before), position)


def _margins(layer, margins) -> list[tuple[int, int]]:
    """Return a pair of margins by spatial axis."""
    if getattr(layer, "data_format", "channels_last") not in ("channels_last", None):
        refuse(layer, "channels first")
    return [margins] if isinstance(margins[0], int) else list(margins)


def pad(name: str, margins) -> affine.Rearrangement:
    """Return the operation that adds zeros around, (before, after) by spatial axis."""
    around = [[0, 0], *map(list, margins), [0, 0]]
    before = tuple(margin[0] for margin in around[1:-1])
    return affine.Rearrangement(name, lambda hidden: tf.pad(hidden, around), before)


def _unchanged(walker: Walker, layer, position: int) -> int:
    """Return the position: the layer does nothing in inference mode."""
    return position


def _group_sort(walker: Walker, layer: GroupSort, position: int) -> int:
    return walker.add(nonlinear.Ordering(layer.name, lambda hidden: sorted_groups(hidden, layer.size), 1), position)


def _head(walker: Walker, layer, position: int) -> int:
    if layer.normalized:
        refuse(layer, "normalized features")
    return walker.chain(layer.chain, position)


def _branched(walker: Walker, layer: BranchedBatchNormalization, position: int) -> int:
    return walker.walk(layer.norms[0], position)


def _unit(walker: Walker, unit: ConvolutionUnit, position: int) -> int:
    if unit.margins:
        position = walker.add(pad(unit.name, [[margin] * 2 for margin in unit.margins]), position)
    convolution, *following = unit.chain
    position = walker.walk(convolution, position)
    end = walker.chain(following, position)
    if unit.normalize:
        operation, normalization = walker.nodes[position - 1][0], walker.nodes[position][0]
        cast(affine.Affine, operation).folded = cast(affine.Affine, normalization)
    return end


def _residual(walker: Walker, block: ResidualBlock, position: int) -> int:
    ends = walker.chain(block.units, position), walker.chain(block.shortcut, position)
    return walker.walk(block.activation, walker.add(affine.Sum(block.name), *ends))


def _preactivation(walker: Walker, block: PreActivationBlock, position: int) -> int:
    activated = walker.chain(block.entry, position)
    begins_activated = block.shortcut == "activated" or (block.shortcut == "standard" and block.project)
    skipped = walker.chain(block.projection, activated if begins_activated else position)
    return walker.add(affine.Sum(block.name), walker.chain(block.units, activated), skipped)


_LAYERS = keras.layers
MERGERS: dict[type, Callable[[Walker, keras.Layer, list[int], set[tuple]], int]] = {
    _LAYERS.Add: _sum,
    _LAYERS.Average: _mean,
    _LAYERS.Concatenate: _concatenation,
    _LAYERS.Subtract: _difference,
}
# The operations behind + and - of symbolic tensors, by the names of their types.
ARITHMETIC = {"Add": _sum, "Subtract": _difference}
# They change images in training alone.
AUGMENTATIONS = (
    *(_LAYERS.RandomFlip, _LAYERS.RandomRotation, _LAYERS.RandomTranslation, _LAYERS.RandomZoom, _LAYERS.RandomShear),
    *(_LAYERS.RandomPerspective, _LAYERS.RandomElasticTransform, _LAYERS.RandomErasing, _LAYERS.RandomBrightness),
    *(_LAYERS.RandomContrast, _LAYERS.RandomColorDegeneration, _LAYERS.RandomColorJitter, _LAYERS.RandomGaussianBlur),
    *(_LAYERS.RandomGrayscale, _LAYERS.RandomHue, _LAYERS.RandomInvert, _LAYERS.RandomPosterization),
    *(_LAYERS.RandomSaturation, _LAYERS.RandomSharpness),
)
HANDLERS: dict[type, Callable[[Walker, keras.Layer, int], int]] = {
    _LAYERS.Dense: _dense,
    **dict.fromkeys((_LAYERS.Conv1D, _LAYERS.Conv2D, _LAYERS.Conv3D), _convolution),
    **dict.fromkeys((_LAYERS.DepthwiseConv1D, _LAYERS.DepthwiseConv2D), _depthwise),
    **dict.fromkeys((_LAYERS.SeparableConv1D, _LAYERS.SeparableConv2D), _separable),
    **dict.fromkeys((_LAYERS.Conv1DTranspose, _LAYERS.Conv2DTranspose, _LAYERS.Conv3DTranspose), _transposed),
    _LAYERS.BatchNormalization: _normalization,
    _LAYERS.LayerNormalization: _layer_normalization,
    _LAYERS.Normalization: _constant_normalization,
    _LAYERS.Rescaling: _rescaling,
    _LAYERS.Activation: _activation,
    _LAYERS.ReLU: _relu,
    _LAYERS.LeakyReLU: _leaky_relu,
    _LAYERS.PReLU: _prelu,
    _LAYERS.ELU: _elu,
    _LAYERS.Softmax: _softmax,
    **dict.fromkeys((_LAYERS.MaxPooling1D, _LAYERS.MaxPooling2D, _LAYERS.MaxPooling3D), _pooling),
    **dict.fromkeys((_LAYERS.AveragePooling1D, _LAYERS.AveragePooling2D, _LAYERS.AveragePooling3D), _pooling),
    **dict.fromkeys((_LAYERS.GlobalAveragePooling1D, _LAYERS.GlobalMaxPooling1D), _global_pooling),
    **dict.fromkeys((_LAYERS.GlobalAveragePooling2D, _LAYERS.GlobalMaxPooling2D), _global_pooling),
    **dict.fromkeys((_LAYERS.GlobalAveragePooling3D, _LAYERS.GlobalMaxPooling3D), _global_pooling),
    SymmetricMaxPooling: _symmetric_pooling,
    _LAYERS.Flatten: _flatten,
    _LAYERS.Reshape: _reshape,
    _LAYERS.Permute: _permute,
    _LAYERS.RepeatVector: _repeat_vector,
    **dict.fromkeys((_LAYERS.UpSampling1D, _LAYERS.UpSampling2D, _LAYERS.UpSampling3D), _up_sampling),
    **dict.fromkeys((_LAYERS.ZeroPadding1D, _LAYERS.ZeroPadding2D, _LAYERS.ZeroPadding3D), _padding),
    **dict.fromkeys((_LAYERS.Cropping1D, _LAYERS.Cropping2D, _LAYERS.Cropping3D), _cropping),
    **dict.fromkeys((_LAYERS.InputLayer, _LAYERS.Identity, _LAYERS.ActivityRegularization), _unchanged),
    **dict.fromkeys((_LAYERS.Dropout, _LAYERS.AlphaDropout, _LAYERS.GaussianDropout), _unchanged),
    **dict.fromkeys((_LAYERS.SpatialDropout1D, _LAYERS.SpatialDropout2D, _LAYERS.SpatialDropout3D), _unchanged),
    **dict.fromkeys((_LAYERS.GaussianNoise, CountedDropout, DropPath, *AUGMENTATIONS), _unchanged),
    # Divides its kernel when it is trained.
    _LAYERS.SpectralNormalization: lambda walker, layer, position: walker.walk(layer.layer, position),
    **dict.fromkeys((LinearHead, LinearProjection, MLPHead, MLPProjection), _head),
    BranchedBatchNormalization: _branched,
    GroupSort: _group_sort,
    BranchedModels: lambda walker, layer, position: walker.walk(layer.models[0], position),
    ConvolutionUnit: _unit,
    ResidualBlock: _residual,
    PreActivationBlock: _preactivation,
}
