"""The number of multiply-adds that bounds take, so that a method can be chosen without a clock."""

from __future__ import annotations

import math

import tensorflow as tf

from tfrobust.certification import intervals, linear_bounds, windows
from tfrobust.certification.affine import Affine
from tfrobust.certification.network import Network
from tfrobust.certification.operations import Arithmetic, Box
from tfrobust.certification.tightening import affine_maps

# Passes of "alpha_crown" over one of "crown": steps of an ascent, each there and back.
_ASCENT = 32
# Of "ibp": a product with a center and one with a radius, and their margins for rounding.
_INTERVALS = 4


def products(network: Network, image_shape: tuple[int, ...], method: str, norm: str = "linf") -> int:
    """Return how many multiply-adds the bounds of an image take at most, if no ReLU has a known sign.

    Args:
        network: the network.
        image_shape: of an image.
        method: as in `certify.certified_margins`, but "complete", which takes as long as it may.
        norm: of the ball.

    Returns:
        The number, which depends on the shapes of the network alone.
    """
    network = network if norm == "linf" else network.in_ball(norm, 1.0, (0.0, 1.0))
    point = tf.zeros([1, *image_shape])
    boxes = intervals.propagate(network, Box(point, point), Arithmetic(tf.float32, 0.0))
    one_pass = _pass(network, boxes, len(network.nodes))
    count = _INTERVALS * one_pass
    if method != "ibp":
        count += boxes[-1].lower.shape[-1] * one_pass
    if method in ("crown", "alpha_crown"):
        count += sum(_of_values(network, boxes, position) for position in _bounded_positions(network))
        count += boxes[-1].lower.shape[-1] * one_pass
    return count * (_ASCENT if method == "alpha_crown" else 1)


def _bounded_positions(network: Network) -> set[int]:
    """Return the positions of which `tightening.tightened` bounds each value."""
    exact = affine_maps(network) if network.ball is None else ()
    return {
        inputs[0]
        for operation, inputs in network.nodes
        if not isinstance(operation, linear_bounds.LINEAR) and inputs[0] not in exact
    }


def _of_values(network: Network, boxes: list[Box], position: int) -> int:
    """Return the multiply-adds of both bounds of all values at a position."""
    values = math.prod(boxes[position].lower.shape[1:])
    count = values * _pass(network, boxes, position)
    areas = windows.regions(network, boxes, position)
    if areas:
        channels = boxes[position].lower.shape[-1]
        by_window = sum(
            math.prod(area.places) * math.prod(area.window.size) * _by_place(network, boxes, current)
            for current, area in areas.items()
        )
        count = min(count, channels * by_window)
    return 2 * count


def _pass(network: Network, boxes: list[Box], position: int) -> int:
    """Return the multiply-adds of one linear function on its way from a position to the image, or to where it stops."""
    return sum(
        math.prod(boxes[current].lower.shape[1:-1]) * _by_place(network, boxes, current)
        for current in linear_bounds.reached(network, position) - {0}
    )


def _by_place(network: Network, boxes: list[Box], position: int) -> int:
    """Return the multiply-adds of a linear function for one place of the map at a position."""
    operation = network.nodes[position - 1][0] if position else None
    summands = (operation.summands or 1) if isinstance(operation, Affine) else 1
    return boxes[position].lower.shape[-1] * summands
