"""The fast adaptive boundary attack (FAB): projections onto the linearized class boundary.

A step makes one linear model of the boundary, at the current point, and moves onto its plane from two sides:

                                plane f + <w, z - x_i> = 0
      image x                        |
        o -------------- d_2 ------->|  p(x): the nearest point that the model predicts to be misclassified
                                     |
                       x_i o -- d_1 >|  p(x_i): where the search would go by itself
                                     |

    _plane                      f and w at x_i, by one pass
    _move                       both moves in one call; x_{i+1} is near p(x_i), pulled towards p(x) by at most alpha_max
    x_{i+1} is misclassified    keep it if it is the nearest so far, and go back towards the image by 1 - beta
    otherwise                   continue from x_{i+1}

The pull keeps the distance to the image small, the overshoot eta > 1 crosses the boundary where the model is too flat.
"""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared import checks
from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.shared.threat import ThreatModel, required_threat
from tfrobust.errors import InputError
from tfrobust.ops import hyperplane, norms, randomness
from tfrobust.ops.gradients import input_gradient, linearized
from tfrobust.ops.shapes import by_example, select, shape_of

# Lower bound of lengths: at the image itself, or next to the plane, the two moves have equal weights.
_SHORTEST = 1e-8
# Points within this share of epsilon are unchanged by another projection.
_INSIDE = 1.0 - 1e-6


