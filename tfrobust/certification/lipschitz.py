"""Margins by Lipschitz constants in L2, for networks whose layers have small ones by construction.

A network that changes its penultimate values by at most c |d| for a perturbation d changes the margin of the classes i
and j by at most c |w_i - w_j| |d|. That is at most sqrt(2) times the Lipschitz constant of the whole network. The
constant is the product of those of the layers, each an upper bound:

    dense             largest singular value, and a margin for its rounding
    convolution       largest singular value of the kernel's Fourier transform on a grid of frequencies, and a factor
                      for the frequencies between: a trigonometric polynomial of degree n that is at most 1 on a grid of
                      N > 2 n points is at most 1 / cos(pi n / N) everywhere (M. Riesz). Zeros around a map embed it in
                      a larger one, and strides drop places, so that neither adds to the norm
    other affine ones the root of largest row sum times largest column sum
    activations       1, the largest slope of those that are covered
    maxima, sorting   the root of the number of windows that a value lies in

The distance of the network in float32 from the exact one grows layer by layer: by the layer's constant, and by its own
rounding, which depends on the size of the values in the ball.
"""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from tfrobust.certification.affine import (
    Affine,
    Concatenation,
    Convolution,
    Dense,
    DepthwiseConvolution,
    Sum,
    TransposedConvolution,
)
from tfrobust.certification.balls import NormBall
from tfrobust.certification.handlers import NoBoundsError
from tfrobust.certification.network import Network
from tfrobust.certification.nonlinear import Curve, Ordering, ReLU
from tfrobust.certification.operations import SOUND, Arithmetic, Box, Operation

_EXACT = Arithmetic(tf.float64, 0.0)
# Points of the grid of frequencies for each degree of the squared kernel.
_GRID = 16
# Relative error of sums, transforms and singular values in float64, far above n 2^-53.
_RELATIVE_ERROR = 2.0**-30


def norms(network: Network, image_shape: tuple[int, ...]) -> list[list[float]]:
    """Return an upper bound of the spectral norm of each operation, for each of its inputs.

    Raises:
        NoBoundsError: a layer without a Lipschitz constant, by name.
    """
    values, result = [tf.zeros([1, *image_shape], tf.float64)], []
    for operation, inputs in network.nodes:
        result.append(_norms(operation, [values[source].shape[1:] for source in inputs]))
        values.append(operation.value([values[source] for source in inputs], _EXACT))
    return result


def margins(
    network: Network, norms: list[list[float]], images: np.ndarray, labels: np.ndarray, radius: float
) -> tf.Tensor:
    """Return lower bounds of the margins within an L2 ball, float64 [b, k]; -inf where float32 is out of range.

    Args:
        network: the network.
        norms: of its operations.
        images: float64 [b, ...].
        labels: int32 [b].
        radius: of the balls.
    """
    values, constants, errors = [tf.constant(images)], [1.0], [tf.zeros([len(images)], tf.float64)]
    in_range = tf.ones([len(images)], tf.bool)
    for (operation, inputs), factors in zip(network.nodes, norms, strict=True):
        boxes = [_box(values[source], constants[source] * radius + errors[source]) for source in inputs]
        values.append(operation.value([values[source] for source in inputs], _EXACT))
        constants.append(_joined(operation, factors, [constants[source] for source in inputs]))
        error = _joined(operation, factors, [errors[source] for source in inputs])
        errors.append((error + _rounding(operation, boxes)) * (1 + _RELATIVE_ERROR))
        in_range &= operation.in_range(boxes, operation.box(boxes, SOUND), SOUND)
    last, rows = _last_rows(network, values)
    distances = tf.norm(rows[:, None] - rows, axis=-1) + _RELATIVE_ERROR * tf.norm(rows)
    reach = tf.gather(distances, labels) * (constants[last] * radius * (1 + _RELATIVE_ERROR))
    logits = values[-1]
    bounds = tf.gather(logits, labels, batch_dims=1)[:, None] - logits - reach - math.sqrt(2) * errors[-1][:, None]
    bounds -= _RELATIVE_ERROR * tf.reduce_max(tf.abs(logits), -1, keepdims=True)
    return tf.where(in_range[:, None], bounds, -math.inf)


def _box(value: tf.Tensor, radius) -> Box:
    """Return the box around values [b, ...] of radii [b]."""
    radius = tf.reshape(radius, [-1] + [1] * (value.shape.rank - 1))
    return Box(value - radius, value + radius)


def _last_rows(network: Network, values: list[tf.Tensor]) -> tuple[int, tf.Tensor]:
    """Return the position from which on the network is one affine map, and the rows of that map, [k, n]."""
    last, classes = len(network.nodes), values[-1].shape[-1]
    rows = tf.eye(classes, dtype=tf.float64)[None]
    while last:
        operation, (source, *_) = network.nodes[last - 1]
        if not isinstance(operation, Affine):
            break
        rows, last = operation.transposed(rows, Box(values[source], values[source]), _EXACT), source
    return last, tf.reshape(rows, [classes, -1])


