"""Search by trying: points proposed without a gradient, kept where the margin rises."""

from collections.abc import Callable

import tensorflow as tf

from tfrobust.attacks import base

# The draws of so many steps are made together: a few large operations instead of many small ones per step.
_DRAWN_TOGETHER = 64


class RandomSearch(base.Attack):
    """What black-box attacks share: one forward pass per step, and the best point so far.

    A proposal is kept if the goal is reached or its margin (see `Goal.margin`) is above the best one. A subclass
    says where it starts (`_first_point`), what it draws (`_draws`) and what it makes of it (`_proposals`).
    """

    needs_gradient = False

    def rounds(self, class_count: int) -> int:
        return 1

    def start(self, predict, images, goal, keys, rounds):
        point = tf.ensure_shape(self._first_point(images, keys), images.shape)
        logits = predict(point)
        margin = goal.margin(logits)
        return {
            "point": point,
            # Whatever the model answers from the next point on is better than no number.
            "margin": tf.where(tf.math.is_nan(margin), tf.fill(tf.shape(margin), margin.dtype.min), margin),
            "found": goal.reached(logits),
            "iteration": tf.zeros_like(goal.labels),
            "key": keys,
        }

    def advance(self, predict, images, goal, rounds, state, count):
        propose = self._proposals(images)

        def some_steps(done, point, margin, found):
            together = tf.minimum(count - done, _DRAWN_TOGETHER)
            draws = self._draws(images, state["key"], state["iteration"] + done + tf.range(together)[:, None])

            def step(place, point, margin, found):
                proposed = propose(point, tf.nest.map_structure(lambda each: each[place], draws))
                logits = predict(proposed)
                reached, risen = goal.reached(logits), goal.margin(logits)
                # NaN is never larger, so that only a goal that counts NaN as reached takes it.
                better = ~found & (reached | (risen > margin))
                point = tf.ensure_shape(base.select(better, proposed, point), images.shape)
                return place + 1, point, tf.where(better, risen, margin), found | reached

            loop = (tf.constant(0), point, margin, found)
            _, *after = tf.while_loop(lambda place, *_: place < together, step, loop, parallel_iterations=1)
            return done + together, *after

        loop = (tf.constant(0), state["point"], state["margin"], state["found"])
        _, *after = tf.while_loop(lambda done, *_: done < count, some_steps, loop, parallel_iterations=1)
        moved = dict(zip(("point", "margin", "found"), after, strict=True))
        return state | moved | {"iteration": state["iteration"] + count}

    def candidate(self, state):
        return state["point"]

    def refuse(self, state, refused):
        # The margin came by chance, and few would be above it: the next point is taken, and climbed from.
        margin = tf.where(refused, state["margin"].dtype.min, state["margin"])
        return super().refuse(state, refused) | {"margin": margin}

    def _first_point(self, images, keys) -> tf.Tensor:
        """The point before the first step, float32 [b, ...]."""
        raise NotImplementedError

    def _draws(self, images, keys, iterations):
        """What chance decides at steps int32 [n, b], for keys int32 [b, 2]: a nest of tensors [n, b, ...]."""
        raise NotImplementedError

    def _proposals(self, images) -> Callable:
        """The function (point [b, ...], draws of one step) -> the point to try, inside the threat set."""
        raise NotImplementedError
