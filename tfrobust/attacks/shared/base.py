"""Interface of attacks for training and evaluation, and the verification of their candidates."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, final

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared import checks
from tfrobust.attacks.shared.goal import Goal
from tfrobust.attacks.shared.modes import as_predict
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.common.configured import Configured, constructor_arguments
from tfrobust.ops import randomness
from tfrobust.ops.norms import KINDS
from tfrobust.structs import AttackResult


class Attack(Configured):
    """Interface of an attack: a search within a threat set.

    Training: `perturb(objective, images, key)` maximizes any objective and returns the last point.

    Evaluation: an attack consists of *rounds* (restarts, targets) of `steps` steps each. A round is `start` ->
    `advance` ... -> `candidate` on a state, which is a dict of tensors [b, ...]. A runner can therefore stop after any
    step, remove examples from the batch and add others. The state holds `found`, bool [b]: the attack has met a point
    that it takes for misclassified. `found` only ends the search early. Success is decided by `judge`, which projects
    and predicts again. Where `judge` does not confirm a point, `refuse` withdraws it and the search continues, since a
    single wrong output of a stochastic model proves little. At the end of a round the candidate of the state is
    verified, if it is another point. The clean image is verified before the first round only. Each candidate is
    verified anew: with a stochastic model, a longer search finds more points that are misclassified twice by chance.

    Examples of one batch may be at different steps, so whatever depends on the step is part of the state.

    Attributes of a subclass:
        name: used in ids of measurements, `attack.<name>_<norm>_<epsilon>.accuracy`.
        needs_gradient: False for a black-box attack.
        minimal: True for a minimal-norm attack, which looks for the nearest misclassified point whatever epsilon is.
            Its candidates are verified in the pixel box alone; a caller that counts successes compares the distances
            with epsilon.
        norms: supported norms; constructors call `checks.check_norm`.
        threat: the threat model.
        steps: steps of one round.
    """

    name: ClassVar[str] = ""
    needs_gradient: ClassVar[bool] = True
    minimal: ClassVar[bool] = False
    norms: ClassVar[tuple[str, ...]] = KINDS
    threat: ThreatModel
    steps: int

    @property
    def members(self) -> tuple["Attack", ...]:
        """Attacks of an ensemble, which run one after the other on the remaining examples; () for a single one."""
        return ()

    def perturb(self, objective: Callable, images, key: tf.Tensor):
        """Return adversarial examples for training, which maximize the objective.

        Args:
            objective: images -> float [b], larger = worse for the model. It gets the same nest as `images`.
            images: float32 [b, h, w, c], or a nest of such: one joint adversarial example, each leaf in its own ball
                with its own random draws.
            key: int32 [2] (global batch) or [b, 2] (per example).

        Returns:
            float32 in the structure of `images`, inside the threat set, with gradients stopped.

        Raises:
            ValueError: (outside of a tf.function, where values are known) bytes, or pixels out of the bounds.
        """
        raise NotImplementedError

    def rounds(self, class_count: int) -> int:
        """Return the largest number of rounds for an example on which no round succeeds."""
        raise NotImplementedError

    def start(self, predict: Callable, images, goal: Goal, keys, rounds) -> dict:
        """Return the state before the first step of a round.

        Args:
            predict: float32 [b, ...] -> float32 logits [b, k].
            images: float32 [b, ...]; b is unknown when the graph is traced, the other dimensions are static.
            goal: int32 [b] labels and, if targeted, targets.
            keys: int32 [b, 2], one per example and round.
            rounds: int32 [b], the round of each example, 0 <= round < `rounds(k)`.

        Returns:
            name -> tensor [b, ...], with `found`.
        """
        raise NotImplementedError

    def advance(self, predict: Callable, images, goal: Goal, rounds, state: dict, count) -> dict:
        """Return the state `count` (int32 scalar) steps later; other arguments as in `start`."""
        raise NotImplementedError

    def candidate(self, state: dict) -> tf.Tensor:
        """Return the point of a state that is to be verified: a misclassified one if one was met."""
        raise NotImplementedError

    def refuse(self, state: dict, refused) -> dict:
        """Return the state without the claim of success wherever `judge` rejected the candidate (refused, bool [b])."""
        return state | {"found": state["found"] & ~refused}

    def with_epsilon(self, epsilon: float) -> "Attack":
        """Return this attack with another radius, as for a curve; an explicit `step_size` is scaled with epsilon."""
        arguments = {name: getattr(self, name) for name in constructor_arguments(type(self))}
        arguments["threat"] = dataclasses.replace(self.threat, epsilon=epsilon)
        if arguments.get("step_size") is not None:
            arguments["step_size"] *= epsilon / self.threat.epsilon
        return type(self)(**arguments)

    def project(self, images: tf.Tensor, candidate: tf.Tensor) -> tf.Tensor:
        """Project a candidate to where it is verified: onto the threat set, or into the pixel box (`minimal`)."""
        if self.minimal:
            return tf.clip_by_value(candidate, *self.threat.bounds)
        return self.threat.project(images, candidate)

    @final
    def attack(self, predict, images, labels, key: tf.Tensor, *, targets=None) -> AttackResult:
        """Attack one batch; `runner.run_attack` does the same for a data set and skips examples that have succeeded.

        Args:
            predict: a built Keras model (called with training=False; no variable is updated), or a function images ->
                logits [b, k].
            images: float [b, h, w, c] inside the threat's bounds.
            labels: int [b], or one-hot [b, k].
            key: int32 [2], folded with each example's position, or [b, 2].
            targets: int [b], the classes to be reached; None: any wrong class.

        Returns:
            Tensors; `success` is the re-prediction of `adversarial`, which lies in the threat set.

        Raises:
            ValueError: (outside of a tf.function, where values are known) pixels outside the bounds, labels that fit
                neither batch nor model, NaN, probabilities instead of logits.
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
    """Verify a candidate: project it again and predict it again.

    Args:
        attack: the attack, whose `project` defines where its candidates must lie.
        predict: float32 [b, ...] -> float32 logits [b, k].
        images: float32 [b, ...], the clean images.
        goal: int32 [b] labels and, if targeted, targets.
        candidate: float32 [b, ...].

    Returns:
        (adversarial [b, ...], the image itself where the goal is not reached; reached, bool [b]; distance, float32 [b];
        logits [b, k] of the projected candidate).
    """
    finite = tf.reduce_all(tf.math.is_finite(candidate), axis=list(range(1, candidate.shape.rank)))
    projected = attack.project(images, select(finite, candidate, images))
    logits = predict(projected)
    reached = goal.reached(logits)
    adversarial = select(reached, projected, images)
    return adversarial, reached, attack.threat.distance(images, adversarial), logits


