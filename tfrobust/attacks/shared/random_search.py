"""Random search: points proposed without a gradient, kept where the margin increases."""

from collections.abc import Callable

import tensorflow as tf

from tfrobust.attacks.shared.attack import Attack
from tfrobust.ops.shapes import select

# Number of steps whose draws are made together: few large operations instead of many small ones per step.
_DRAWN_TOGETHER = 64


class RandomSearch(Attack):
    """Base of black-box attacks: one forward pass per step, and the best point so far.

    A proposal is kept if the goal is reached or its margin (see `Goal.margin`) is above the best one, or equal to it if
    `accept_ties`. A subclass
    defines the start (`_first_point`), its random draws (`_draws`) and the proposals made from them (`_proposals`).
    """

    needs_gradient = False
    accept_ties = False

    def rounds(self, class_count: int) -> int:
        """Return 1: the search has one round."""
        return 1

    def round_passes(self, class_count: int) -> tuple[int, int]:
        """Return one forward pass per step, and that of the first point."""
        return self.steps + 1, 0

    def start(self, predict, inputs, goal, keys, rounds):
        """Predict the first point; see `Attack.start`."""
        point = tf.ensure_shape(self._first_point(inputs, keys), inputs.shape)
        logits = predict(point)
        margin = goal.margin(logits)
        return {
            "point": point,
            # Any finite margin of a later point must be larger than NaN at the start.
            "margin": tf.where(tf.math.is_nan(margin), tf.fill(tf.shape(margin), margin.dtype.min), margin),
            "found": goal.reached(logits),
            "iteration": tf.zeros_like(goal.labels),
            "key": keys,
        }

    def advance(self, predict, inputs, goal, rounds, state, count):
        """Try `count` proposals; see `Attack.advance`."""
        propose = self._proposals(inputs)

        def some_steps(done, point, margin, success):
            together = tf.minimum(count - done, _DRAWN_TOGETHER)
            draws = self._draws(inputs, state["key"], state["iteration"] + done + tf.range(together)[:, None])

            def step(draw, point, margin, success):
                proposed = propose(point, tf.nest.map_structure(lambda number: number[draw], draws))
                logits = predict(proposed)
                reached, risen = goal.reached(logits), goal.margin(logits)
                # NaN is never larger, so only a goal that counts NaN as reached accepts it.
                better = ~success & (reached | (risen >= margin if self.accept_ties else risen > margin))
                point = tf.ensure_shape(select(better, proposed, point), inputs.shape)
                return draw + 1, point, tf.where(better, risen, margin), success | reached

            loop = (tf.constant(0), point, margin, success)
            _, *after = tf.while_loop(lambda number, *_: number < together, step, loop, parallel_iterations=1)
            return done + together, *after

        loop = (tf.constant(0), state["point"], state["margin"], state["found"])
        _, *after = tf.while_loop(lambda done, *_: done < count, some_steps, loop, parallel_iterations=1)
        moved = dict(zip(("point", "margin", "found"), after, strict=True))
        return state | moved | {"iteration": state["iteration"] + count}

    def candidate(self, state):
        """Return the best point so far."""
        return state["point"]

    def refuse(self, state, refused):
        """Forget the margin where the verification failed; see `Attack.refuse`."""
        # The margin was reached by chance, and few points would exceed it: the next proposal is accepted and becomes
        # the new best.
        margin = tf.where(refused, state["margin"].dtype.min, state["margin"])
        return super().refuse(state, refused) | {"margin": margin}

    def _first_point(self, inputs, keys) -> tf.Tensor:
        """Return the point before the first step, float32 [b, ...]."""
        raise NotImplementedError

    def _draws(self, inputs, keys, iterations):
        """Return the random draws of steps int32 [n, b], for keys int32 [b, 2]: a nest of tensors [n, b, ...]."""
        raise NotImplementedError

    def _proposals(self, inputs) -> Callable:
        """Return the function (point [b, ...], draws of one step) -> the proposed point, inside the threat set."""
        raise NotImplementedError
