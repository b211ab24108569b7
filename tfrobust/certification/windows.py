"""The part of a network that the values of a map depend on, as a small network of windows.

A value of a convolution's output depends on few places of its input, so the coefficients of its linear bound are zero
everywhere else. They are kept for these places alone: each place of the map is an example of a small network, whose
inputs are windows that are cut out of the maps of the large one.

    a map [b, h, w, c]               examples b h w, with the c values of a place as outputs
      window at the place (i, j):    rows stride i + start, ..., stride i + start + size - 1, and columns alike
      box of a window                cut out of the map's box; 0 outside the map, where a convolution pads

In the small network a convolution pads nothing. What lies outside a map counts as 0 after each operation, because
padding is 0 whatever the image.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfrobust.certification.network import Network
from tfrobust.certification.operations import Box, Operation, Window


class Region(NamedTuple):
    """The windows of a map for all places of another.

    Attributes:
        window: for the place i of the other.
        places: of the other, by spatial axis.
        extent: of the map.
    """

    window: Window
    places: tuple[int, ...]
    extent: tuple[int, ...]

    def indices(self, axis: int) -> np.ndarray:
        """Return the indices of the map along a spatial axis, int [places, size], some of them outside the map."""
        first = self.window.stride[axis] * np.arange(self.places[axis]) + self.window.start[axis]
        return first[:, None] + np.arange(self.window.size[axis])

    def inside(self) -> np.ndarray:
        """Return which values of the windows lie in the map, bool [places, *size, 1]."""
        inside = np.ones((1,), bool)
        for axis, extent in enumerate(self.extent):
            indices = self.indices(axis)
            inside = inside[..., None, None] & (indices >= 0) & (indices < extent)
        return _by_place(tf.constant(inside[..., None]), len(self.places)).numpy()

    def cut(self, values: tf.Tensor, inside: np.ndarray) -> tf.Tensor:
        """Return the windows of a map [b, ..., c], [b x places, *size, c], with 0 outside the map."""
        examples = values.shape[0]
        for axis, extent in enumerate(self.extent):
            values = tf.gather(values, np.clip(self.indices(axis), 0, extent - 1), axis=1 + 2 * axis)
        values = _by_place(values, len(self.places))
        return (
            values
            if inside.all()
            else values * tf.cast(np.tile(inside, [examples, *[1] * (values.shape.rank - 1)]), values.dtype)
        )


def _by_place(values: tf.Tensor, axes: int) -> tf.Tensor:
    """Return [b x places, sizes, c] of [b, place, size, place, size, ..., c]."""
    values = tf.transpose(values, [0, *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2), 2 * axes + 1])
    return tf.reshape(values, [-1, *values.shape[1 + axes :]])


class Mask(Operation):
    """Zeros outside a map: values [b x places, ...] times a constant [places, ..., 1]."""

    def __init__(self, name: str, inside: np.ndarray):
        super().__init__(name)
        self.inside = inside

    def backward(self, coefficients, boxes, output, arithmetic, slope):
        """Drop the coefficients outside the map."""
        examples = output.lower.shape[0] // len(self.inside)
        inside = tf.cast(np.tile(self.inside, [examples, *[1] * (self.inside.ndim - 1)]), coefficients.dtype)
        return [coefficients * inside[:, None]], tf.zeros([], coefficients.dtype)


class Part(Operation):
    """The part of a window that an operation reads; others read more of it."""

    def __init__(self, name: str, window: Window, part: Window):
        super().__init__(name)
        self.begin = [start - first for start, first in zip(part.start, window.start, strict=True)]
        self.size = part.size
        self.margins = [
            (first, whole - first - size) for first, size, whole in zip(self.begin, part.size, window.size, strict=True)
        ]

    def slice(self, values: tf.Tensor) -> tf.Tensor:
        """Return the part of values [b, ..., c]."""
        return tf.slice(values, [0, *self.begin, 0], [-1, *self.size, -1])

    def backward(self, coefficients, boxes, output, arithmetic, slope):
        """Add coefficients of 0 around."""
        return [tf.pad(coefficients, [(0, 0), (0, 0), *self.margins, (0, 0)])], tf.zeros([], coefficients.dtype)


def regions(network: Network, boxes: list[Box], position: int) -> dict[int, Region] | None:
    """Return the windows of all positions on which the values at a position depend.

    Returns:
        The regions by position; None if the values are no map, if an operation before them has no windows, or if two
        ways to a map have different strides.
    """
    places = tuple(boxes[position].lower.shape[1:-1])
    if not places:
        return None
    windows = {position: Window(*((number,) * len(places) for number in (1, 1, 0)))}
    for current in range(position, 0, -1):
        operation, inputs = network.nodes[current - 1]
        if current not in windows or operation.stops:
            continue
        for source in inputs:
            extent = tuple(boxes[source].lower.shape[1:-1])
            window = operation.window(windows[current], extent) if len(extent) == len(places) else None
            window = window and window.union(windows.get(source))
            if window is None:
                return None
            windows[source] = window
    return {
        current: Region(window, places, tuple(boxes[current].lower.shape[1:-1])) for current, window in windows.items()
    }


def coefficient_count(areas: dict[int, Region], boxes: list[Box]) -> int:
    """Return how many coefficients the bounds of all values of one channel have."""
    return sum(
        math.prod(area.places) * math.prod(area.window.size) * boxes[current].lower.shape[-1]
        for current, area in areas.items()
    )


def small_network(network: Network, boxes: list[Box], areas: dict[int, Region]) -> tuple[Network, list[Box]]:
    """Return the network of windows, which ends with the values of one place, and its boxes.

    Args:
        network: the network.
        boxes: a box per position, [b, ...].
        areas: of `regions`.

    Returns:
        (network, boxes): a box per position of the small network, [b x places, ...].
    """
    nodes: list = []
    inside = {current: area.inside() for current, area in areas.items()}
    cut = {current: Box(*(area.cut(end, inside[current]) for end in boxes[current])) for current, area in areas.items()}
    first = min(areas)
    small, positions = [cut[first]], {first: 0}

    def add(operation: Operation, sources: list[int], box: Box) -> int:
        nodes.append((operation, tuple(sources)))
        small.append(box)
        return len(nodes)

    for current in sorted(areas):
        operation, inputs = network.nodes[current - 1] if current else (None, ())
        if operation is None:
            continue
        sources = [0] if operation.stops else []
        for source in () if operation.stops else inputs:
            window, part = areas[source].window, operation.window(areas[current].window, areas[source].extent)
            end = positions[source]
            if part is not None and part != window:
                step = Part(operation.name, window, part)
                end = add(step, [end], Box(*map(step.slice, cut[source])))
            sources.append(end)
        positions[current] = add(operation.on_windows, sources, cut[current])
        if not inside[current].all():
            positions[current] = add(Mask(operation.name, inside[current]), [positions[current]], cut[current])
    return Network(tuple(nodes)), small