@keras.saving.register_keras_serializable(package="tfrobust")
class FAB(Attack):
    """FAB-T: searches for the nearest misclassified point along the boundary to one class per round.

    With f = z_t - z_y at x_i, w its gradient, p(x) the shortest move from x onto {z : f + <w, z - x_i> = 0} inside the
    pixel box (`ops.hyperplane`), d_1 = p(x_i), d_2 = p(x) from the image x:

        a = min(|d_1| / (|d_1| + |d_2|), alpha_max)
        x_{i+1} = clip((1 - a) (x_i + eta d_1) + a (x + eta d_2))

    If x_{i+1} is misclassified (as any class), it is kept if it is the nearest so far, and the search continues from x
    + beta (x_{i+1} - x). Epsilon does not influence the search. The nearest point found counts if it lies within
    epsilon; otherwise the attack returns the image.

    The target t of a round is the class of rank `round % targets` after the label in the logits of the image. The first
    round of each target starts at the image; restarts start at noise of length epsilon / 2 around it. (The official
    code takes half of the distance found before, if smaller; here rounds are independent.) Targeted runs: f = z_t - max
    of the others for the given t, and all rounds but the first start at noise.

    Each step takes a forward and backward pass at x_i, and a forward pass to test x_{i+1}.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: 10.0 * (images[:, 0, 0] - 0.5)  # two classes: which of two channels is brighter
        >>> images = np.array([[0.6, 0.4], [0.9, 0.1]], "float32").reshape(2, 1, 1, 2)
        >>> attack = robust.attacks.FAB(robust.attacks.ThreatModel(epsilon=0.2), steps=10)
        >>> result = robust.attacks.run_attack(attack, predict, images, np.array([0, 0]))
        >>> result.success.tolist(), bool(result.distance[0] <= 0.2 + 1e-6)
        ([True, False], True)

    Args:
        threat: the threat model, with its radius.
        targets: number of classes, ranked after the label, to aim at, >= 1; at most k - 1 are.
        restarts: rounds per target, >= 1.
        steps: per round, >= 1.
        alpha_max: largest weight of the pull back to the image, in (0, 1].
        eta: length of a step relative to the distance from the plane, > 0; above 1 it overshoots.
        beta: share of the perturbation that is kept after a success, in (0, 1].

    Raises:
        ValueError: a value out of its range.

    Source:
        Croce & Hein 2020, https://arxiv.org/abs/1907.02044; targeted as in AutoAttack,
        https://arxiv.org/abs/2003.01690, which uses 9 targets.
    """

    needs_answers = True  # its candidate is the nearest misclassified point
    name = "fab_t"
    objective = "boundary_of_target"  # for the report

    def __init__(
        self,
        threat: ThreatModel | None = None,
        *,
        targets: int = 9,
        restarts: int = 1,
        steps: int = 100,
        alpha_max: float = 0.1,
        eta: float = 1.05,
        beta: float = 0.9,
    ):
        self.threat = required_threat(threat, type(self).__name__)
        self.targets = targets
        self.restarts = restarts
        self.steps = steps
        self.alpha_max = alpha_max
        self.eta = eta
        self.beta = beta
        self._check()

    def maximize(self, objective: Callable, inputs, key: tf.Tensor):
        """Raise NotImplementedError: FAB maximizes no objective other than the class boundary's."""
        raise NotImplementedError(
            f"{type(self).__name__} searches for the boundary between classes and maximizes no other "
            "objective; use PGD in training."
        )

    def rounds(self, class_count: int) -> int:
        """Return restarts x targets."""
        return self.restarts * self._target_count(class_count)

    def round_passes(self, class_count: int) -> tuple[int, int]:
        """Return two forward passes and a backward pass per step, and the forward pass that ranks the classes."""
        return 2 * self.steps + 1, self.steps

    def start(self, predict, inputs, goal, keys, rounds):
        """Start at the image, or at noise around it in restarts; see `Attack.start`."""
        target, restart = self._aim(predict, inputs, goal, rounds)
        point = tf.identity(inputs)
        if self.restarts > 1 or goal.targets is not None:
            sampler = randomness.uniform(-1.0, 1.0) if self.threat.norm == "linf" else randomness.normal()
            noise = randomness.draw(sampler, keys, shape_of(inputs))
            point = select(restart > 0, self._shifted(inputs, noise), inputs)
        far = tf.fill(tf.shape(goal.labels), np.float32(np.inf))
        success = tf.zeros_like(goal.labels, tf.bool)
        copies = {"image": tf.identity(inputs), "nearest": tf.identity(inputs)}
        return {**copies, "point": point, "distance": far, "found": success, "target": target}

    def advance(self, predict, inputs, goal, rounds, state, count):
        """Take `count` steps of FAB; see `Attack.advance`."""

        def body(step, point, nearest, distance):
            moved = self._move(inputs, point, *self._plane(predict, goal, state["target"], point))
            reached = goal.reached(predict(moved))
            length = self.threat.distance(inputs, moved)
            nearer = reached & (length < distance)
            nearest, distance = select(nearer, moved, nearest), tf.where(nearer, length, distance)
            point = select(reached, inputs + self.beta * (moved - inputs), moved)
            return step + 1, tf.ensure_shape(point, inputs.shape), tf.ensure_shape(nearest, inputs.shape), distance

        _, point, nearest, distance = tf.while_loop(
            lambda step, *_: step < count,
            body,
            (tf.constant(0), state["point"], state["nearest"], state["distance"]),
            parallel_iterations=1,
        )
        success = distance <= self.threat.epsilon * _INSIDE
        return {**state, "point": point, "nearest": nearest, "distance": distance, "found": success}

    def candidate(self, state):
        """Return the nearest misclassified point if it lies within epsilon, else the image."""
        # A point beyond epsilon is not returned, although its projection might succeed, as in the official code.
        return select(state["found"], state["nearest"], state["image"])

    def refuse(self, state, refused):
        """Discard the nearest point where its verification failed; see `Attack.refuse`."""
        # Otherwise the same point would be verified again until it fails by chance.
        nearest = select(refused, state["image"], state["nearest"])
        distance = tf.where(refused, np.float32(np.inf), state["distance"])
        return super().refuse(state, refused) | {"nearest": nearest, "distance": distance}

    def _aim(self, predict, inputs, goal, rounds):
        """Return the target class of a round and the number of its restart: int32 [b] each."""
        if goal.targets is not None:
            return goal.targets, rounds
        logits = predict(inputs)
        is_label = tf.one_hot(goal.labels, logits.shape[-1], on_value=True, off_value=False, dtype=tf.bool)
        count = self._target_count(logits.shape[-1])
        ranked = tf.math.top_k(tf.where(is_label, logits.dtype.min, logits), count).indices
        return tf.gather(ranked, rounds % count, batch_dims=1), rounds // count

    def _plane(self, predict, goal, target, point):
        """Return (f [b], w [b, ...]): the distance of the point beyond the boundary in logits, and its gradient."""

        def difference(points):
            logits = predict(points)
            if goal.targets is not None:
                return goal.margin(logits)
            return tf.gather(logits, target, batch_dims=1) - tf.gather(logits, goal.labels, batch_dims=1)

        return input_gradient(difference, point)

    def _move(self, inputs, point, excess, normal):
        """Return x_{i+1} of the class docstring from f and w at `point`."""
        axes = list(range(1, inputs.shape.rank))
        both = tf.concat([point, inputs], 0), tf.concat([normal, normal], 0)
        # The offset at the image is computed without <w, x> itself, next to which a small f would be lost to rounding.
        excess = tf.concat([excess, excess + tf.reduce_sum(normal * (inputs - point), axes)], 0)
        moves = hyperplane.move(*both, excess, self.threat.norm, *self.threat.bounds)
        lengths = tf.maximum(norms.norm(moves, self.threat.norm), _SHORTEST)
        (onto, from_image), (near, far) = tf.split(moves, 2), tf.split(lengths, 2)
        pull = by_example(tf.minimum(near / (near + far), self.alpha_max), inputs)
        moved = (1.0 - pull) * (point + self.eta * onto) + pull * (inputs + self.eta * from_image)
        # Where a model overflows, the point stays instead of becoming NaN.
        moved = tf.where(tf.math.is_nan(moved), point, moved)
        return tf.ensure_shape(tf.clip_by_value(moved, *self.threat.bounds), inputs.shape)

    def _shifted(self, inputs, noise):
        """Add noise of length epsilon / 2 to the inputs, inside the box."""
        length = by_example(norms.norm(noise, self.threat.norm), inputs)
        shift = noise * tf.math.divide_no_nan(0.5 * self.threat.epsilon, length)
        return tf.clip_by_value(inputs + shift, *self.threat.bounds)

    def _target_count(self, class_count: int) -> int:
        return min(self.targets, class_count - 1)

    def _check(self):
        where = type(self).__name__
        checks.check_counts(self, "targets", "restarts", "steps")
        for name in ("alpha_max", "beta"):
            value = getattr(self, name)
            if not 0 < value <= 1:
                raise InputError(f"{where}.{name} is {value!r}; it is a number above 0, at most 1.")
        if not self.eta > 0:
            raise InputError(f"{where}.eta is {self.eta!r}; it is a number > 0, 1 just reaches the plane.")


