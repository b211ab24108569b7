"""The contract of an attack: two faces, and success that no attack judges for itself."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, final

import numpy as np
import tensorflow as tf

from tfrobust.attacks import checks
from tfrobust.attacks.goal import Goal
from tfrobust.attacks.modes import as_predict
from tfrobust.attacks.threat import ThreatModel
from tfrobust.ops import randomness
from tfrobust.ops.configured import Configured, constructor_arguments
from tfrobust.ops.norms import KINDS
from tfrobust.structs import AttackResult


class Attack(Configured):
    """How to search a threat set.

    Training face: `perturb(objective, images, key)` raises any objective and returns the last point.

    Evaluation face: an attack is a number of *rounds* (restarts, targets) of `steps` steps each, spelled as
    `start` -> `advance` ... -> `candidate` on a state that is a dict of tensors [b, ...]. So a runner can
    stop after any step, take examples out and put others in. The state holds `found`, bool [b]: the attack
    believes to have a misclassified point; it only ends the search early. Whether it succeeded is decided by
    `judge`, which projects again and predicts again; where that says no, `refuse` takes it back and the search goes
    on (with a model that draws, one wrong answer proves little). Where the round has ended, what the state then
    stands for is judged, if that is another point; the clean image is judged before the first round only. Each claim
    is judged anew: of a model that draws, a longer search finds more points that are wrong twice by chance.

    Examples of one batch may stand at different steps, so whatever depends on the step is part of the state.

    Attributes of a subclass:
        name: in ids of measurements, `attack.<name>_<norm>_<epsilon>.accuracy`.
        needs_gradient: False for a black-box attack.
        minimal: True for one that looks for the nearest point, whatever epsilon is. It is judged in the pixel
            box alone; whoever counts successes compares the distances with epsilon.
        norms: in which it can search; constructors ask `checks.check_norm`.
        threat: where it may go.
        steps: of one round.
    """

    name: ClassVar[str] = ""
    needs_gradient: ClassVar[bool] = True
    minimal: ClassVar[bool] = False
    norms: ClassVar[tuple[str, ...]] = KINDS
    threat: ThreatModel
    steps: int

    @property
    def members(self) -> tuple["Attack", ...]:
        """The attacks of an ensemble, which run one after the other on what still stands; else ()."""
        return ()

    def perturb(self, objective: Callable, images, key: tf.Tensor):
        """Adversaries for training: the objective raised from a start, gradients stopped.

        Args:
            objective: images -> float [b], larger = worse. It gets the same nest as `images`.
            images: float32 [b, h, w, c], or a nest of such: one joint adversary, each leaf in its own ball
                with its own draws.
            key: int32 [2] (global batch) or [b, 2] (per example).

        Returns:
            float32 in the structure of `images`, inside the threat set, no gradient attached.

        Raises:
            ValueError: (outside of a tf.function, where values are known) bytes, or pixels out of the bounds.
        """
        raise NotImplementedError

    def rounds(self, class_count: int) -> int:
        """How many rounds an example may take that nothing breaks."""
        raise NotImplementedError

    def start(self, predict: Callable, images, goal: Goal, keys, rounds) -> dict:
        """The state before the first step of a round.

        Args:
            predict: float32 [b, ...] -> float32 logits [b, k].
            images: float32 [b, ...]; b is not known when the graph is made, the rest is.
            goal: int32 [b] labels and, if targeted, targets.
            keys: int32 [b, 2], one per example and round.
            rounds: int32 [b], which round each example is in, 0 <= round < `rounds(k)`.

        Returns:
            name -> tensor [b, ...], with `found`.
        """
        raise NotImplementedError

    def advance(self, predict: Callable, images, goal: Goal, rounds, state: dict, count) -> dict:
        """The state `count` (int32 scalar) steps later; arguments as in `start`."""
        raise NotImplementedError

    def candidate(self, state: dict) -> tf.Tensor:
        """The point a state stands for: misclassified if one was met."""
        raise NotImplementedError

    def refuse(self, state: dict, refused) -> dict:
        """The state without what made the attack believe in its point, where `judge` said no (refused, bool [b])."""
        return state | {"found": state["found"] & ~refused}

    def with_epsilon(self, epsilon: float) -> "Attack":
        """This attack with another radius, an explicit `step_size` scaled along: the points of a curve."""
        arguments = {name: getattr(self, name) for name in constructor_arguments(type(self))}
        arguments["threat"] = dataclasses.replace(self.threat, epsilon=epsilon)
        if arguments.get("step_size") is not None:
            arguments["step_size"] *= epsilon / self.threat.epsilon
        return type(self)(**arguments)

    def project(self, images: tf.Tensor, candidate: tf.Tensor) -> tf.Tensor:
        """Where a candidate is judged: its nearest point of the threat set, or of the pixel box (`minimal`)."""
        if self.minimal:
            return tf.clip_by_value(candidate, *self.threat.bounds)
        return self.threat.project(images, candidate)

    @final
    def attack(self, predict, images, labels, key: tf.Tensor, *, targets=None) -> AttackResult:
        """Attacks one batch. For whole data sets `runner.run_attack` does the same and skips what has fallen.

        Args:
            predict: a built Keras model (called with training=False; nothing in it moves), or a function
                images -> logits [b, k].
            images: float [b, h, w, c] inside the threat's bounds.
            labels: int [b], or one-hot [b, k].
            key: int32 [2], folded with each example's position, or [b, 2].
            targets: int [b], the classes to be reached; None: any wrong one.

        Returns:
            Tensors; `success` by re-prediction of `adversarial`, which lies in the threat set.

        Raises:
            ValueError: (outside of a tf.function, where values are known) pixels outside the bounds, labels
                that fit neither batch nor model, NaN, probabilities instead of logits.
        """
        predict = as_predict(predict)
        if tf.executing_eagerly():
            images = tf.constant(checks.check_images(images, *self.threat.bounds))
            labels = tf.constant(checks.label_ids(labels, images.shape[0]))
            targets = None if targets is None else tf.constant(checks.target_ids(targets, labels.numpy()))
        goal = Goal(labels, targets)
        adversarial, success, distance, logits = judge(self, predict, images, goal, images)
        if tf.executing_eagerly():
            checks.check_logits(logits, labels.numpy() if targets is None else np.maximum(labels, targets))
        keys = key if key.shape.rank == 2 else randomness.example_keys(key, tf.range(tf.shape(images)[0]))
        for member, number in self._all_rounds(logits.shape[-1]):
            rounds = tf.fill(tf.shape(labels), number)
            own = keys if member is self else randomness.fold(keys, member.name)
            state = member.start(predict, images, goal, round_keys(own, rounds), rounds)
            state = member.advance(predict, images, goal, rounds, state, member.steps)
            found, reached, size, _ = _judge_state(member, predict, images, goal, state)
            new = reached & ~success
            adversarial = select(new, found, adversarial)
            distance = tf.where(new, size, distance)
            success |= reached
        return AttackResult(tf.stop_gradient(adversarial), success, distance)

    def _all_rounds(self, class_count: int) -> list[tuple["Attack", int]]:
        members = self.members or (self,)
        return [(member, number) for member in members for number in range(member.rounds(class_count))]


def judge(attack: Attack, predict: Callable, images, goal: Goal, candidate):
    """What a candidate is worth: projected again, predicted again.

    Args:
        attack: says where its candidates must lie.
        predict: float32 [b, ...] -> float32 logits [b, k].
        images, candidate: float32 [b, ...].
        goal: int32 [b] labels and, if targeted, targets.

    Returns:
        (adversarial [b, ...], the image itself where the goal is not reached; reached, bool [b]; distance,
        float32 [b]; logits [b, k] of the projected candidate).
    """
    finite = tf.reduce_all(tf.math.is_finite(candidate), axis=list(range(1, candidate.shape.rank)))
    projected = attack.project(images, select(finite, candidate, images))
    logits = predict(projected)
    reached = goal.reached(logits)
    adversarial = select(reached, projected, images)
    return adversarial, reached, attack.threat.distance(images, adversarial), logits


def _judge_state(attack: Attack, predict: Callable, images, goal: Goal, state: dict):
    """`judge` for the state's candidate, and where it refuses a point believed in, for what the state holds without."""
    point = attack.candidate(state)
    first = list(judge(attack, predict, images, goal, point))
    # What was right as a clean image is not asked until it is wrong.
    first[1] &= _differ(point, images)
    refused = state["found"] & ~first[1]

    def again():
        other = attack.candidate(attack.refuse(state, refused))
        last = judge(attack, predict, images, goal, other)
        asked = refused & _differ(other, point) & _differ(other, images)
        return [select(asked, *pair) for pair in zip(last, first, strict=True)]

    return tf.cond(tf.reduce_any(refused), again, lambda: first)


def _differ(one, other) -> tf.Tensor:
    """Which examples differ anywhere: [b, ...] twice -> bool [b]."""
    return tf.reduce_any(tf.not_equal(one, other), axis=list(range(1, one.shape.rank)))


def select(condition: tf.Tensor, yes: tf.Tensor, no: tf.Tensor) -> tf.Tensor:
    """`tf.where` with one condition per example: bool [b], tensors [b, ...]."""
    # The operation of TensorFlow 1: it copies rows, which takes a tenth of the time of a broadcast condition.
    return tf.raw_ops.Select(condition=condition, x=yes, y=no)


def round_keys(keys: tf.Tensor, rounds: tf.Tensor) -> tf.Tensor:
    """Each example's key folded with the round it is in: int32 [b, 2] and [b] -> [b, 2]."""
    return tf.map_fn(
        lambda pair: tf.random.experimental.stateless_fold_in(*pair),
        (keys, rounds),
        fn_output_signature=tf.TensorSpec([2], tf.int32),
    )
