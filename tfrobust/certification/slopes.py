"""Linear bounds with the best slopes (alpha-CROWN) and the multipliers of fixed signs (beta-CROWN).

Below a ReLU whose input may have both signs runs any line through 0 with a slope in [0, 1], so each slope gives a
bound, and the best bound is found by ascent on the slopes. Where a sign of the input z is fixed by an assumption,
sign z >= 0, each multiplier >= 0 gives a bound under it:

    min f  >=  min (f - multiplier sign z)

Neither needs a proof of how it was found: the search computes in float32, and its result is bounded once in the sound
arithmetic.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import tensorflow as tf

from tfrobust.certification import linear_bounds
from tfrobust.certification.linear_bounds import Relaxation
from tfrobust.certification.network import Network
from tfrobust.certification.nonlinear import ReLU
from tfrobust.certification.operations import SOUND, Arithmetic, Box

SEARCH = Arithmetic(tf.float32, 0.0)
# Of Adam: the first step, and what is left of it after each.
_RATE, _DECAY = 0.1, 0.98
_MEAN, _SQUARE = 0.9, 0.999


class Sites(NamedTuple):
    """The ReLUs that a pass from a position comes to, whose inputs are counted through: n in all.

    Attributes:
        outputs: their positions.
        inputs: the positions of their inputs.
        shapes: of their inputs.
    """

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def before(cls, network: Network, boxes: list[Box], position: int) -> Sites:
        """Return the ReLUs before a position, without those that a maximum or another stop hides from the pass."""
        reached = linear_bounds.reached(network, position)
        pairs = [
            (output, inputs[0])
            for output, (operation, inputs) in enumerate(network.nodes[:position], 1)
            if isinstance(operation, ReLU) and output in reached
        ]
        outputs, inputs = zip(*pairs, strict=True) if pairs else ((), ())
        return cls(outputs, inputs, tuple(tuple(boxes[source].lower.shape[1:]) for source in inputs))

    @property
    def total(self) -> int:
        """Number of inputs."""
        return sum(math.prod(shape) for shape in self.shapes)

    def parts(self, values: tf.Tensor) -> list[tf.Tensor]:
        """Return values [b, s, n] by ReLU, [b, s, ...]."""
        parts = tf.split(values, [math.prod(shape) for shape in self.shapes], axis=-1) if self.shapes else []
        rows = tf.shape(values)[:2]
        return [tf.reshape(part, tf.concat([rows, shape], 0)) for part, shape in zip(parts, self.shapes, strict=True)]

    def joined(self, parts: list[tf.Tensor], examples: int | tf.Tensor) -> tf.Tensor:
        """Return float32 values by ReLU, [b, ...], as [b, n]."""
        return tf.concat([tf.zeros([examples, 0]), *(tf.reshape(part, [examples, -1]) for part in parts)], 1)


class Choice(NamedTuple):
    """The slopes and multipliers of a bound.

    Attributes:
        slopes: float [b, s, n] in [0, 1].
        multipliers: float [b, s, n], >= 0.
    """

    slopes: tf.Tensor
    multipliers: tf.Tensor


def first_choice(sites: Sites, boxes: list[Box], rows: int) -> Choice:
    """Return the slopes of CROWN and no multipliers, [b, rows, n]."""
    positive = [tf.cast(boxes[source].upper > -boxes[source].lower, tf.float32) for source in sites.inputs]
    slopes = tf.repeat(sites.joined(positive, boxes[0].lower.shape[0])[:, None], rows, 1)
    return Choice(slopes, tf.zeros_like(slopes))


def assumed(sites: Sites, boxes: list[Box], signs: tf.Tensor) -> list[Box]:
    """Return the boxes under assumed signs, [b, n] of -1, 1, or 0 for none."""
    boxes = list(boxes)
    for source, sign in zip(sites.inputs, sites.parts(signs[:, None]), strict=True):
        (lower, upper), sign = boxes[source], sign[:, 0]
        boxes[source] = Box(
            tf.where(sign > 0, tf.maximum(lower, 0.0), lower), tf.where(sign < 0, tf.minimum(upper, 0.0), upper)
        )
    return boxes


def bound(
    network: Network,
    sites: Sites,
    boxes: list[Box],
    coefficients: tf.Tensor,
    choice: Choice,
    signs: tf.Tensor | None = None,
    arithmetic: Arithmetic = SOUND,
    position: int | None = None,
) -> tuple[tf.Tensor, Relaxation]:
    """Return the bounds of linear functions with chosen slopes and multipliers.

    Args:
        network: the network.
        sites: its ReLUs.
        boxes: a box per position.
        coefficients: [b or 1, s, ...] of the value at `position`.
        choice: slopes and multipliers.
        signs: assumed ones, [b, n]; None: none.
        arithmetic: how bounds are computed.
        position: of the value; None: the output.

    Returns:
        (bounds [b, s], the coefficients that the pass met).
    """
    relaxation = Relaxation(dict(zip(sites.outputs, sites.parts(choice.slopes), strict=True)), {}, {})
    if signs is not None:
        boxes = assumed(sites, boxes, signs)
        tilts = sites.parts(-choice.multipliers * signs[:, None])
        relaxation.tilts.update(zip(sites.inputs, tilts, strict=True))
    bounds = linear_bounds.lower_bounds(
        network, boxes, coefficients, arithmetic, position=position, relaxation=relaxation
    )
    return bounds, relaxation


def ascend(
    network: Network,
    sites: Sites,
    boxes: list[Box],
    coefficients: tf.Tensor,
    choice: Choice,
    signs: tf.Tensor | None = None,
    *,
    steps: int,
    position: int | None = None,
    goal: float = math.inf,
) -> Choice:
    """Return the best choice that ascent of the bounds meets; bounds above the goal ascend no further.

    Args:
        network: the network.
        sites: its ReLUs.
        boxes: float32, a box per position.
        coefficients: float32, as in `bound`.
        choice: where the ascent begins.
        signs: as in `bound`.
        steps: of Adam.
        position: as in `bound`.
        goal: a bound that is enough.

    Source: Xu et al. 2021, https://arxiv.org/abs/2011.13824, section 3; Wang et al. 2021,
        https://arxiv.org/abs/2103.06624, theorem 3.1.
    """
    factors = tf.ones([]) if signs is None else tf.abs(signs)[:, None]

    def step(number, choice, moments, best, most):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(choice)
            bounds, _ = bound(network, sites, boxes, coefficients, Choice(*choice), signs, SEARCH, position)
            total = tf.reduce_sum(tf.where(bounds > goal, tf.zeros_like(bounds), bounds))
        better = (bounds > most)[..., None]
        best = [tf.where(better, new, old) for new, old in zip(choice, best, strict=True)]
        gradients = tape.gradient(total, choice, unconnected_gradients="zero")
        power = tf.cast(number + 1, tf.float32)
        rate = _RATE * _DECAY ** tf.cast(number, tf.float32)
        after, moved = [], []
        for value, gradient, (mean, square) in zip(choice, gradients, moments, strict=True):
            mean = _MEAN * mean + (1 - _MEAN) * gradient
            square = _SQUARE * square + (1 - _SQUARE) * tf.square(gradient)
            after.append((mean, square))
            move = mean / (1 - _MEAN**power) / (tf.sqrt(square / (1 - _SQUARE**power)) + 1e-8)
            moved.append(value + rate * move)
        choice = [tf.clip_by_value(moved[0], 0.0, 1.0), factors * tf.maximum(moved[1], 0.0)]
        return [number + 1, choice, after, best, tf.maximum(most, bounds)]

    moments = [(tf.zeros_like(value), tf.zeros_like(value)) for value in choice]
    most = tf.fill(tf.shape(choice.slopes)[:2], tf.constant(-math.inf))
    state = [tf.constant(0), list(choice), moments, list(choice), most]

    def unfinished(number, choice, moments, best, most):
        return tf.reduce_any(most <= goal)

    state = tf.while_loop(unfinished, step, state, maximum_iterations=steps)
    return Choice(*state[3])


def best_bounds(
    network: Network,
    boxes: list[Box],
    coefficients: tf.Tensor,
    steps: int,
    arithmetic: Arithmetic = SOUND,
    position: int | None = None,
) -> tf.Tensor:
    """Bound linear functions from below with the slopes that an ascent finds (alpha-CROWN).

    Args:
        network: the network.
        boxes: a box per position.
        coefficients: [b or 1, s, ...] of the value at `position`.
        steps: of the ascent.
        arithmetic: how bounds are computed.
        position: of the value; None: the output.

    Returns:
        [b, s].
    """
    sites = Sites.before(network, boxes, len(network.nodes) if position is None else position)
    if not sites.outputs:
        return linear_bounds.lower_bounds(network, boxes, coefficients, arithmetic, position=position)
    search = [Box(*(tf.cast(end, tf.float32) for end in box)) for box in boxes]
    choice = first_choice(sites, boxes, coefficients.shape[1])
    choice = ascend(network, sites, search, tf.cast(coefficients, tf.float32), choice, steps=steps, position=position)
    choice = Choice(*(tf.cast(values, arithmetic.dtype) for values in choice))
    return bound(network, sites, boxes, coefficients, choice, None, arithmetic, position)[0]
