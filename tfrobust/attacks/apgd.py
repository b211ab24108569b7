"""Auto-PGD: projected gradient ascent with adaptive step size, on three losses.

A round consists of turns (`apgd_steps` has their schedule, and the moves of each norm):

    _begin, _enter                  the start, and the state of a round
    _turn, for every example that is due:
        evaluate                    loss, gradient and logits at the point, by one pass; keep the best point
        moves.note                  count the steps in which the loss rose
        moves.at_checkpoint         little progress: halve the step (L1: adapt the sparsity), go back to the best point
        moves.move                  one step
        _next_phase                 at the end of a phase: from the best point into the smaller ball instead
"""

from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.attacks.shared import checks, objectives
from tfrobust.attacks.shared.apgd_steps import Momentum, Schedule, Sparse, schedule
from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.shared.threat import ThreatModel, required_threat
from tfrobust.errors import InputError
from tfrobust.ops import norms, randomness
from tfrobust.ops.gradients import finite, input_gradient
from tfrobust.ops.shapes import by_example, select, shape_of


class APGD(Attack):
    """Auto-PGD without a loss: the search that the three attacks below share; each defines the loss for evaluation.

    Linf, L2: z = P(x_i + step v(x_i)), x_{i+1} = P(x_i + 3/4 (z - x_i) + 1/4 (x_i - x_{i-1})), with v the steepest
    direction and step = 2 epsilon at first. At fixed iterations (checkpoints) the attack checks its progress. If the
    loss rose in at most 3/4 of the steps, or if neither the best loss nor the step has changed since the last
    checkpoint, the step is halved and the search restarts from the best point. L1: sparse steps without momentum, in
    balls of radius 3, 2 and 1 epsilon.

    With a threat model's `max_frames`, a search changes the frames in which the gradient of the loss (in evaluation of
    the cross-entropy) at its random start is largest in the dual norm; see `ThreatModel.focus`.

    Training: maximizes any objective and returns the point where it was largest; one start, whatever `restarts` is.
    Evaluation: the start and all iterates are tested with the logits that their own step computes anyway, the last
    point by the verification. The first misclassified point ends the search. In L1 only points of the last ball count.

    Args:
        threat: the threat model, with its radius.
        steps: gradient steps per restart, >= 1.
        restarts: runs from new random starts, for the remaining examples, >= 1.
        expectation_samples: passes whose gradients are averaged in each step, for stochastic models, >= 1. The logits
            of the last pass decide whether the point is misclassified.
        large_radii: L1: search in 3 epsilon for 30 % of the steps, in 2 epsilon for 30 %, then in epsilon. None: True
            in L1.

    Raises:
        ValueError: a value out of its range, or large_radii outside L1.

    Source:
        Croce & Hein 2020, https://arxiv.org/abs/2003.01690, algorithm 1; L1: Croce & Hein 2021,
        https://arxiv.org/abs/2103.01208. Where paper and authors' code differ, this follows the code: the steps
        compared at the first checkpoint, and scaling before clipping as the L2 projection. Three differences from the
        code: in L1, rounding residues of an unchanged pixel do not count as changes; gradients, of which only the
        directions are used, are rescaled first, so that the smallest do not underflow; and the cross-entropy of a label
        whose probability rounds to 1 does not round to 0.
    """

    bounds_frames = True

    def __init__(
        self,
        threat: ThreatModel | None = None,
        *,
        steps: int = 100,
        restarts: int = 1,
        expectation_samples: int = 1,
        large_radii: bool | None = None,
    ):
        self.threat = required_threat(threat, type(self).__name__)
        self.steps = steps
        self.restarts = restarts
        self.expectation_samples = expectation_samples
        self.large_radii = large_radii
        checks.check_counts(self, "steps", "restarts", "expectation_samples")
        if large_radii and self.threat.norm != "l1":
            name, norm = type(self).__name__, self.threat.norm
            raise InputError(f"{name}.large_radii is a schedule for norm 'l1'; the threat has {norm!r}.")

    def maximize(self, objective: Callable, inputs, key: tf.Tensor):
        """Maximize the objective and return the point where it was largest; see `Attack.perturb`."""
        if not isinstance(inputs, tf.Tensor):
            raise InputError(
                f"{type(self).__name__} perturbs one batch of images at a time; use PGD for a nest of views."
            )

        checks.check_views(self, inputs)

        def evaluate(points):
            values, gradient = input_gradient(objective, points)
            return values, gradient, tf.zeros_like(values, tf.bool)

        start = self._start_in_frames(objective, inputs, self._begin(inputs, randomness.fold(key, "start")))
        state = self._enter(inputs, start)
        state = self._search(inputs, evaluate, state, self.steps)
        last = tf.cast(objective(state["point"]), tf.float32)
        return select(last > state["best_loss"], state["point"], state["best_point"])

    def rounds(self, class_count: int) -> int:
        """Return the number of restarts."""
        return self.restarts

    def round_passes(self, class_count: int) -> tuple[int, int]:
        """Return one pass per turn and expectation sample, and that which chooses the frames of the start."""
        passes = self.expectation_samples * self._schedule().turns + (self.threat.max_frames is not None)
        return passes, passes

    def start(self, predict, inputs, goal, keys, rounds):
        """Sample a starting point from the authors' distribution; see `Attack.start`."""

        def objective(points):
            return goal.cross_entropy(objectives.in_range(predict(points)))

        return self._enter(inputs, self._start_in_frames(objective, inputs, self._begin(inputs, keys)))

    def advance(self, predict, inputs, goal, rounds, state, count):
        """Take `count` steps of Auto-PGD; see `Attack.advance`."""
        single = self.expectation_samples == 1

        def objective(points):
            logits = predict(points)
            # Averaged gradients must keep their relative sizes, so each pass is left unscaled.
            return self._values(objectives.in_range(logits) if single else logits, goal, state), logits

        def evaluate(points):
            values, gradient, logits = input_gradient(objective, points, has_auxiliary=True)
            return values, gradient, goal.reached(logits)

        return self._search(inputs, evaluate if single else self._average_gradient(evaluate), state, count)

    def candidate(self, state):
        """Return the current point: the search stops moving at a misclassified one."""
        return state["point"]

    def best_point(self, state):
        """Return the point of largest loss within the last radius."""
        return state["best_point"]

    def fallback(self, class_count: int) -> str:
        """Return the loss used where the own one is not defined for so few classes, or "" where it is defined."""
        return ""

    def _values(self, logits, goal, state):
        """Return the loss that evaluation maximizes, [b], from the logits of the points."""
        raise NotImplementedError

    def _begin(self, inputs, key):
        """Sample a start as the authors do: on the surface of the ball, then clipped to the box, in all frames.

        Linf: uniform, divided by its largest entry; L2: normal, divided by its norm; L1: normal, projected.
        """
        normal = self.threat.norm != "linf"
        sampler = randomness.normal() if normal else randomness.uniform(-1.0, 1.0)
        return self._noisy_start(inputs, randomness.draw(sampler, key, shape_of(inputs)))

    def _noisy_start(self, inputs, noise):
        low, high = self.threat.bounds
        radius = float(self._schedule().epsilon[0])
        if self.threat.norm == "l1":
            return self.threat.project_ball(inputs, inputs + noise, radius)
        parts = self.threat.parts(noise)
        size = by_example(norms.norm(parts, self.threat.norm), parts)
        noise = self.threat.joined(parts / (size + 1e-12), noise)
        return tf.clip_by_value(inputs + radius * noise, low, high)

    def _start_in_frames(self, objective: Callable, inputs, start):
        """Return the start, with `max_frames` inside the threat set: in the frames of the largest gradients there."""
        if self.threat.max_frames is None:
            return start
        _, gradient = input_gradient(objective, start)
        return self.threat.settle(inputs, start, finite(gradient))

    def _enter(self, inputs, point):
        """Return the state of a round that begins at `point`."""
        count, radius = tf.shape(point)[0], float(self._schedule().epsilon[0])
        zeros = tf.zeros([count], tf.int32)
        return {
            "point": point,
            "found": tf.zeros([count], tf.bool),
            # Steps requested so far, and turns done; each phase has one turn more than steps.
            "requested": zeros,
            "turn": zeros,
            "best_point": point,
            "best_gradient": tf.zeros_like(point),
            "best_loss": tf.fill([count], -float("inf")),
        } | self._moves(inputs).begin(point, tf.fill([count], radius))

    def _search(self, inputs, evaluate, state, count):
        """Return the state `count` steps later; `evaluate`: points -> (values [b], gradient, reached [b])."""
        plan, moves = self._schedule(), self._moves(inputs)
        requested = state["requested"] + count
        # The engine counts steps, and each phase but the last has one turn more. An example takes these extra turns
        # when all of its steps have been requested. Meanwhile others run ahead of their requested steps, and wait at
        # the end of the round.
        due = select(requested >= self.steps, tf.fill(tf.shape(requested), plan.turns), requested)

        def body(old):
            new = self._turn(inputs, evaluate, plan, moves, old)
            return ({name: tf.ensure_shape(new[name], old[name].shape) for name in old},)

        (state,) = tf.while_loop(
            lambda state: tf.reduce_any(state["turn"] < due),
            body,
            (state | {"requested": requested},),
            parallel_iterations=1,
        )
        return state

    def _turn(self, inputs, evaluate, plan: Schedule, moves, state):
        """Evaluate the current point, update the state accordingly, and take one step."""
        here, turn = state["point"], state["turn"]
        values, gradient, reached = evaluate(here)
        gradient, better = finite(gradient), values > state["best_loss"]
        state = state | {
            "best_loss": select(better, values, state["best_loss"]),
            "best_point": select(better, here, state["best_point"]),
            "best_gradient": select(better, gradient, state["best_gradient"]),
            "found": state["found"]
            | (reached & tf.gather(plan.is_final, turn) if self.resolved_large_radii else reached),
        }
        state |= moves.note(state, values)
        epsilon = tf.gather(plan.epsilon, turn) if self.resolved_large_radii else self.threat.epsilon
        point, gradient, changed = _at_checkpoint(moves, state, gradient, tf.gather(plan.window, turn), epsilon)
        state |= changed
        gradient = self.threat.focus(inputs, point, gradient)
        moved, remembered = moves.move(state, point, gradient, epsilon)
        moved = self.threat.settle(inputs, moved, gradient)
        state |= remembered
        if self.resolved_large_radii:
            moved, entered = self._next_phase(inputs, plan, moves, state, moved)
            state |= entered
        # A misclassified point is the candidate, so it must not move; nor may examples that wait at the end.
        stays = state["found"] | (turn >= plan.turns)
        return state | {"point": select(stays, here, moved), "turn": tf.minimum(turn + 1, plan.turns)}

    def _next_phase(self, inputs, plan, moves, state, moved):
        """Move examples at the end of a phase to their best point, projected into the ball of the next phase."""
        ends = tf.gather(plan.ends, state["turn"])
        names = ("best_loss", *moves.entries)

        def enter():
            epsilon = tf.gather(plan.epsilon, tf.minimum(state["turn"] + 1, plan.turns))
            point = self.threat.project_ball(inputs, state["best_point"], epsilon)
            fresh = moves.begin(point, epsilon) | {"best_loss": tf.fill(tf.shape(epsilon), -float("inf"))}
            return select(ends, point, moved), {name: select(ends, fresh[name], state[name]) for name in names}

        return tf.cond(tf.reduce_any(ends), enter, lambda: (moved, {name: state[name] for name in names}))

    @property
    def resolved_large_radii(self) -> bool:
        """True if the search begins in larger balls; resolves `large_radii=None`."""
        return self.threat.norm == "l1" and self.large_radii is not False

    def _schedule(self) -> Schedule:
        return schedule(self.threat.norm, self.threat.epsilon, self.steps, self.resolved_large_radii)

    def _moves(self, inputs):
        return (
            Sparse(self.threat, inputs, self.resolved_large_radii)
            if self.threat.norm == "l1"
            else Momentum(self.threat, inputs)
        )

    def _average_gradient(self, evaluate: Callable) -> Callable:
        """Average gradients over passes; values and logits are those of the last pass."""

        def average(points):
            def body(number, total, *_):
                values, gradient, reached = evaluate(points)
                return number + 1, tf.ensure_shape(total + gradient, points.shape), values, reached

            nothing = tf.zeros([tf.shape(points)[0]])
            _, total, values, reached = tf.while_loop(
                lambda number, *_: number < self.expectation_samples,
                body,
                (tf.constant(0), tf.zeros_like(points), nothing, tf.cast(nothing, tf.bool)),
                parallel_iterations=1,
            )
            return values, total / self.expectation_samples, reached

        return average


