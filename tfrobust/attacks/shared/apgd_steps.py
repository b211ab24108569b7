"""Steps of APGD in each norm, the updates at its checkpoints, and their schedule over one round.

`Momentum` and `Sparse` have the same four methods. Each adds its own entries [b, ...] to an attack's state and is built
once per graph call, so that constants of the loop are computed before it. The schedule consists of tables over the
turns of a round, computed before any graph. A turn evaluates one point and moves on to the next. Turn 0 evaluates the
start, turn t the point after t steps. Where a round has several phases (radii), each phase begins with a turn of its
own.

    four steps, one phase             four steps in two phases

    turn      0   1   2   3           turn      0   1   2   3   4
    evaluates x0  x1  x2  x3          evaluates x0  x1  x2  y0  y1
    moves to  x1  x2  x3  x4          moves to  x1  x2  y0  y1  y2
                                                        |
                                                        the best of x0, x1, x2, projected into the smaller ball

The last point, x4 or y2, is verified by the engine, outside of the search.
"""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.ops.shapes import by_example, select

# Share of a step that is new; the rest repeats the last step (momentum).
_FRESH = 0.75
# The step size is too long where the loss rose in at most this share of the steps since the last checkpoint.
_RISING_SHARE = 0.75
# Added to denominators, as in the authors' code.
_TINY = 1e-12
# L1: the share of pixels in the first steps; the divisor that turns the share of changed pixels into that of the next
# steps; the ratio of supports below which the step size is reset to epsilon; the divisor of the step size otherwise,
# and its minimum as a share of epsilon.
_FIRST_SHARE, _SHARE_OF_SUPPORT, _FEWER = 0.2, 1.5, 0.95
_SHRINK, _SHORTEST = 1.5, 0.1
# Smaller changes are residues of the projection, not changed pixels. The authors' code counts them, so that its first
# steps in L1 use more pixels.
_RESIDUE = 1e-6
# L1: the radii in units of epsilon, and the share of the steps of each; the last takes the remaining steps.
_LARGE_RADII = ((3.0, 0.3), (2.0, 0.3), (1.0, 0.4))


class Momentum:
    """Linf and L2: steps with momentum; without progress, restart from the best point with half the step size."""

    checked = ("step_size", "halved", "checked_loss", "increases")

    def __init__(self, threat: ThreatModel, inputs: tf.Tensor):
        self.threat, self.inputs = threat, inputs
        low, high = threat.bounds
        self.lower, self.upper = low, high
        if threat.norm == "linf":
            self.lower = tf.maximum(inputs - threat.epsilon, low)
            self.upper = tf.minimum(inputs + threat.epsilon, high)

    def begin(self, point: tf.Tensor, epsilon: tf.Tensor) -> dict:
        """Return the state entries of this norm at the start of a phase; epsilon float32 [b]."""
        zeros = tf.zeros_like(epsilon)
        return {
            "step_size": 2.0 * epsilon,
            "previous": point,
            # No loss is larger than infinity, so the start itself does not count as an increase.
            "previous_loss": zeros + float("inf"),
            "increases": zeros,
            "checked_loss": zeros,
            # As if halved before the start: the rule "no better than at the last checkpoint" needs a last checkpoint.
            "halved": tf.ones_like(epsilon, tf.bool),
        }

    def note(self, state: dict, loss: tf.Tensor) -> dict:
        """Count the increases of the loss since the last checkpoint; returns the changed entries of the state.

        The first step is compared with 0, not with the start: a quirk of the authors' code, which for the cross-entropy
        always counts as an increase.
        """
        rose = tf.cast(loss > state["previous_loss"], loss.dtype)
        previous = select(state["turn"] > 0, loss, tf.zeros_like(loss))
        return {"increases": state["increases"] + rose, "previous_loss": previous}

    def at_checkpoint(self, state: dict, gradient: tf.Tensor, window: tf.Tensor, epsilon):
        """Apply the checkpoint where `window` is not 0, over that many steps; other examples are unchanged.

        Returns:
            (the point of the next step, its gradient, the changed entries of the state, named in `checked`).
        """
        due, best_loss = window > 0, state["best_loss"]
        few = state["increases"] <= _RISING_SHARE * tf.cast(window, best_loss.dtype)
        stuck = ~state["halved"] & (state["checked_loss"] >= best_loss)
        halve = due & (few | stuck)
        changed = {
            "step_size": select(halve, 0.5 * state["step_size"], state["step_size"]),
            "halved": (due & halve) | (~due & state["halved"]),
            "checked_loss": select(due, best_loss, state["checked_loss"]),
            "increases": select(due, tf.zeros_like(best_loss), state["increases"]),
        }
        point = select(halve, state["best_point"], state["point"])
        return point, select(halve, state["best_gradient"], gradient), changed

    def move(self, state: dict, point: tf.Tensor, gradient: tf.Tensor, epsilon) -> tuple[tf.Tensor, dict]:
        """Return the next point, and the changed entries of the state.

        z = P(x + step v); x_new = P(x + a (z - x) + (1 - a) (x - x_previous)), a = 3/4, in the first step 1.
        """
        later = tf.cast(state["turn"] > 0, point.dtype)
        fresh = by_example(1.0 - (1.0 - _FRESH) * later, point)
        ahead = self._limit(point + by_example(state["step_size"], point) * self.threat.steepest(gradient))
        # In the first step x_previous = x.
        moved = point + fresh * (ahead - point) + (1.0 - _FRESH) * (point - state["previous"])
        return self._limit(moved), {"previous": point}

    def _limit(self, candidate: tf.Tensor) -> tf.Tensor:
        if self.threat.norm == "l2":
            # The authors' projection, not the nearest point of ball and box: scaled first, then clipped.
            change = self.threat.parts(candidate - self.inputs)
            length = tf.sqrt(tf.reduce_sum(tf.square(change), list(range(1, change.shape.rank)), keepdims=True))
            change *= tf.minimum(length, self.threat.epsilon) / (length + _TINY)
            candidate = self.inputs + self.threat.joined(change, candidate)
        return tf.clip_by_value(candidate, self.lower, self.upper)


