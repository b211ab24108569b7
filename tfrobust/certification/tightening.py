"""Tighter boxes of hidden values: each value is bounded by a linear pass of its own, if wished with the best slopes."""

from __future__ import annotations

import math
from typing import NamedTuple

import tensorflow as tf

from tfrobust.certification import linear_bounds, slopes, windows
from tfrobust.certification.affine import Affine
from tfrobust.certification.network import Network
from tfrobust.certification.nonlinear import ReLU
from tfrobust.certification.operations import SOUND, Arithmetic, Box

# Coefficients of one backward pass: 64 MiB in float64.
_COEFFICIENTS = 2**23


class _Way(NamedTuple):
    """The arithmetic, slope and ascent by which values are bounded."""

    arithmetic: Arithmetic
    slope: str
    steps: int

    def bounds(self, network: Network, boxes: list[Box], coefficients: tf.Tensor, position: int) -> tf.Tensor:
        """Return lower bounds [b, s] of linear functions [b or 1, s, ...] of the values at a position."""
        bounds = linear_bounds.lower_bounds(
            network, boxes, coefficients, self.arithmetic, slope=self.slope, position=position
        )
        if not self.steps:
            return bounds
        return tf.maximum(
            bounds, slopes.best_bounds(network, boxes, coefficients, self.steps, self.arithmetic, position)
        )


def tightened(
    network: Network,
    boxes: list[Box],
    arithmetic: Arithmetic = SOUND,
    *,
    slope: str = "adaptive",
    steps: int = 0,
    first_only: bool = False,
) -> list[Box]:
    """Tighten the boxes before each activation by the bounds of a pass of their own (full CROWN).

    A ReLU needs new bounds only where its input may have both signs, and those of a map are computed on windows
    (`windows`), if that takes fewer coefficients. Values that are one affine map of the pixels keep their intervals,
    which are exact in L∞; in other norms they have bounds by the dual norm.

    Args:
        network: the network.
        boxes: of `intervals.propagate`.
        arithmetic: how bounds are computed.
        slope: as in `linear_bounds.lower_bounds`.
        steps: of the ascent of each bound on its slopes (`slopes.ascend`), besides the bound without.
        first_only: tighten affine maps of the pixels alone; all else by intervals.

    Returns:
        A box per position, each inside the given one.
    """
    boxes, first, way = list(boxes), affine_maps(network), _Way(arithmetic, slope, steps)
    exact = first if network.ball is None else set()
    for position, (operation, inputs) in enumerate(network.nodes, 1):
        if isinstance(operation, linear_bounds.LINEAR) or inputs[0] in exact:
            pass
        elif not first_only or inputs[0] in first:
            signs = isinstance(operation, ReLU) and not first_only
            boxes[inputs[0]] = _bounded(network, boxes, inputs[0], way, signs)
        boxes[position] = _intersection(
            boxes[position], operation.box([boxes[source] for source in inputs], arithmetic)
        )
    return boxes


def affine_maps(network: Network) -> set[int]:
    """Return the positions whose values are affine functions of the pixels by one operation that mixes values.

    In L∞ their interval is the range of the values, up to rounding, so no other bound is tighter.
    """
    mixings = {0: 0} if network.ball is None else {0: 0, 1: 0}
    for position, (operation, inputs) in enumerate(network.nodes, 1):
        if isinstance(operation, Affine) and all(source in mixings for source in inputs):
            mixings[position] = mixings[inputs[0]] + operation.mixes
    return {position for position, count in mixings.items() if count <= 1}


def _bounded(network: Network, boxes: list[Box], position: int, way: _Way, signs: bool) -> Box:
    """Return a tighter box at a position.

    Args:
        network: the network.
        boxes: a box per position.
        position: of the values.
        way: how each value is bounded.
        signs: True if bounds of values of known sign may stay: a ReLU is exact on them.
    """
    box = boxes[position]
    loose = (box.lower < 0) & (box.upper > 0) if signs else tf.ones_like(box.lower, tf.bool)
    count = int(tf.reduce_max(tf.reduce_sum(tf.cast(_flat(loose), tf.int32), 1)))
    if not count:
        return box
    areas = windows.regions(network, boxes, position)
    by_value = count * sum(math.prod(boxes[current].lower.shape[1:]) for current in areas or ())
    if areas and windows.coefficient_count(areas, boxes) * box.lower.shape[-1] < by_value:
        bounds = _bounds_by_window(network, boxes, areas, way)
    else:
        bounds = _bounds_by_value(network, boxes, position, _flat(loose), count, way)
    ends = (tf.where(loose, new, old) for new, old in zip(bounds, box, strict=True))
    return _intersection(box, Box(*ends))


def _bounds_by_window(network: Network, boxes: list[Box], areas: dict, way: _Way) -> Box:
    """Bound all values of a map."""
    shape = boxes[max(areas)].lower.shape
    network, boxes = windows.small_network(network, boxes, areas)
    rows = tf.eye(shape[-1], dtype=way.arithmetic.dtype)
    rows = tf.reshape(rows, [1, shape[-1], *[1] * (shape.rank - 2), shape[-1]])
    return Box(*(tf.reshape(end, shape) for end in _ends(network, boxes, rows, len(network.nodes), way)))


def _bounds_by_value(network: Network, boxes: list[Box], position: int, loose: tf.Tensor, count: int, way: _Way) -> Box:
    """Bound the loose values, bool [b, n], of which an example has at most `count`; others have no bound."""
    shape = boxes[position].lower.shape
    _, values = tf.math.top_k(tf.cast(loose, tf.int32), count, sorted=False)
    rows = tf.reshape(tf.one_hot(values, loose.shape[1], dtype=way.arithmetic.dtype), [shape[0], count, *shape[1:]])
    ends = _ends(network, boxes, rows, position, way)
    examples = tf.repeat(tf.range(shape[0])[:, None], count, 1)
    indices = tf.stack([examples, values], -1)
    unbounded = (tf.fill(loose.shape, tf.constant(sign * math.inf, way.arithmetic.dtype)) for sign in (-1, 1))
    return Box(
        *(
            tf.reshape(tf.tensor_scatter_nd_update(empty, indices, end), shape)
            for empty, end in zip(unbounded, ends, strict=True)
        )
    )


def _ends(network: Network, boxes: list[Box], rows: tf.Tensor, position: int, way: _Way) -> list[tf.Tensor]:
    """Return lower and upper bounds of linear functions [b or 1, s, ...] of the values at a position, two [b, s]."""
    largest = max(math.prod(box.lower.shape) for box in boxes)
    count = max(1, _COEFFICIENTS // (2 * largest))
    ends = []
    for start in range(0, rows.shape[1], count):
        chosen = rows[:, start : start + count]
        lower, negated = tf.split(way.bounds(network, boxes, tf.concat([chosen, -chosen], 1), position), 2, axis=1)
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