def _judge_state(attack: Attack, predict: Callable, images, goal: Goal, state: dict):
    """Verify the state's candidate; where it is rejected, withdraw it and verify the next candidate."""
    point = attack.candidate(state)
    first = list(judge(attack, predict, images, goal, point))
    # A candidate equal to the clean image was verified before: repeating that would find errors by chance.
    first[1] &= _differ(point, images)
    refused = state["found"] & ~first[1]

    def again():
        other = attack.candidate(attack.refuse(state, refused))
        last = judge(attack, predict, images, goal, other)
        asked = refused & _differ(other, point) & _differ(other, images)
        return [select(asked, *pair) for pair in zip(last, first, strict=True)]

    return tf.cond(tf.reduce_any(refused), again, lambda: first)


def _differ(one, other) -> tf.Tensor:
    """Return the examples that differ anywhere: [b, ...] twice -> bool [b]."""
    return tf.reduce_any(tf.not_equal(one, other), axis=list(range(1, one.shape.rank)))


def select(condition: tf.Tensor, yes: tf.Tensor, no: tf.Tensor) -> tf.Tensor:
    """Select whole examples, like `tf.where` with one condition per example: bool [b], tensors [b, ...]."""
    # The operation of TensorFlow 1 copies rows, which takes a tenth of the time of a broadcast condition.
    return tf.raw_ops.Select(condition=condition, x=yes, y=no)


def round_keys(keys: tf.Tensor, rounds: tf.Tensor) -> tf.Tensor:
    """Fold each example's key with its round: int32 [b, 2] and [b] -> [b, 2]."""
    return tf.map_fn(
        lambda pair: tf.random.experimental.stateless_fold_in(*pair),
        (keys, rounds),
        fn_output_signature=tf.TensorSpec([2], tf.int32),
    )