class Sparse:
    """L1: steps on few pixels, as many as the change of the best point suggests, projected exactly.

    Args:
        threat: the threat model.
        inputs: float32 [b, ...], the clean images.
        follow: True: the first steps are as sparse as the start is; False: they use a fifth of the pixels.
    """

    checked = ("step_size", "share", "support")
    entries = checked

    def __init__(self, threat: ThreatModel, inputs: tf.Tensor, follow: bool):
        self.threat, self.inputs, self.follow = threat, inputs, follow
        self.size = inputs.shape[1:].num_elements()

    def begin(self, point: tf.Tensor, epsilon: tf.Tensor) -> dict:
        """Return the state entries of this norm at the start of a phase; epsilon float32 [b]."""
        if self.follow:
            return {"step_size": epsilon} | self._sparsity(point)
        ones = tf.ones_like(epsilon)
        return {"step_size": epsilon, "share": _FIRST_SHARE * ones, "support": float(self.size) * ones}

    def note(self, state: dict, loss: tf.Tensor) -> dict:
        """Return no entries: L1 checkpoints depend on the points alone."""
        return {}

    def at_checkpoint(self, state: dict, gradient: tf.Tensor, window: tf.Tensor, epsilon):
        """Apply the checkpoint as in `Momentum`, but test only if the best point changes fewer pixels than before."""
        due = window > 0
        now = self._sparsity(state["best_point"])
        fewer = due & (now["support"] < _FEWER * state["support"])
        shorter = tf.clip_by_value(state["step_size"] / _SHRINK, _SHORTEST * epsilon, epsilon)
        changed = {name: select(due, now[name], state[name]) for name in now}
        longest = tf.zeros_like(shorter) + epsilon
        changed["step_size"] = select(fewer, longest, select(due, shorter, state["step_size"]))
        point = select(fewer, state["best_point"], state["point"])
        return point, select(fewer, state["best_gradient"], gradient), changed

    def move(self, state: dict, point: tf.Tensor, gradient: tf.Tensor, epsilon) -> tuple[tf.Tensor, dict]:
        """Return the next point: a step of the given length, spread evenly over the largest gradients, projected."""
        slope = self.threat.parts(gradient)
        magnitude, size = tf.abs(slope), slope.shape[1:].num_elements()
        share, length = (self.threat.by_part(state[name], point) for name in ("share", "step_size"))
        rank = tf.clip_by_value((1.0 - share) * size, 0.0, size - 1.0)
        # Counted from the largest, so that only as many values are sorted as the widest row needs.
        rank = size - 1 - tf.cast(rank, tf.int32)
        largest = tf.math.top_k(tf.reshape(magnitude, [-1, size]), tf.reduce_max(rank) + 1).values
        threshold = tf.gather(largest, rank, batch_dims=1)
        signs = tf.sign(slope) * tf.cast(magnitude >= by_example(threshold, slope), point.dtype)
        count = tf.reduce_sum(tf.abs(signs), list(range(1, slope.shape.rank)))
        change = by_example(length / (count + 1e-10), slope) * signs
        return self.threat.project_ball(self.inputs, point + self.threat.joined(change, point), epsilon), {}

    def _sparsity(self, point: tf.Tensor) -> dict:
        change = tf.abs(point - self.inputs)
        support = tf.reduce_sum(tf.cast(change > _RESIDUE, change.dtype), list(range(1, change.shape.rank)))
        return {"share": support / self.size / _SHARE_OF_SUPPORT, "support": support}