def _joined(operation: Operation, factors: list[float], parts: list):
    """Return what an operation with these norms makes of the distances of its inputs."""
    products = [factor * part for factor, part in zip(factors, parts, strict=True)]
    if isinstance(operation, Concatenation):
        return sum(product**2 for product in products) ** 0.5
    return sum(products)


def _rounding(operation: Operation, boxes: list[Box]) -> tf.Tensor:
    """Return a bound of the rounding of an operation for inputs in boxes, the L2 norm over its outputs, [b]."""
    if isinstance(operation, Affine):
        error = operation.error(boxes[0], SOUND)
    else:  # how much wider the box is than without rounding
        wide, exact = (operation.box(boxes, arithmetic) for arithmetic in (SOUND, _EXACT))
        error = tf.maximum(wide.upper - exact.upper, exact.lower - wide.lower)
    examples = boxes[0].lower.shape[0]
    error += tf.zeros([examples, *error.shape[1:]], tf.float64)
    return tf.norm(tf.reshape(error, [examples, -1]), axis=-1)


def _norms(operation: Operation, shapes: list[tuple[int, ...]]) -> list[float]:
    if isinstance(operation, (Sum, Concatenation, ReLU, Curve, NormBall)):
        return [1.0] * len(shapes)
    if isinstance(operation, Ordering) and operation.windows:
        return [math.sqrt(operation.windows)]
    if isinstance(operation, Affine):
        return [spectral_norm(operation, shapes[0])]
    raise NoBoundsError(f"the layer {operation.name} has no Lipschitz constant")


def spectral_norm(operation: Affine, shape: tuple[int, ...]) -> float:
    """Return an upper bound of the spectral norm of an affine operation on inputs of a shape; inf for NaN."""
    if isinstance(operation, Dense) and not np.isfinite(operation.kernel.numpy()).all():
        return math.inf
    if isinstance(operation, Convolution):
        return _of_convolution(operation)
    if isinstance(operation, TransposedConvolution):
        kernel = operation.kernel.numpy().astype(np.float64)
        return _of_kernel(kernel, operation.geometry.strides)
    ones = tf.ones([1, *shape], tf.float64)
    if isinstance(operation, Dense):
        kernel = operation.kernel.numpy().astype(np.float64)
        norm = np.linalg.norm(kernel.reshape(-1, kernel.shape[-1]), 2)
    elif operation.elementwise:
        norm = float(tf.reduce_max(operation.linear(ones, _EXACT, absolute=True)))
    else:
        output = operation.linear(ones, _EXACT, absolute=True)
        columns = operation.transposed(tf.ones([1, 1, *output.shape[1:]], tf.float64), Box(ones, ones), _EXACT)
        norm = math.sqrt(float(tf.reduce_max(output)) * float(tf.reduce_max(columns)))
    return norm * (1 + _RELATIVE_ERROR)


def _of_convolution(operation: Convolution) -> float:
    """Return the largest norm of a group of channels, since groups do not mix."""
    kernel = operation.kernel.numpy().astype(np.float64)
    if isinstance(operation, DepthwiseConvolution):
        parts = np.split(kernel, kernel.shape[-2], -2)
    else:
        parts = np.split(kernel, operation.groups, -1)
    return max(_of_kernel(part, operation.geometry.strides) for part in parts)


def _of_kernel(kernel: np.ndarray, strides: tuple[int, ...]) -> float:
    """Return an upper bound of the norm of a convolution by a kernel [*sizes, inputs, outputs] on unbounded maps.

    With a stride, the places of a map that fall on one place of the output become channels. Dilated kernels act on
    parts of the map that do not touch, each as without dilation.
    """
    axes = len(strides)
    counts = [-(-size // stride) for size, stride in zip(kernel.shape, strides, strict=False)]
    margins = [(0, count * stride - size) for count, stride, size in zip(counts, strides, kernel.shape, strict=False)]
    kernel = np.pad(kernel, [*margins, (0, 0), (0, 0)])
    kernel = kernel.reshape(
        [part for pair in zip(counts, strides, strict=True) for part in pair] + [*kernel.shape[axes:]]
    )
    order = [*range(0, 2 * axes, 2), *range(1, 2 * axes, 2), 2 * axes, 2 * axes + 1]
    kernel = kernel.transpose(order).reshape(*counts, -1, kernel.shape[-1])
    grid = [max(1, _GRID * (count - 1)) for count in counts]
    transform = np.fft.fftn(kernel, grid, axes=range(axes))
    if transform.shape[-2] < transform.shape[-1]:
        transform = transform.swapaxes(-1, -2)
    squares = np.linalg.eigvalsh(transform.conj().swapaxes(-1, -2) @ transform)[..., -1].max()
    between = math.prod(math.cos(math.pi * (count - 1) / size) for count, size in zip(counts, grid, strict=True))
    return math.sqrt(max(squares, 0.0) / between) * (1 + _RELATIVE_ERROR)
