"""Branch and bound: signs of ReLU inputs are assumed, one after another, until each branch is certified.

    branches = [no sign assumed, for each rival class that the linear bound leaves]
    while branches and time:
        take the branches with the lowest bounds
        split each at a ReLU: its input is >= 0 in one child and <= 0 in the other
        bound the children (`slopes.ascend`), and drop those with a positive sound bound
        descend from the point where a child's linear function is least: stop at a counterexample

The ReLU to split at is the best of the few whose relaxation costs most: that whose children have the largest bounds
without ascent.
"""

from __future__ import annotations

import functools
import heapq
import math
import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfrobust.certification import intervals, linear_bounds, slopes, tightening
from tfrobust.certification.balls import NormBall
from tfrobust.certification.network import Network
from tfrobust.certification.operations import SOUND, Arithmetic, Box
from tfrobust.certification.slopes import SEARCH, Choice, Sites

# Steps of the ascent for the hidden values and for each branch.
_HIDDEN_STEPS, _STEPS = 10, 20
# Steps of gradient descent from the points where bounds are met, of the first branches and of later ones, and the first
# step as a share of the box.
_FIRST_DESCENT, _DESCENT, _STRIDE = 50, 5, 0.5
# Branches of a batch, and ReLUs that are tried for a split.
_BATCH, _TRIED = 64, 3
_EXACT = Arithmetic(tf.float64, 0.0)


class Decision(NamedTuple):
    """The result of the search of an image.

    Attributes:
        bound: a lower bound of the worst margin; positive if the image is certified.
        counterexample: an image of the ball with a margin <= 0 in float64, float32 [...]; None if none was met.
        branches: number of bounded branches.
    """

    bound: float
    counterexample: np.ndarray | None
    branches: int


class _Branch(NamedTuple):
    """A branch that is not certified; the order is that of the bounds."""

    bound: float
    number: int
    row: np.ndarray
    signs: np.ndarray
    slopes: np.ndarray
    multipliers: np.ndarray
    candidates: np.ndarray

    def children(self, site: int) -> list[_Branch]:
        """Return the two branches in which the ReLU with this number has an input of known sign."""
        children = []
        for sign in (1, -1):
            signs = self.signs.copy()
            signs[site] = sign
            children.append(self._replace(signs=signs))
        return children