@keras.saving.register_keras_serializable(package="tfrobust")
class APGDCrossEntropy(APGD):
    """Auto-PGD on the cross-entropy: the first member of AutoAttack.

    Arguments as for `APGD`.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: 10.0 * images[:, 0, 0]  # two classes: which of two channels is brighter
        >>> images = np.array([[0.6, 0.25], [1.0, 0.0]], "float32").reshape(2, 1, 1, 2)
        >>> attack = robust.attacks.APGDCrossEntropy(robust.attacks.ThreatModel(epsilon=0.2), steps=10)
        >>> robust.attacks.run_attack(attack, predict, images, np.array([0, 0])).success.tolist()
        [True, False]

    Source:
        Croce & Hein 2020, https://arxiv.org/abs/2003.01690, algorithm 1.
    """

    name = "apgd_ce"
    objective = "cross_entropy"  # for the report

    def _values(self, logits, goal, state):
        return goal.cross_entropy(logits)


@keras.saving.register_keras_serializable(package="tfrobust")
class APGDDLR(APGD):
    """Auto-PGD on the difference of logits ratio (DLR), whose gradient does not depend on the scale of the logits.

    Arguments as for `APGD`.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: 1e6 * images[:, 0, 0]  # three classes; the cross-entropy is flat here
        >>> images = np.array([[0.6, 0.25, 0.0], [1.0, 0.0, 0.0]], "float32").reshape(2, 1, 1, 3)
        >>> attack = robust.attacks.APGDDLR(robust.attacks.ThreatModel(epsilon=0.2), steps=10)
        >>> robust.attacks.run_attack(attack, predict, images, np.array([0, 0])).success.tolist()
        [True, False]

    Source:
        Croce & Hein 2020, https://arxiv.org/abs/2003.01690, eq. 6.
    """

    name = "apgd_dlr"
    objective = "dlr"

    def fallback(self, class_count: int) -> str:
        """Return the loss used for two classes, or "" from three on."""
        return "" if class_count >= 3 else "with 2 classes the DLR loss has no third logit: the plain margin"

    def _values(self, logits, goal, state):
        if goal.targets is None:
            return objectives.dlr_of(logits, goal.labels)
        return -objectives.dlr_of(logits, goal.targets)


