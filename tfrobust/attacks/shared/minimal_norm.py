"""Base of minimal-norm attacks by gradients: one pass per step, and the nearest misclassified point met."""

import dataclasses
import math

import tensorflow as tf

from tfrobust.attacks.shared.attack import Attack
from tfrobust.common.configured import constructor_arguments
from tfrobust.ops.gradients import input_gradient
from tfrobust.ops.shapes import select


class MinimalNorm(Attack):
    """Base of searches for the nearest misclassified point, whatever epsilon is.

    A step predicts the state's `trial`, keeps it as `best` if it is misclassified and the nearest so far, and asks
    `_move` for the next trial. A subclass defines `_start`, the further parts of its state, and `_move`; it climbs the
    margin unless it overrides `_height`.
    """

    minimal = True

    def maximize(self, objective, inputs, key):
        """Raise NotImplementedError: the attack maximizes no objective in training."""
        raise NotImplementedError(
            f"{type(self).__name__} searches for the nearest misclassified point, maximizing no objective; use PGD in "
            "training."
        )

    def rounds(self, class_count: int) -> int:
        """Return 1: the attack has one round."""
        return 1

    def with_epsilon(self, epsilon: float) -> "Attack":
        """Return the same search with another radius: only the threshold for its distances changes."""
        arguments = {name: getattr(self, name) for name in constructor_arguments(type(self))}
        return type(self)(**(arguments | {"threat": dataclasses.replace(self.threat, epsilon=epsilon)}))

    def start(self, predict, inputs, goal, keys, rounds):
        """Start at the inputs; see `Attack.start`."""
        return {
            "trial": inputs,  # the point of the next pass
            "best": inputs,
            "distance": tf.fill(tf.shape(goal.labels), float("inf")),
            "passes": tf.zeros_like(goal.labels),
            "found": tf.zeros_like(goal.labels, tf.bool),  # always False: the nearest point is known only at the end
        } | self._start(inputs, goal, keys)

    def advance(self, predict, inputs, goal, rounds, state, count):
        """Take `count` steps; see `Attack.advance`."""

        def objective(points):
            logits = predict(points)
            return self._height(goal, logits), logits

        def body(step, old):
            height, gradient, logits = input_gradient(objective, old["trial"], has_auxiliary=True)
            new = self._next(inputs, old, goal.reached(logits), height, gradient)
            return step + 1, {name: tf.ensure_shape(new[name], old[name].shape) for name in old}

        _, state = tf.while_loop(lambda step, _: step < count, body, (tf.constant(0), state), parallel_iterations=1)
        return state

    def candidate(self, state):
        """Return the nearest misclassified point met, or the image if there is none."""
        return state["best"]

    def _next(self, inputs, old, reached, height, gradient):
        """Return the state after a pass at `trial`."""
        distance = self.threat.distance(inputs, old["trial"])
        # A stochastic model may misclassify the clean input, which was verified before.
        nearer = reached & (0 < distance) & (distance < old["distance"])
        state = {
            **old,
            "best": select(nearer, old["trial"], old["best"]),
            "distance": tf.where(nearer, distance, old["distance"]),
            "passes": old["passes"] + 1,
        }
        return state | self._move(inputs, state, reached, height, gradient)

    def _cosine(self, state):
        """Return the weight float32 [b] of a value that falls by half a cosine over the steps, from 1 to almost 0."""
        share = tf.cast(state["passes"] - 1, tf.float32) / self.steps
        return 0.5 + 0.5 * tf.cos(math.pi * tf.minimum(share, 1.0))

    def _start(self, inputs, goal, keys) -> dict:
        """Return the parts of the first state that only this attack has."""
        raise NotImplementedError

    def _height(self, goal, logits):
        """Return what the search climbs, float32 [b]: how far the logits are beyond the decision boundary."""
        return goal.margin(logits)

    def _move(self, inputs, state, reached, height, gradient) -> dict:
        """Return the parts of the state that change, with the next `trial`, after a pass at `state["trial"]`.

        Args:
            inputs: float32 [b, ...], the clean inputs.
            state: `best`, `distance` and `passes` are those after the pass.
            reached: bool [b], where the trial is misclassified.
            height: float32 [b], of the trial.
            gradient: float32 [b, ...], of the height.
        """
        raise NotImplementedError