class Search:
    """The search in one network, whose graphs serve all images.

    Attributes:
        network: the network.
        ball: in which counterexamples lie, if it is not a box; the network's own can be larger by roundings.
    """

    def __init__(self, network: Network, ball: NormBall | None = None):
        self.network, self.ball = network, ball
        self._ascend = tf.function(self._ascended, reduce_retracing=True, autograph=False)
        self._examine = tf.function(self._examined, reduce_retracing=True, autograph=False)
        self._prove = tf.function(self._proved, reduce_retracing=True, autograph=False)
        self._descend = tf.function(self._descended, reduce_retracing=True, autograph=False)

    def decide(self, boxes: list[Box], ball: Box, label: int, seconds: float) -> Decision:
        """Certify an image or find a counterexample within some seconds.

        Args:
            boxes: float64, a box per position for one image, [1, ...], of `tightening.tightened`.
            ball: float32 [1, ...], the box in which counterexamples lie; the first box can be larger by roundings. With
                another norm the center of the ball, twice.
            label: class of the image.
            seconds: after which the search ends undecided.

        Source: Wang et al. 2021, https://arxiv.org/abs/2103.06624; De Palma et al. 2021,
            https://arxiv.org/abs/2104.06718, section 4 (trial of a few splits).
        """
        deadline = time.monotonic() + seconds
        functions = linear_bounds.margin_coefficients(np.array([label]), boxes[-1].lower.shape[-1], tf.float64)
        bounds = linear_bounds.lower_bounds(self.network, boxes, functions).numpy()[0]
        bounds[label] = math.inf
        rivals = [rival for rival in np.argsort(bounds) if not bounds[rival] > 0]
        state = _State(bounds[bounds > 0].min(), boxes, ball)
        self._bound(state, [self._root(boxes, functions[0, rival].numpy()) for rival in rivals])
        if state.queue and state.counterexample is None and self._sites(boxes).outputs:
            state, rows = state.begun_anew(tightening.tightened(self.network, boxes, steps=_HIDDEN_STEPS))
            self._bound(state, [self._root(state.boxes, row) for row in rows])
        while state.queue and state.counterexample is None and time.monotonic() < deadline:
            if not self._split(state):
                break
        return Decision(
            min([state.least, *(branch.bound for branch in state.queue)]), state.counterexample, state.branches
        )

    def _root(self, boxes: list[Box], row: np.ndarray) -> _Branch:
        choice = slopes.first_choice(self._sites(boxes), boxes, 1)
        first, none = (values.numpy()[0, 0] for values in choice)
        return _Branch(-math.inf, 0, row, none.astype(np.int8), first, none, np.zeros(0, np.int32))

    def _split(self, state: _State) -> bool:
        """Split the branches with the lowest bounds; return False if one of them has nothing to split."""
        taken = [heapq.heappop(state.queue) for _ in range(min(_BATCH // 2, len(state.queue)))]
        if any(not len(branch.candidates) for branch in taken):
            state.queue.extend(taken)
            return False
        pairs = [(owner, branch.children(site)) for owner, branch in enumerate(taken) for site in branch.candidates]
        trial = [child for _, pair in pairs for child in pair]
        bounds = np.concatenate(
            [self._examine(state.search_boxes, *self._arrays(part))[0].numpy()[: len(part)] for part in _batches(trial)]
        )
        # The lower of both children counts, at equal ones the higher.
        worst = np.minimum(bounds.reshape(-1, 2), 0.0)
        worth = worst.min(1) + 1e-3 * worst.max(1)
        best: dict[int, int] = {}
        for index, (owner, _) in enumerate(pairs):
            if owner not in best or worth[index] > worth[best[owner]]:
                best[owner] = index
        self._bound(state, [child for index in best.values() for child in pairs[index][1]])
        return True

    def _bound(self, state: _State, branches: list[_Branch]) -> None:
        """Bound branches; those that are not certified go into the queue, unless a counterexample is met."""
        for part in _batches(branches):
            rows, signs, choice = self._arrays(part)
            choice = self._ascend(state.search_boxes, rows, signs, choice)
            bounds, candidates, costs, points = self._examine(state.search_boxes, rows, signs, choice)
            proved = self._prove(state.boxes, rows, signs, choice).numpy()
            state.branches += len(part)
            for index, branch in enumerate(part):
                if proved[index] > 0:
                    state.least = min(state.least, proved[index])
                    continue
                split = candidates[index].numpy()[costs[index].numpy() > 0]
                state.count += 1
                slope, multiplier = (values[index, 0].numpy().astype(np.float16) for values in choice)
                bound = proved[index] if np.isfinite(proved[index]) else -math.inf
                heapq.heappush(
                    state.queue,
                    _Branch(bound, state.count, branch.row, branch.signs, slope, multiplier, split),
                )
            steps = _DESCENT if state.branches > _BATCH else _FIRST_DESCENT
            state.look_at(*self._descend(state.ball, rows[:, 0], points, tf.constant(steps)))

    def _arrays(self, branches: list[_Branch]) -> tuple:
        """Return the functions, signs and choice of a batch, which is filled up with its last branch."""
        size = _BATCH if len(branches) > 1 else 1
        branches = branches + branches[-1:] * (size - len(branches))
        rows, signs, first, second = (
            tf.constant(np.stack([getattr(branch, name) for branch in branches]).astype(np.float32))
            for name in ("row", "signs", "slopes", "multipliers")
        )
        return rows[:, None], signs, Choice(first[:, None], second[:, None])

    def _sites(self, boxes: list[Box]) -> Sites:
        return Sites.before(self.network, boxes, len(self.network.nodes))

    def _ascended(self, boxes, rows, signs, choice):
        return slopes.ascend(self.network, self._sites(boxes), boxes, rows, choice, signs, steps=_STEPS, goal=0.0)

    def _examined(self, boxes, rows, signs, choice):
        """Return bounds [b], the ReLUs whose relaxation costs most [b, t], these costs, and where the bound is met."""
        sites = self._sites(boxes)
        bounds, relaxation = slopes.bound(self.network, sites, boxes, rows, choice, signs, SEARCH)
        branch, costs = slopes.assumed(sites, boxes, signs), []
        for output, source, slope in zip(sites.outputs, sites.inputs, sites.parts(choice.slopes), strict=True):
            lower, upper = tf.minimum(branch[source].lower, 0.0), tf.maximum(branch[source].upper, 0.0)
            weight = relaxation.coefficients[output][:, 0]
            above = -lower * upper / tf.where(upper > lower, upper - lower, 1.0)
            below = tf.maximum(-lower * slope[:, 0], upper * (1 - slope[:, 0]))
            cost = tf.where(weight < 0, -weight * above, weight * below)
            costs.append(tf.where((lower < 0) & (upper > 0), cost, -1.0))
        costs = sites.joined(costs, tf.shape(rows)[0])
        costs, candidates = tf.math.top_k(costs, min(_TRIED, sites.total))
        # A bound that stops at tanh or a maximum says nothing about pixels.
        first = 0 if self.ball is None else 1
        slope = relaxation.coefficients.get(first, tf.zeros_like(boxes[0].lower)[:, None])[:, 0]
        ends = [tf.repeat(end, tf.shape(rows)[0] // tf.shape(end)[0], 0) for end in boxes[0]]
        return bounds[:, 0], candidates, costs, self._lowest(slope, *ends)

    def _lowest(self, slope, lower, upper):
        """Return the points of the balls where linear functions are least, [b, ...]."""
        slope += tf.zeros_like(lower)
        if self.ball is not None:
            return self.ball.lowest(slope, lower)
        return tf.where(slope > 0, lower, tf.where(slope < 0, upper, (lower + upper) / 2))

    def _moved(self, points, gradient, size, ball):
        """Return the points after a step against the gradient: along its signs, or to the lowest point of the ball."""
        if self.ball is None:
            return tf.clip_by_value(points - size * (ball.upper - ball.lower) * tf.sign(gradient), *ball)
        center = ball.lower + tf.zeros_like(points)
        return tf.clip_by_value(points + size * (self.ball.lowest(gradient, center) - points), *self.ball.bounds)

    def _descended(self, ball, rows, points, steps):
        """Descend to a lower value of the linear functions [b, k] of the logits; return points and values, float64."""

        def step(number, points, best, least):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(points)
                values = tf.reduce_sum(intervals.logits(self.network, points, SEARCH) * rows, 1)
            better = values < least
            best = tf.where(tf.reshape(better, [-1] + [1] * (points.shape.rank - 1)), points, best)
            size = _STRIDE * (1.0 - tf.cast(number, tf.float32) / tf.cast(steps + 1, tf.float32))
            moved = self._moved(points, tape.gradient(values, points), size, ball)
            return number + 1, moved, best, tf.minimum(values, least)

        if self.ball is None:
            points = tf.clip_by_value(points, *ball)
        else:
            points = self.ball.pulled(points, ball.lower + tf.zeros_like(points))
        least = tf.fill(tf.shape(rows)[:1], math.inf)
        *_, best, _ = tf.while_loop(lambda number, *_: number <= steps, step, (tf.constant(0), points, points, least))
        logits = intervals.logits(self.network, tf.cast(best, tf.float64), _EXACT)
        return best, tf.reduce_sum(logits * tf.cast(rows, tf.float64), 1)

    def _proved(self, boxes, rows, signs, choice):
        rows, signs, *choice = (tf.cast(values, tf.float64) for values in (rows, signs, *choice))
        return slopes.bound(self.network, self._sites(boxes), boxes, rows, Choice(*choice), signs, SOUND)[0][:, 0]


class _State:
    """The state of the search of an image.

    Attributes:
        least: the lowest bound of a branch that is certified.
        boxes: of the hidden values.
        ball: as in `Search.decide`.
        queue: heap of the branches that are not certified.
        counterexample: as in `Decision`.
        branches: as in `Decision`.
        count: of branches that entered the queue.
    """

    def __init__(self, least: float, boxes: list[Box], ball: Box):
        self.least, self.boxes, self.ball = least, boxes, ball
        self.queue: list[_Branch] = []
        self.counterexample: np.ndarray | None = None
        self.branches = self.count = 0

    @functools.cached_property
    def search_boxes(self) -> list[Box]:
        """The boxes in float32."""
        return [Box(*(tf.cast(end, tf.float32) for end in box)) for box in self.boxes]

    def begun_anew(self, boxes: list[Box]) -> tuple[_State, list[np.ndarray]]:
        """Return a state with other boxes and an empty queue, and the linear functions of this one's queue."""
        state = _State(self.least, boxes, self.ball)
        state.branches = self.branches
        return state, [branch.row for branch in self.queue]

    def look_at(self, points: tf.Tensor, values: tf.Tensor) -> None:
        """Keep a point at which one of the values [b] is not positive."""
        if float(tf.reduce_min(values)) <= 0:
            self.counterexample = points[int(tf.argmin(values))].numpy()


def _batches(branches: list[_Branch]) -> list[list[_Branch]]:
    return [branches[start : start + _BATCH] for start in range(0, len(branches), _BATCH)]