@keras.saving.register_keras_serializable(package="tfrobust")
class APGDTargeted(APGD):
    """Auto-PGD on the targeted difference of logits ratio, against the most likely wrong classes one after the other.

    Round r aims at the class ranked second, third, ... by the logits of the clean image; any wrong class counts. In a
    targeted run every round aims at the given target, with `dlr` as loss.

    Example:
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.APGDTargeted(robust.attacks.ThreatModel(epsilon=8 / 255))
        >>> attack.rounds(class_count=100), attack.rounds(class_count=4), attack.fallback(class_count=3)
        (9, 3, 'with 3 classes the targeted DLR loss has no fourth logit: divided by z_(1) - z_(3)')

    Args beyond those of APGDCrossEntropy:
        restarts: runs per target.
        targets: number of classes to aim at, >= 1; at most all wrong classes are.

    Source:
        Croce & Hein 2020, https://arxiv.org/abs/2003.01690, eq. 7; AutoAttack's second member.
    """

    name = "apgd_t"
    objective = "targeted_dlr"

    def __init__(self, threat: ThreatModel | None = None, *, targets: int = 9, **kwargs):
        super().__init__(threat, **kwargs)
        self.targets = targets
        checks.check_counts(self, "targets")

    def rounds(self, class_count: int) -> int:
        """Return restarts x targets."""
        return self.restarts * self._target_count(class_count)

    def round_passes(self, class_count: int) -> tuple[int, int]:
        """Return the passes of `APGD`, and the forward pass that ranks the classes."""
        forward, backward = super().round_passes(class_count)
        return forward + 1, backward

    def start(self, predict, inputs, goal, keys, rounds):
        """Start as in `APGD` and choose the target class of the round."""
        state = super().start(predict, inputs, goal, keys, rounds)
        if goal.targets is not None:
            return state
        ranked = self._ranked(predict, inputs, goal.labels)
        return state | {"target": tf.gather(ranked, rounds % ranked.shape[1], batch_dims=1)}

    def _target_count(self, class_count: int) -> int:
        return min(self.targets, class_count - 1)

    def _ranked(self, predict, inputs, labels):
        """Return the classes to aim at, the likeliest first, never the label: int32 [b, targets]."""
        logits = predict(inputs)
        # A surrogate or a stochastic model may rank another class than the label first.
        is_label = tf.one_hot(labels, logits.shape[-1], True, False, dtype=tf.bool)
        rivals = tf.where(is_label, logits.dtype.min, logits)
        return tf.math.top_k(rivals, self._target_count(logits.shape[-1])).indices

    def fallback(self, class_count: int) -> str:
        """Return the loss used for two or three classes, or "" from four on."""
        if class_count >= 4:
            return ""
        if class_count == 3:
            return "with 3 classes the targeted DLR loss has no fourth logit: divided by z_(1) - z_(3)"
        return "with 2 classes the targeted DLR loss has no third logit: the plain difference of logits"

    def _values(self, logits, goal, state):
        if goal.targets is None:
            return objectives.targeted_dlr_of(logits, goal.labels, state["target"])
        return -objectives.dlr_of(logits, goal.targets)


def _at_checkpoint(moves, state, gradient, window, epsilon):
    """Call `moves.at_checkpoint` if any example is at a checkpoint."""
    return tf.cond(
        tf.reduce_any(window > 0),
        lambda: moves.at_checkpoint(state, gradient, window, epsilon),
        lambda: (state["point"], gradient, {name: state[name] for name in moves.checked}),
    )
