"""Gradient attacks with steps of fixed size: FGSM, PGD and its variants.

All are the loop of `PGD`, and each replaces some of its hooks:

    point = _begin(image)                           a random start, or the image itself
    repeat `steps` times:
        gradient, points, logits = _gradient(point) of `_values`, at the point or elsewhere (averaged, smoothed)
        keep the first of the points that reaches the goal
        direction, memory = _steer(gradient)        of the memory that `_memory` begins, such as a velocity
        point = _move(point, direction)             a step of `step_size`, projected onto ball and box
    candidate: the point that was kept, or else the last one
"""

import copy
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.attacks.shared import checks, objectives
from tfrobust.attacks.shared.attack import Attack
from tfrobust.attacks.shared.threat import ThreatModel, required_threat
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.losses import classification
from tfrobust.ops import randomness
from tfrobust.ops.gradients import finite, input_gradient
from tfrobust.ops.shapes import select, shape_of

# Default scale of a random start: the whole ball, or the standard deviation that TRADES uses.
_START_SCALES = {"uniform": 1.0, "gaussian": 0.001, "none": 0.0}


@keras.saving.register_keras_serializable(package="tfrobust")
class PGD(Attack):
    """Projected gradient ascent (Madry et al., 2018).

    x_0 = a random start; x_{i+1} = P(x_i + step_size v(x_i)), with v the steepest direction of norm 1 (L1: a sparse
    direction that respects the box) and P the exact projection onto ball and pixel box.

    With a threat model's `max_frames`, a search changes the frames in which the gradient at its random start, or else
    at the clip, is largest in the dual norm; see `ThreatModel.focus`. The start differs from the clip in these only.

    Training: returns the last iterate, as in Madry et al. and the released ASCL and TRADES code; one start, whatever
    `restarts` is. Evaluation: maximizes the cross-entropy. Every iterate is tested with the logits that its own step
    computes anyway, and the first misclassified one is kept, otherwise the last. So it finds at least what the last
    iterate alone would, at no further pass. (With a stochastic model, a point that is correctly classified when
    predicted again is dropped, and the search continues.)

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: 10.0 * (images[:, 0, 0] - 0.5)  # two classes: which of two channels is brighter
        >>> images = np.array([[0.6, 0.4], [1.0, 0.0]], "float32").reshape(2, 1, 1, 2)
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.2), steps=4)
        >>> result = robust.attacks.run_attack(attack, predict, images, np.array([0, 0]))
        >>> result.success.tolist(), bool(np.abs(result.adversarial - images).max() <= 0.2 + 1e-6)
        ([True, False], True)

    Args:
        threat: the threat model, with its radius.
        steps: gradient steps per restart, >= 1.
        step_size: length of a step in the threat's norm, in pixel units; None: 2.5 epsilon / steps.
        random_start: 'uniform' in the ball, 'gaussian' noise around the image (TRADES), or 'none'.
        start_scale: 'uniform': share of epsilon, default 1; 'gaussian': standard deviation in pixel units, default
            0.001 (TRADES).
        restarts: runs from new random starts, for the remaining examples, >= 1; several need a random start.

    Raises:
        ValueError: a value out of its range.

    Source:
        Madry et al. 2018, https://arxiv.org/abs/1706.06083. The default step size is theirs: 2.5 epsilon / steps.
    """

    name = "pgd"
    bounds_frames = True

    def __init__(
        self,
        threat: ThreatModel | None = None,
        *,
        steps: int = 100,
        step_size: float | None = None,
        random_start: str = "uniform",
        start_scale: float | None = None,
        restarts: int = 1,
    ):
        self.threat = required_threat(threat, type(self).__name__)
        self.steps = steps
        self.step_size = step_size
        self.random_start = random_start
        self.start_scale = start_scale
        self.restarts = restarts
        self._check()

    @property
    def resolved_step_size(self) -> float:
        """Length of a step, also where `step_size` is None."""
        return 2.5 * self.threat.epsilon / self.steps if self.step_size is None else self.step_size

    def scaled(self, share: tf.Tensor) -> "PGD":
        """Return this attack with a share of its radius and of its step, for `perturb` inside a training step.

        Args:
            share: float32 scalar, > 0.
        """
        smaller = copy.copy(self)
        smaller.threat = self.threat.scaled(share)
        smaller.step_size = None if self.step_size is None else share * self.step_size
        return smaller

    def maximize(self, objective: Callable, inputs, key: tf.Tensor):
        """Maximize the objective and return the last iterate; see `Attack.perturb`."""
        checks.check_views(self, inputs)
        leaves = tf.nest.flatten(inputs)
        starts = [self._begin(leaf, randomness.fold(key, "start", number)) for number, leaf in enumerate(leaves)]

        def of_leaves(points):
            return objective(tf.nest.pack_sequence_as(inputs, points)), None

        def body(step, points, memories):
            gradients, _, _ = self._gradient(of_leaves, leaves, points, memories)
            steered = [self._steer(finite(slope), memory) for slope, memory in zip(gradients, memories, strict=True)]
            directions, memories = zip(*steered, strict=True)
            moved = map(self._move, leaves, points, directions, memories)
            points = [tf.ensure_shape(new, old.shape) for new, old in zip(moved, leaves, strict=True)]
            return step + 1, points, list(memories)

        memories = [self._memory(leaf) for leaf in leaves]
        starts = self._starts_in_frames(of_leaves, leaves, starts, memories)
        _, ends, _ = tf.while_loop(
            lambda step, *_: step < self.steps, body, (tf.constant(0), starts, memories), parallel_iterations=1
        )
        return tf.nest.pack_sequence_as(inputs, ends)

    def rounds(self, class_count: int) -> int:
        """Return the number of restarts."""
        return self.restarts

    def round_passes(self, class_count: int) -> tuple[int, int]:
        """Return one pass per step, and that which chooses the frames of the start."""
        chooses = self.threat.max_frames is not None and self.random_start != "none"
        return self.steps + chooses, self.steps + chooses

    def start(self, predict, inputs, goal, keys, rounds):
        """Sample a starting point; see `Attack.start`."""
        memory = self._memory(inputs)
        objective = self._objective(predict, goal, rounds, memory)
        start = self._begin(inputs, randomness.fold(keys, "start", 0))
        (point,) = self._starts_in_frames(objective, [inputs], [start], [memory])
        return {"point": point, "kept": point, "found": tf.zeros_like(goal.labels, tf.bool), **memory}

    def advance(self, predict, inputs, goal, rounds, state, count):
        """Take `count` gradient steps; see `Attack.advance`."""

        def body(step, state):
            point, candidate, success = (state[name] for name in ("point", "kept", "found"))
            memory = {name: state[name] for name in self._memory(inputs)}
            objective = self._objective(predict, goal, rounds, memory)
            (gradient,), (evaluated,), logits = self._gradient(objective, [inputs], [point], [memory])
            reached = goal.reached(logits)
            candidate = select(reached & ~success, evaluated, candidate)
            direction, memory = self._steer(finite(gradient), memory)
            moved = tf.ensure_shape(self._move(inputs, point, direction, memory), inputs.shape)
            return step + 1, {"point": moved, "kept": candidate, "found": success | reached, **memory}

        _, state = tf.while_loop(
            lambda step, _: step < count, body, (tf.constant(0), dict(state)), parallel_iterations=1
        )
        return state

    def candidate(self, state):
        """Return the first misclassified point that was evaluated, or the current point if there is none."""
        return select(state["found"], state["kept"], state["point"])

    def _values(self, logits, goal, rounds, memory):
        """Return the loss that evaluation maximizes, [b], from the logits of the points."""
        return goal.cross_entropy(logits)

    def _objective(self, predict, goal, rounds, memory) -> Callable:
        """Return the objective of evaluation: points -> (values [b], logits [b, k])."""

        def objective(points):
            logits = predict(*points)
            return self._values(objectives.in_range(logits), goal, rounds, memory), logits

        return objective

    def _begin(self, inputs, key):
        """Return the start of a search, which may change all frames; see `_starts_in_frames`."""
        if self.random_start == "none":
            return tf.identity(inputs)
        threat = self.threat.of_all_frames()
        scale = _START_SCALES[self.random_start] if self.start_scale is None else self.start_scale
        if self.random_start == "uniform":
            return threat.random_start(inputs, key, scale)
        return threat.project(inputs, inputs + randomness.draw(randomness.normal(scale), key, shape_of(inputs)))

    def _starts_in_frames(self, objective: Callable, leaves: list, starts: list, memories: list[dict]) -> list:
        """Return the starts, with `max_frames` inside the threat set: in the frames of the largest gradients there."""
        if self.threat.max_frames is None or self.random_start == "none":
            return starts
        gradients, _, _ = self._gradient(objective, leaves, starts, memories)
        return list(map(self.threat.settle, leaves, starts, map(finite, gradients)))

    def _gradient(self, objective: Callable, leaves: list, points: list, memories: list[dict]) -> tuple:
        """Compute the gradient of a step; the hook of attacks that take it elsewhere, average or smooth it.

        Args:
            objective: points -> (values float32 [b], logits [b, k] or, in training, None).
            leaves: the clean inputs, float32 [b, ...] each: one, or the leaves of a nest.
            points: the current point of each leaf.
            memories: the memory of each leaf; see `_memory`.

        Returns:
            (the gradient of each leaf; the points with these logits, inside the threat set; the logits). Evaluation
            keeps the first of these points that is misclassified.
        """
        _, gradients, logits = input_gradient(objective, points, has_auxiliary=True)
        return gradients, points, logits

    def _memory(self, inputs) -> dict:
        """Return the initial memory: tensors [b, ...] by name that each step passes on besides the point."""
        return {}

    def _steer(self, gradient, memory: dict) -> tuple[tf.Tensor, dict]:
        """Return the direction to ascend, from the gradient and the memory, and the new memory."""
        return gradient, memory

    def _step_length(self, memory: dict):
        """Return the length of a step, a number or float32 [b], from the memory after `_steer`."""
        return self.resolved_step_size

    def _move(self, inputs, point, direction, memory):
        direction = self.threat.focus(inputs, point, direction)
        return self.threat.project(inputs, self.threat.step(point, direction, self._step_length(memory)))

    def _check(self):
        where = type(self).__name__
        checks.check_counts(self, "steps", "restarts")
        for name in ("step_size", "start_scale"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{where}.{name} is {value!r}; it is a number > 0, or None for the default.")
        require_choice(self.random_start, f"{where}.random_start", _START_SCALES)
        if self.random_start == "none" and self.restarts > 1:
            raise InputError(f"{where}: {self.restarts} restarts without a random start would all be the same.")


@keras.saving.register_keras_serializable(package="tfrobust")
class FGSM(PGD):
    """Fast gradient sign method: one step of length epsilon from the image, x + epsilon v(x), projected.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.FGSM(robust.attacks.ThreatModel(epsilon=0.25))
        >>> brightness = lambda images: tf.reduce_sum(images, axis=[1, 2, 3])  # any objective: here more light
        >>> images, key = tf.constant([[[[0.5]]], [[[1.0]]]]), tf.constant([0, 1])
        >>> tf.reshape(attack.perturb(brightness, images, key), [-1]).numpy().tolist()
        [0.75, 1.0]

    Args:
        threat: the threat model, with its radius.

    Source:
        Goodfellow et al. 2015, https://arxiv.org/abs/1412.6572 (Linf); the other norms step along their own
        steepest direction.
    """

    name = "fgsm"

    def __init__(self, threat: ThreatModel | None = None):
        threat = required_threat(threat, "FGSM")
        super().__init__(threat, steps=1, step_size=threat.epsilon, random_start="none")


@keras.saving.register_keras_serializable(package="tfrobust")
class MomentumPGD(PGD):
    """PGD with momentum: steps along a velocity, v_{i+1} = decay v_i + g_i / |g_i|_1, v_0 = 0.

    The step is in the steepest direction of the velocity (Linf: its sign; L2: itself, of length step_size; L1: as in
    PGD). The iterative method of the paper (MI-FGSM) is steps=10, step_size = epsilon / 10, random_start='none'; the
    defaults are those of PGD.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> predict = lambda images: 10.0 * (images[:, 0, 0] - 0.5)  # two classes: which of two channels is brighter
        >>> images = np.array([[0.6, 0.4], [1.0, 0.0]], "float32").reshape(2, 1, 1, 2)
        >>> attack = robust.attacks.MomentumPGD(robust.attacks.ThreatModel(epsilon=0.2), steps=4)
        >>> robust.attacks.run_attack(attack, predict, images, np.array([0, 0])).success.tolist()
        [True, False]

    Args beyond those of PGD:
        decay: share of the velocity that remains at each step, >= 0; 0 is PGD.

    Raises:
        ValueError: a value out of its range.

    Source:
        Dong et al. 2018, https://arxiv.org/abs/1710.06081, algorithm 1; its extension to L2.
    """

    name = "momentum_pgd"

    def __init__(self, threat: ThreatModel | None = None, *, decay: float = 1.0, **kwargs):
        super().__init__(threat, **kwargs)
        self.decay = decay
        if not 0 <= decay < float("inf"):
            raise InputError(f"MomentumPGD.decay is {decay!r}; it is a number >= 0, usually 1.")

    def _memory(self, inputs):
        return {"velocity": tf.zeros_like(inputs)}

    def _steer(self, gradient, memory):
        # Divided by the largest entry first, so that the smallest gradients do not underflow in the sum; non-finite
        # gradients are dropped.
        axes = list(range(1, gradient.shape.rank))
        gradient = gradient / tf.reduce_max(tf.abs(gradient), axes, keepdims=True)
        gradient /= tf.reduce_sum(tf.abs(gradient), axes, keepdims=True)
        gradient = tf.where(tf.math.is_finite(gradient), gradient, tf.zeros_like(gradient))
        velocity = tf.ensure_shape(self.decay * memory["velocity"] + gradient, memory["velocity"].shape)
        return velocity, {"velocity": velocity}


@keras.saving.register_keras_serializable(package="tfrobust")
class MultiTargetedPGD(PGD):
    """Multi-targeted PGD: per class one targeted PGD, which minimizes its cross-entropy from its own start.

    An example counts as robust only if no run succeeds; any wrong class counts as success, not the target alone. In
    training (`perturb`) there are no targets: it is PGD.

    Example:
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.MultiTargetedPGD(robust.attacks.ThreatModel(epsilon=8 / 255), steps=20)
        >>> attack.rounds(class_count=10)
        9

    Args beyond those of PGD:
        restarts: runs per target.
        include_true_class: True: also run the true class as a target, last.

    Source:
        Gowal et al. 2019, https://arxiv.org/abs/1910.09338; Bui et al. 2021, section 5 ("mPGD"). Its reference code
        (ADR) also runs the true class as target, which moves away from every error: `include_true_class`.
    """

    name = "multi_targeted_pgd"
    objective = "targeted_cross_entropy"  # for the report

    def __init__(self, threat: ThreatModel | None = None, *, include_true_class: bool = False, **kwargs):
        super().__init__(threat, **kwargs)
        self.include_true_class = include_true_class

    def rounds(self, class_count: int) -> int:
        """Return restarts x targets."""
        return self.restarts * self._targets(class_count)

    def _values(self, logits, goal, rounds, memory):
        if goal.targets is not None:
            raise InputError("MultiTargetedPGD aims at every class in turn: use PGD with targets.")
        class_count = logits.shape[-1]
        # Offsets 1 .. k-1 from the label are all other classes; offset k is the label again.
        targets = (goal.labels + 1 + rounds % self._targets(class_count)) % class_count
        return -classification.cross_entropy(logits, targets)

    def _targets(self, class_count: int) -> int:
        return class_count if self.include_true_class else class_count - 1
