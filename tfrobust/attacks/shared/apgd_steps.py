"""Steps of APGD in each norm, and the updates at its checkpoints.

Two classes with the same four methods. Each adds its own entries [b, ...] to an attack's state and is built once per
graph call, so that constants of the loop are computed before it.
"""

import tensorflow as tf

from tfrobust.attacks.shared.base import select
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.ops import norms
from tfrobust.ops.shapes import by_example

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


class Momentum:
    """Linf and L2: steps with momentum; without progress, restart from the best point with half the step size."""

    checked = ("step_size", "halved", "checked_loss", "increases")

    def __init__(self, threat: ThreatModel, images: tf.Tensor):
        self.threat, self.images = threat, images
        low, high = threat.bounds
        self.lower, self.upper = low, high
        if threat.norm == "linf":
            self.lower = tf.maximum(images - threat.epsilon, low)
            self.upper = tf.minimum(images + threat.epsilon, high)

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

    def look_back(self, state: dict, gradient: tf.Tensor, window: tf.Tensor, epsilon):
        """Apply the checkpoint where `window` is not 0, over that many steps; other examples are unchanged.

        Returns:
            (the point of the next step, its gradient, the changed entries of the state, named in `checked`).
        """
        looks, best_loss = window > 0, state["best_loss"]
        few = state["increases"] <= _RISING_SHARE * tf.cast(window, best_loss.dtype)
        stuck = ~state["halved"] & (state["checked_loss"] >= best_loss)
        halve = looks & (few | stuck)
        changed = {
            "step_size": select(halve, 0.5 * state["step_size"], state["step_size"]),
            "halved": (looks & halve) | (~looks & state["halved"]),
            "checked_loss": select(looks, best_loss, state["checked_loss"]),
            "increases": select(looks, tf.zeros_like(best_loss), state["increases"]),
        }
        point = select(halve, state["best_point"], state["point"])
        return point, select(halve, state["best_gradient"], gradient), changed

    def move(self, state: dict, point: tf.Tensor, gradient: tf.Tensor, epsilon) -> tuple[tf.Tensor, dict]:
        """Return the next point, and the changed entries of the state.

        z = P(x + step v); x_new = P(x + a (z - x) + (1 - a) (x - x_previous)), a = 3/4, in the first step 1.
        """
        later = tf.cast(state["turn"] > 0, point.dtype)
        fresh = by_example(1.0 - (1.0 - _FRESH) * later, point)
        ahead = self._limit(
            point + by_example(state["step_size"], point) * norms.unit_steepest(gradient, self.threat.norm)
        )
        # In the first step x_previous = x.
        moved = point + fresh * (ahead - point) + (1.0 - _FRESH) * (point - state["previous"])
        return self._limit(moved), {"previous": point}

    def _limit(self, candidate: tf.Tensor) -> tf.Tensor:
        if self.threat.norm == "l2":
            # The authors' projection, not the nearest point of ball and box: scaled first, then clipped.
            change = candidate - self.images
            length = tf.sqrt(tf.reduce_sum(tf.square(change), list(range(1, change.shape.rank)), keepdims=True))
            candidate = self.images + change * (tf.minimum(length, self.threat.epsilon) / (length + _TINY))
        return tf.clip_by_value(candidate, self.lower, self.upper)


class Sparse:
    """L1: steps on few pixels, as many as the change of the best point suggests, projected exactly.

    Args:
        threat: the threat model.
        images: float32 [b, ...], the clean images.
        follow: True: the first steps are as sparse as the start is; False: they use a fifth of the pixels.
    """

    checked = ("step_size", "share", "support")
    entries = checked

    def __init__(self, threat: ThreatModel, images: tf.Tensor, follow: bool):
        self.threat, self.images, self.follow = threat, images, follow
        self.size = images.shape[1:].num_elements()

    def begin(self, point: tf.Tensor, epsilon: tf.Tensor) -> dict:
        """Return the state entries of this norm at the start of a phase; epsilon float32 [b]."""
        if self.follow:
            return {"step_size": epsilon} | self._sparsity(point)
        ones = tf.ones_like(epsilon)
        return {"step_size": epsilon, "share": _FIRST_SHARE * ones, "support": float(self.size) * ones}

    def note(self, state: dict, loss: tf.Tensor) -> dict:
        """Return no entries: L1 checkpoints look at the points alone."""
        return {}

    def look_back(self, state: dict, gradient: tf.Tensor, window: tf.Tensor, epsilon):
        """Apply the checkpoint as in `Momentum`, but test only if the best point changes fewer pixels than before."""
        looks = window > 0
        now = self._sparsity(state["best_point"])
        fewer = looks & (now["support"] < _FEWER * state["support"])
        shorter = tf.clip_by_value(state["step_size"] / _SHRINK, _SHORTEST * epsilon, epsilon)
        changed = {name: select(looks, now[name], state[name]) for name in now}
        longest = tf.zeros_like(shorter) + epsilon
        changed["step_size"] = select(fewer, longest, select(looks, shorter, state["step_size"]))
        point = select(fewer, state["best_point"], state["point"])
        return point, select(fewer, state["best_gradient"], gradient), changed

    def move(self, state: dict, point: tf.Tensor, gradient: tf.Tensor, epsilon) -> tuple[tf.Tensor, dict]:
        """Return the next point: a step of the given length, spread evenly over the largest gradients, projected."""
        magnitude = tf.abs(gradient)
        place = tf.clip_by_value((1.0 - state["share"]) * self.size, 0.0, self.size - 1.0)
        # Counted from the largest, so that only as many values are sorted as the widest row needs.
        place = self.size - 1 - tf.cast(place, tf.int32)
        largest = tf.math.top_k(tf.reshape(magnitude, [-1, self.size]), tf.reduce_max(place) + 1).values
        threshold = tf.gather(largest, place, batch_dims=1)
        signs = tf.sign(gradient) * tf.cast(magnitude >= by_example(threshold, point), point.dtype)
        count = tf.reduce_sum(tf.abs(signs), list(range(1, point.shape.rank)))
        candidate = point + by_example(state["step_size"] / (count + 1e-10), point) * signs
        return norms.project_ball_in_box(self.images, candidate, "l1", epsilon, *self.threat.bounds), {}

    def _sparsity(self, point: tf.Tensor) -> dict:
        change = tf.abs(point - self.images)
        support = tf.reduce_sum(tf.cast(change > _RESIDUE, change.dtype), list(range(1, change.shape.rank)))
        return {"share": support / self.size / _SHARE_OF_SUPPORT, "support": support}
