"""Linear bounds (CROWN): a linear function of the output is bounded by linear functions of each layer before it."""

from __future__ import annotations

import math

import tensorflow as tf

from tfrobust.certification import windows
from tfrobust.certification.network import Network
from tfrobust.certification.operations import SOUND, Affine, Arithmetic, Box, ReLU, Sum, concretize

SLOPES = ("adaptive", "zero", "same")
# Operations that a bound without slopes passes; at all others it stops.
LINEAR = (Affine, Sum)
# Coefficients of one backward pass of `tightened`: 64 MiB in float64.
_COEFFICIENTS = 2**23


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

    A ReLU needs new bounds only where its input may have both signs, and those of a map are computed on windows
    (`windows`), if that takes fewer coefficients. Values that are one affine map of the pixels keep their intervals.

    Args:
        network: the network.
        boxes: of `intervals.propagate`.
        arithmetic: how bounds are computed.
        slope: as in `lower_bounds`.

    Returns:
        A box per position, each inside the given one.
    """
    boxes, exact = [boxes[0], *boxes[1:]], _exact(network)
    for position, (operation, inputs) in enumerate(network.nodes, 1):
        if not isinstance(operation, LINEAR) and inputs[0] not in exact:
            boxes[inputs[0]] = _bounded(network, boxes, inputs[0], arithmetic, slope, isinstance(operation, ReLU))
        boxes[position] = _intersection(
            boxes[position], operation.box([boxes[source] for source in inputs], arithmetic)
        )
    return boxes


def _exact(network: Network) -> set[int]:
    """Return the positions whose values are affine functions of the pixels by one operation that mixes values.

    Their interval is the range of the values, up to rounding, so no other bound is tighter.
    """
    mixings = {0: 0}
    for position, (operation, inputs) in enumerate(network.nodes, 1):
        if isinstance(operation, Affine) and all(source in mixings for source in inputs):
            mixings[position] = mixings[inputs[0]] + (operation.summands != 0 and not operation.elementwise)
    return {position for position, count in mixings.items() if count <= 1}


def _bounded(network: Network, boxes: list[Box], position: int, arithmetic: Arithmetic, slope: str, signs: bool) -> Box:
    """Return a tighter box at a position.

    Args:
        network: the network.
        boxes: a box per position.
        position: of the values.
        arithmetic: how bounds are computed.
        slope: as in `lower_bounds`.
        signs: True if bounds of values of known sign may stay: a ReLU is exact on them.
    """
    box = boxes[position]
    loose = (box.lower < 0) & (box.upper > 0) if signs else tf.ones_like(box.lower, tf.bool)
    count = int(tf.reduce_max(tf.reduce_sum(tf.cast(_flat(loose), tf.int32), 1)))
    if not count:
        return box
    areas = windows.regions(network, boxes, position)
    whole = count * sum(math.prod(boxes[current].lower.shape[1:]) for current in areas or ())
    if areas and windows.coefficient_count(areas, boxes) * box.lower.shape[-1] < whole:
        bounds = _bounds_by_window(network, boxes, areas, arithmetic, slope)
    else:
        bounds = _bounds_by_value(network, boxes, position, _flat(loose), count, arithmetic, slope)
    ends = (tf.where(loose, new, old) for new, old in zip(bounds, box, strict=True))
    return _intersection(box, Box(*ends))


def _bounds_by_window(network: Network, boxes: list[Box], areas: dict, arithmetic: Arithmetic, slope: str) -> Box:
    """Bound all values of a map."""
    shape = boxes[max(areas)].lower.shape
    network, boxes = windows.small_network(network, boxes, areas)
    rows = tf.eye(shape[-1], dtype=arithmetic.dtype)
    rows = tf.reshape(rows, [1, shape[-1], *[1] * (shape.rank - 2), shape[-1]])
    return Box(*(tf.reshape(end, shape) for end in _ends(network, boxes, rows, len(network.nodes), arithmetic, slope)))


def _bounds_by_value(
    network: Network, boxes: list[Box], position: int, loose: tf.Tensor, count: int, arithmetic: Arithmetic, slope: str
) -> Box:
    """Bound the loose values, bool [b, n], of which an example has at most `count`; others have no bound."""
    shape = boxes[position].lower.shape
    _, values = tf.math.top_k(tf.cast(loose, tf.int32), count, sorted=False)
    rows = tf.reshape(tf.one_hot(values, loose.shape[1], dtype=arithmetic.dtype), [shape[0], count, *shape[1:]])
    ends = _ends(network, boxes, rows, position, arithmetic, slope)
    examples = tf.repeat(tf.range(shape[0])[:, None], count, 1)
    indices = tf.stack([examples, values], -1)
    unbounded = (tf.fill(loose.shape, tf.constant(sign * math.inf, arithmetic.dtype)) for sign in (-1, 1))
    return Box(
        *(
            tf.reshape(tf.tensor_scatter_nd_update(whole, indices, end), shape)
            for whole, end in zip(unbounded, ends, strict=True)
        )
    )


def _ends(network: Network, boxes: list[Box], rows, position: int, arithmetic: Arithmetic, slope: str) -> list:
    """Return lower and upper bounds of linear functions [b or 1, s, ...] of the values at a position, two [b, s]."""
    largest = max(math.prod(box.lower.shape) for box in boxes)
    step = max(1, _COEFFICIENTS // (2 * largest))
    ends = []
    for start in range(0, rows.shape[1], step):
        chosen = rows[:, start : start + step]
        both = tf.concat([chosen, -chosen], 1)
        lower, negated = tf.split(
            lower_bounds(network, boxes, both, arithmetic, slope=slope, position=position), 2, axis=1
        )
        ends.append((lower, -negated))
    return [tf.concat(parts, 1) for parts in zip(*ends, strict=True)]


def _flat(values: tf.Tensor) -> tf.Tensor:
    return tf.reshape(values, [values.shape[0], -1])


def _intersection(first: Box, second: Box) -> Box:
    """Return the intersection; ends of the second box that are not finite do not count."""
    lower, upper = (
        tf.where(tf.math.is_finite(end), end, fallback) for end, fallback in zip(second, first, strict=True)
    )
    return Box(tf.maximum(first.lower, lower), tf.minimum(first.upper, upper))
