"""Linear bounds (CROWN): a linear function of the output is bounded by linear functions of each layer before it."""

from __future__ import annotations

import tensorflow as tf

from tfrobust.certification.network import Network
from tfrobust.certification.operations import SOUND, Affine, Arithmetic, Box, Sum, concretize

SLOPES = ("adaptive", "zero", "same")
# Operations that a bound without slopes passes; at all others it stops.
LINEAR = (Affine, Sum)


def margin_coefficients(labels: tf.Tensor, classes: int, dtype: tf.DType) -> tf.Tensor:
    """Return the coefficients of the margins, [b, k, k]: row j is e_label - e_j.

    Args:
        labels: int32 [b].
        classes: k.
        dtype: of the result.
    """
    return tf.one_hot(labels, classes, dtype=dtype)[:, None] - tf.eye(classes, dtype=dtype)


def lower_bounds(
    network: Network,
    boxes: list[Box],
    coefficients: tf.Tensor,
    arithmetic: Arithmetic = SOUND,
    *,
    slope: str | None = "adaptive",
    position: int | None = None,
) -> tf.Tensor:
    """Bound linear functions of a network's values from below, by one pass from these values to the image.

    Where a value is used twice, as in residual networks, its coefficients add up.

    Args:
        network: the network.
        boxes: a box per position, such as those of `intervals.propagate` (then the bounds are those of CROWN-IBP).
        coefficients: [b, s, ...], s functions of the value at `position`.
        arithmetic: how bounds are computed.
        slope: lower line of an unstable ReLU: "adaptive", "zero" or "same" (`operations.ReLU.backward`). None stops at
            the last operations that are not affine, which are bounded by their boxes.
        position: the value's position; None: the output.

    Returns:
        [b, s].

    Source: Zhang et al. 2018, https://arxiv.org/abs/1811.00866, theorem 3.2; Zhang et al. 2020,
        https://arxiv.org/abs/1906.06316, section 4.
    """
    position = len(network.nodes) if position is None else position
    waiting, bound = {position: coefficients}, 0.0
    for current in range(position, 0, -1):
        if current not in waiting:
            continue
        operation, inputs = network.nodes[current - 1]
        input_boxes = [boxes[source] for source in inputs]
        parts, constant = operation.backward(waiting.pop(current), input_boxes, boxes[current], arithmetic, slope)
        bound += constant
        for source, part in zip(inputs, parts, strict=False):
            waiting[source] = waiting[source] + part if source in waiting else part
    return bound + concretize(waiting[0], boxes[0], arithmetic) if waiting else bound


def tightened(
    network: Network, boxes: list[Box], arithmetic: Arithmetic = SOUND, *, slope: str = "adaptive"
) -> list[Box]:
    """Tighten the boxes before each activation by the bounds of a pass of their own (full CROWN).

    The cost is that of one pass per hidden value.

    Args:
        network: the network.
        boxes: of `intervals.propagate`.
        arithmetic: how bounds are computed.
        slope: as in `lower_bounds`.

    Returns:
        A box per position, each inside the given one.
    """
    boxes = [boxes[0], *boxes[1:]]
    for position, (operation, inputs) in enumerate(network.nodes, 1):
        if not isinstance(operation, LINEAR):
            (before,) = inputs
            boxes[before] = _bounded(network, boxes, before, arithmetic, slope)
        boxes[position] = _intersection(
            boxes[position], operation.box([boxes[source] for source in inputs], arithmetic)
        )
    return boxes


def _bounded(network: Network, boxes: list[Box], position: int, arithmetic: Arithmetic, slope: str) -> Box:
    lower = boxes[position].lower
    count = int(tf.size(lower[0]))
    rows = tf.reshape(tf.eye(count, dtype=arithmetic.dtype), [1, count, *lower.shape[1:]])
    rows = tf.repeat(rows, tf.shape(lower)[0], axis=0)
    ends = [
        sign * lower_bounds(network, boxes, sign * rows, arithmetic, slope=slope, position=position)
        for sign in (1.0, -1.0)
    ]
    return _intersection(boxes[position], Box(*(tf.reshape(end, tf.shape(lower)) for end in ends)))


def _intersection(first: Box, second: Box) -> Box:
    """Return the intersection; ends of the second box that are not finite do not count."""
    lower, upper = (
        tf.where(tf.math.is_finite(end), end, fallback) for end, fallback in zip(second, first, strict=True)
    )
    return Box(tf.maximum(first.lower, lower), tf.minimum(first.upper, upper))