@keras.saving.register_keras_serializable(package="tfrobust")
class FABUntargeted(FAB):
    """FAB as first published: each step aims at the class whose linearized boundary is nearest.

    As `FAB` with f = z_c - z_y for the class c with the smallest |f_c| / |w_c|, measured in the dual norm. A step takes
    one backward pass per class, so the targeted version is cheaper for many classes. Arguments as for `FAB`, without
    `targets`.

    Example:
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.FABUntargeted(robust.attacks.ThreatModel(norm="l2", epsilon=0.5), restarts=5)
        >>> attack.rounds(class_count=10)
        5

    Source:
        Croce & Hein 2020, https://arxiv.org/abs/1907.02044, algorithm 1.
    """

    name = "fab"
    objective = "nearest_boundary"  # for the report

    def __init__(
        self,
        threat: ThreatModel | None = None,
        *,
        restarts: int = 1,
        steps: int = 100,
        alpha_max: float = 0.1,
        eta: float = 1.05,
        beta: float = 0.9,
    ):
        super().__init__(threat, targets=1, restarts=restarts, steps=steps, alpha_max=alpha_max, eta=eta, beta=beta)

    def round_passes(self, class_count: int) -> tuple[int, int]:
        """Return two forward passes per step, and a backward pass per class."""
        return 2 * self.steps, class_count * self.steps

    def _aim(self, predict, inputs, goal, rounds):
        if goal.targets is not None:
            raise InputError("FABUntargeted cannot reach a given class: use FAB for targeted runs.")
        return goal.labels, rounds

    def _plane(self, predict, goal, target, point):
        logits, pull_back = linearized(predict, point)
        class_count = logits.shape[-1]
        one_hot = tf.one_hot(goal.labels, class_count)
        differences = logits - tf.gather(logits, goal.labels, batch_dims=1)[:, None]

        def consider(number, ratio, excess, normal):
            classes = tf.fill(tf.shape(goal.labels), number)
            gradient = pull_back(tf.one_hot(classes, class_count) - one_hot)
            difference = differences[:, number]
            away = tf.abs(difference) / (1e-12 + norms.dual_norm(gradient, self.threat.norm))
            nearer = (away < ratio) & (classes != goal.labels)
            normal = tf.ensure_shape(select(nearer, gradient, normal), point.shape)
            return number + 1, tf.where(nearer, away, ratio), tf.where(nearer, difference, excess), normal

        none = tf.zeros_like(differences[:, 0])
        _, _, excess, normal = tf.while_loop(
            lambda number, *_: number < class_count,
            consider,
            (tf.constant(0), none + np.float32(np.inf), none, tf.zeros_like(point)),
            parallel_iterations=1,
        )
        return excess, normal