class Schedule(NamedTuple):
    """Tables [turns + 1]; the last row belongs to the point after all steps, which is verified outside of the search.

    Attributes:
        epsilon: float32, the radius of the phase.
        window: int32, the number of steps that the checkpoint after this evaluation compares; 0 if there is none.
        ends: bool, the last evaluation of a phase that another phase follows.
        is_final: bool, the last phase: misclassified points count as success.
    """

    epsilon: np.ndarray
    window: np.ndarray
    ends: np.ndarray
    is_final: np.ndarray

    @property
    def turns(self) -> int:
        """Number of turns in a round."""
        return len(self.window) - 1


def schedule(norm: str, epsilon: float, steps: int, large_radii: bool) -> Schedule:
    """Build the tables of one round.

    Args:
        norm: 'linf', 'l2' or 'l1'.
        epsilon: radius of the threat model.
        steps: of all phases together, >= 1.
        large_radii: True: three phases of 3, 2 and 1 epsilon.

    Source:
        Croce & Hein 2021, https://arxiv.org/abs/2103.01208, section 3.3 (phases).
    """
    phases, rows = _phases(epsilon, steps, large_radii), []
    for number, (radius, length) in enumerate(phases):
        last, windows = number == len(phases) - 1, checkpoints(norm, length)
        for step in range(length + 1):
            rows.append((radius, windows.get(step, 0), step == length and not last, last))
    columns = zip(*rows, strict=True)
    return Schedule(*(np.array(column, kind) for column, kind in zip(columns, ("f4", "i4", "?", "?"), strict=True)))


def checkpoints(norm: str, steps: int) -> dict[int, int]:
    """Return the checkpoints and their window lengths in steps: {22: 22, 41: 19, ...} for 100 steps in Linf and L2.

    Linf, L2: the first window is 22 % of the steps, each following one 3 % shorter, down to 6 %. L1: every 4 %.

    Source:
        Croce & Hein 2020, https://arxiv.org/abs/2003.01690, section 3.2; rounded as in the authors' code.
    """
    if norm == "l1":
        window = shortest = max(int(0.04 * steps), 1)
        shrink = 0
    else:
        window, shrink, shortest = (max(int(share * steps), 1) for share in (0.22, 0.03, 0.06))
    windows, step = {}, window
    while step <= steps:
        windows[step] = window
        window = max(window - shrink, shortest)
        step += window
    return windows


def _phases(epsilon: float, steps: int, large_radii: bool) -> list[tuple[float, int]]:
    if not large_radii:
        return [(epsilon, steps)]
    phases, remaining = [], steps
    for factor, share in _LARGE_RADII[:-1]:
        length = min(math.ceil(share * steps), remaining)
        phases.append((factor * epsilon, length))
        remaining -= length
    return [*phases, (_LARGE_RADII[-1][0] * epsilon, remaining)]
