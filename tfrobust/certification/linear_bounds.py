"""Linear bounds (CROWN): a linear function of the output is bounded by linear functions of each layer before it."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tfrobust.certification.affine import Affine, Concatenation, Sum
from tfrobust.certification.balls import NormBall
from tfrobust.certification.network import Network
from tfrobust.certification.operations import SOUND, Arithmetic, Box, concretize

SLOPES = ("adaptive", "zero", "same")
# Operations that a bound without slopes passes; at all others it stops.
LINEAR = (Affine, Concatenation, Sum, NormBall)


class Relaxation(NamedTuple):
    """The free choices of a linear bound.

    Attributes:
        slopes: slope of the lower line, by position of a ReLU, [b, s, ...]; each is cut to where the line stays below.
        tilts: coefficients that a constraint adds, by position, [b, s, ...]: for sign z >= 0 and a multiplier >= 0,
            the multiplier times -sign, because f >= f - multiplier sign z.
        coefficients: filled in by the bound: the coefficients on each value that the pass met.
    """

    slopes: dict[int, tf.Tensor]
    tilts: dict[int, tf.Tensor]
    coefficients: dict[int, tf.Tensor]


def margin_coefficients(labels: tf.Tensor, classes: int, dtype: tf.DType) -> tf.Tensor:
    """Return the coefficients of the margins, [b, k, k]: row j is e_label - e_j.

    Args:
        labels: int32 [b].
        classes: k.
        dtype: of the result.
    """
    return tf.one_hot(labels, classes, dtype=dtype)[:, None] - tf.eye(classes, dtype=dtype)


def reached(network: Network, position: int) -> set[int]:
    """Return the positions that a pass from a position comes to before it stops: that position, and its sources."""
    positions = {position}
    for current in range(position, 0, -1):
        operation, inputs = network.nodes[current - 1]
        if current in positions and not operation.stops:
            positions.update(inputs)
    return positions


def lower_bounds(
    network: Network,
    boxes: list[Box],
    coefficients: tf.Tensor,
    arithmetic: Arithmetic = SOUND,
    *,
    slope: str | None = "adaptive",
    position: int | None = None,
    relaxation: Relaxation | None = None,
) -> tf.Tensor:
    """Bound linear functions of a network's values from below, by one pass from these values to the image.

    Where a value is used twice, as in residual networks, its coefficients add up.

    Args:
        network: the network.
        boxes: a box per position, such as those of `intervals.propagate` (then the bounds are those of CROWN-IBP).
        coefficients: [b, s, ...], s functions of the value at `position`.
        arithmetic: how bounds are computed.
        slope: lower line of an unstable ReLU: "adaptive", "zero" or "same" (`nonlinear.ReLU.backward`). None stops at
            the last operations that are not affine, which are bounded by their boxes.
        position: the value's position; None: the output.
        relaxation: slopes of single ReLUs, and multipliers of constraints; both loosen or tighten the bound, and none
            makes it wrong.

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
        coefficients = waiting.pop(current)
        line = slope
        if relaxation is not None:
            line = relaxation.slopes.get(current, slope)
            coefficients = coefficients + relaxation.tilts.get(current, 0.0)
            relaxation.coefficients[current] = coefficients
        parts, constant = operation.backward(coefficients, input_boxes, boxes[current], arithmetic, line)
        bound += constant
        for source, part in zip(inputs, parts, strict=False):
            waiting[source] = waiting[source] + part if source in waiting else part
    if waiting and relaxation is not None:
        relaxation.coefficients[0] = waiting[0]
    return bound + concretize(waiting[0], boxes[0], arithmetic) if waiting else bound
