"""Interval bound propagation (IBP): a box around the image becomes boxes of all hidden values and of the margins."""

from __future__ import annotations

import tensorflow as tf

from tfrobust.certification import linear_bounds
from tfrobust.certification.affine import BatchNormalization
from tfrobust.certification.network import Network
from tfrobust.certification.operations import SOUND, Arithmetic, Box

_RELEASED = Box(None, None)


def input_box(images: tf.Tensor, epsilon, low: float = 0.0, high: float = 1.0) -> Box:
    """Return the L∞ ball of radius epsilon around images, intersected with the pixel box.

    Args:
        images: float [b, ...], pixels in [low, high].
        epsilon: radius in pixel units, a number or a scalar tensor, >= 0.
        low: lowest pixel.
        high: highest pixel.

    Returns:
        The box, in the dtype of the images.
    """
    return Box(tf.maximum(images - epsilon, low), tf.minimum(images + epsilon, high))


def propagate(network: Network, box: Box, arithmetic: Arithmetic = SOUND, *, for_margins: bool = False) -> list[Box]:
    """Propagate a box through a network.

    Args:
        network: the network.
        box: of the images, [b, ...] in the dtype of `arithmetic`.
        arithmetic: how bounds are computed.
        for_margins: keep only what `margins` reads, for large networks.

    Returns:
        One box per position of the network: the given one, then that of each operation's output. With `for_margins`,
        (None, None) where a box is not kept.

    Source: Gowal et al. 2018, https://arxiv.org/abs/1810.12715, eqs 6 and 7.
    """
    return propagate_in_range(network, box, arithmetic, for_margins=for_margins, check=False)[0]


def propagate_in_range(
    network: Network, box: Box, arithmetic: Arithmetic = SOUND, *, for_margins: bool = False, check: bool = True
) -> tuple[list[Box], tf.Tensor]:
    """Propagate a box as `propagate` does, and return also for which examples the boxes are bounds in float32.

    Args:
        network: the network.
        box: of the images.
        arithmetic: how bounds are computed.
        for_margins: as in `propagate`.
        check: False: the second result is True throughout.

    Returns:
        (boxes, bool [b]: True where all numbers that can occur in the network lie far inside the range of float32).
    """
    boxes = [box]
    in_range = tf.ones(tf.shape(box.lower)[:1], tf.bool)
    released = _releases(network) if for_margins else {}
    for operation, positions in network.nodes:
        inputs = [boxes[position] for position in positions]
        boxes.append(operation.box(inputs, arithmetic))
        if check:
            in_range &= operation.in_range(inputs, boxes[-1], arithmetic)
        for position in released.get(len(boxes) - 1, ()):
            boxes[position] = _RELEASED
    return boxes, in_range


def _releases(network: Network) -> dict[int, list[int]]:
    """Return the positions that `margins` does not read, by the position after which nothing else reads them."""
    read: set[int] = {len(network.nodes)}
    last: dict[int, int] = {}
    for current, (operation, positions) in reversed(list(enumerate(network.nodes, 1))):
        if current in read and isinstance(operation, linear_bounds.LINEAR):
            read.update(positions)
        for position in positions:
            last.setdefault(position, current)
    releases: dict[int, list[int]] = {}
    for position, current in last.items():
        if position not in read:
            releases.setdefault(current, []).append(position)
    return releases


def logits(network: Network, images: tf.Tensor, arithmetic: Arithmetic = SOUND) -> tf.Tensor:
    """Return the outputs of the network for images [b, ...], in the dtype of `arithmetic`; no bounds."""
    values = [tf.cast(images, arithmetic.dtype)]
    for operation, positions in network.nodes:
        values.append(operation.value([values[position] for position in positions], arithmetic))
    return values[-1]


def batch_arithmetic(network: Network, images: tf.Tensor) -> Arithmetic:
    """Return the arithmetic of bounds in training: float32, exact, batch normalization by the statistics of the images.

    Args:
        network: the network.
        images: float32 [b, ...], the clean images, whose statistics normalize the bounds, too.

    Returns:
        The arithmetic; the statistics are differentiable.
    """
    statistics: dict = {}
    arithmetic, values = Arithmetic(tf.float32, 0.0, statistics), [images]
    for operation, positions in network.nodes:
        if isinstance(operation, BatchNormalization):
            moments = operation.batch_statistics(values[positions[0]])
            if moments is not None:
                statistics[operation] = moments
        values.append(operation.value([values[position] for position in positions], arithmetic))
    return arithmetic


def margins(network: Network, boxes: list[Box], labels: tf.Tensor, arithmetic: Arithmetic = SOUND) -> tf.Tensor:
    """Return lower bounds of the margins from boxes, with the last affine layers elided.

    Margin j is the logit of the label less logit j. It is a linear function of the last box before the affine layers at
    the end, which bounds it better than the boxes of the two logits.

    Args:
        network: the network.
        boxes: of `propagate`.
        labels: int32 [b].
        arithmetic: how bounds are computed.

    Returns:
        [b, k], 0 for the label itself up to the margin for rounding.
    """
    coefficients = linear_bounds.margin_coefficients(labels, boxes[-1].lower.shape[-1], arithmetic.dtype)
    return linear_bounds.lower_bounds(network, boxes, coefficients, arithmetic, slope=None)
