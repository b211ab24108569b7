"""Interface of attacks for training and evaluation."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, final

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared.goal import Goal
from tfrobust.attacks.shared.runner import run_attack
from tfrobust.attacks.shared.threat import USUAL_RADII, ThreatModel
from tfrobust.common.configured import Configured, constructor_arguments, described
from tfrobust.errors import InputError
from tfrobust.ops.norms import KINDS
from tfrobust.ops.shapes import select
from tfrobust.structs import AttackResult


class Attack(Configured):
    """Interface of an attack: a search within a threat set.

    Training: `perturb(objective, inputs, key)` maximizes any objective and returns the last point. Subclasses define
    `maximize`.

    Evaluation: an attack consists of *rounds* (restarts, targets) of `steps` steps each. A round is `start` ->
    `advance` ... -> `candidate` on a state, which is a dict of tensors [b, ...]. A runner can therefore stop after any
    step, remove examples from the batch and add others. The state holds `found`, bool [b]: the attack has met a point
    that it takes for misclassified. `found` only ends the search early. Success is decided by `engine.verify`, which
    projects and predicts again. Where it does not confirm a point, `refuse` withdraws it and the search continues,
    since a single wrong output of a stochastic model proves little. At the end of a round the candidate of the state is
    verified, if it is another point. The clean input is verified before the first round only. Each candidate is
    verified anew: with a stochastic model, a longer search finds more points that are misclassified twice by chance.

    Examples of one batch may be at different steps, so whatever depends on the step is part of the state.

    Attributes of a subclass:
        name: used in ids of measurements, `attack.<name>_<norm>_<epsilon>.accuracy`.
        needs_gradient: False for a black-box attack.
        minimal: True for a minimal-norm attack, which looks for the nearest misclassified point whatever epsilon is.
            Its candidates are verified in the pixel box alone; a caller that counts successes compares the distances
            with epsilon.
        searches_surrogate: True for a transfer attack, whose search sees another model.
        needs_answers: True if the search itself needs to know which points are misclassified.
        norms: supported norms; constructors call `checks.check_norm`.
        clip_settings: arguments that concern clips only, which reports on other examples leave out.
        bounds_frames: True if the attack supports a threat model's `per_frame` and `max_frames`.
        threat: the threat model.
        steps: steps of one round.
    """

    name: str = ""
    needs_gradient: bool = True
    minimal: ClassVar[bool] = False
    searches_surrogate: ClassVar[bool] = False
    needs_answers: ClassVar[bool] = False
    norms: ClassVar[tuple[str, ...]] = KINDS
    bounds_frames: ClassVar[bool] = False
    clip_settings: ClassVar[tuple[str, ...]] = ()
    threat: ThreatModel
    steps: int

    @property
    def members(self) -> tuple["Attack", ...]:
        """Attacks of an ensemble, which run one after the other on the remaining examples; () for a single one."""
        return ()

    @final
    def perturb(self, objective: Callable, inputs, key: tf.Tensor):
        """Return adversarial examples for training, which maximize the objective: `maximize`, inside the threat set.

        An example for which `maximize` returns a point that is not finite, or outside of the threat set, is returned
        as it is.

        Args:
            objective: inputs -> float [b], larger = worse for the model. It gets the same nest as `inputs`.
            inputs: float32 [b, ...], or a nest of such: one joint adversarial example, each leaf in its own ball
                with its own random draws. Arrays of floats become float32.
            key: int32 [2] (global batch) or [b, 2] (per example).

        Returns:
            float32 in the structure of `inputs`, inside the threat set, with gradients stopped.

        Raises:
            ValueError: (outside of a tf.function, where values are known) bytes, or pixels out of the bounds.
        """
        inputs = tf.nest.map_structure(_as_tensor, inputs)
        points = self.maximize(objective, inputs, key)
        return tf.nest.map_structure(lambda *pair: tf.stop_gradient(self.restored(*pair)), inputs, points)

    def maximize(self, objective: Callable, inputs, key: tf.Tensor):
        """Return points that maximize the objective; arguments as in `perturb`, which checks them."""
        raise NotImplementedError

    def rounds(self, class_count: int) -> int:
        """Return the largest number of rounds for an example on which no round succeeds."""
        raise NotImplementedError

    def round_passes(self, class_count: int) -> tuple[int, int]:
        """Return the forward and backward passes of one round for one example, without verifications."""
        return self.steps, self.steps if self.needs_gradient else 0

    def most_passes(self, class_count: int) -> tuple[int, int]:
        """Return the largest numbers of forward and backward passes for one example: those if no round succeeds.

        They include verifications, of the input and of a candidate in each round. An example on which a round succeeds
        takes fewer; a result has the numbers that were counted.
        """
        rounds = self.rounds(class_count)
        forward, backward = self.round_passes(class_count)
        return 1 + rounds * (forward + 1), rounds * backward

    def start(self, predict: Callable, inputs, goal: Goal, keys, rounds) -> dict:
        """Return the state before the first step of a round.

        Args:
            predict: float32 [b, ...] -> float32 logits [b, k].
            inputs: float32 [b, ...]; b is unknown when the graph is traced, the other dimensions are static.
            goal: int32 [b] labels and, if targeted, targets.
            keys: int32 [b, 2], one per example and round.
            rounds: int32 [b], the round of each example, 0 <= round < `rounds(k)`.

        Returns:
            name -> tensor [b, ...], with `found`.
        """
        raise NotImplementedError

    def advance(self, predict: Callable, inputs, goal: Goal, rounds, state: dict, count) -> dict:
        """Return the state `count` (int32 scalar) steps later; other arguments as in `start`."""
        raise NotImplementedError

    def candidate(self, state: dict) -> tf.Tensor:
        """Return the point of a state that is to be verified: a misclassified one if one was met."""
        raise NotImplementedError

    def best_point(self, state: dict) -> tf.Tensor:
        """Return the point of largest loss that the search has met, or its candidate if it remembers none."""
        return self.candidate(state)

    def refuse(self, state: dict, refused) -> dict:
        """Return the state without the claim of success wherever the verification failed (refused, bool [b])."""
        return state | {"found": state["found"] & ~refused}

    def with_epsilon(self, epsilon: float) -> "Attack":
        """Return this attack with another radius, as for a curve; an explicit `step_size` is scaled with epsilon."""
        arguments = {name: getattr(self, name) for name in constructor_arguments(type(self))}
        arguments["threat"] = dataclasses.replace(self.threat, epsilon=epsilon)
        if arguments.get("step_size") is not None:
            arguments["step_size"] *= epsilon / self.threat.epsilon
        return type(self)(**arguments)

    def project(self, inputs: tf.Tensor, candidate: tf.Tensor) -> tf.Tensor:
        """Project a candidate to where it is verified: onto the threat set, or into the pixel box (`minimal`)."""
        if self.minimal:
            return tf.clip_by_value(candidate, *self.threat.bounds)
        return self.threat.project(inputs, candidate)

    def contains(self, inputs: tf.Tensor, points: tf.Tensor) -> tf.Tensor:
        """Return which points [b, ...] are finite and lie in the threat set (`minimal`: in the pixel box); bool [b]."""
        return self.threat.in_box(points) if self.minimal else self.threat.contains(inputs, points)

    @final
    def restored(self, inputs: tf.Tensor, points: tf.Tensor) -> tf.Tensor:
        """Return the points [b, ...], and the input itself where a point is not finite or not in the threat set.

        A minimal-norm attack's points need only lie in the pixel box.
        """
        return select(self.contains(inputs, points), points, inputs)

    @final
    def attack(self, predict, inputs, labels, key: tf.Tensor, *, targets=None) -> AttackResult:
        """Attack one batch: `runner.run_attack` with a key for the random draws, and the whole batch at once.

        Args:
            predict: a built Keras model (called with training=False; no variable is updated), or a function inputs ->
                logits [b, k].
            inputs: float [b, ...] inside the threat's bounds.
            labels: int [b], or one-hot [b, k].
            key: int32 [2], folded with each example's position.
            targets: int [b], the classes to be reached; None: any wrong class.

        Returns:
            NumPy arrays; `success` is the re-prediction of `adversarial`, which lies in the threat set.

        Raises:
            ValueError: pixels outside the bounds, labels that fit neither batch nor model, NaN, or probabilities
                instead of logits.
        """
        return run_attack(self, predict, inputs, labels, key=key, targets=targets, batch_size=len(inputs))


def _as_tensor(leaf):
    """Return an array as a tensor, of floats as float32, and all else as it is."""
    if not isinstance(leaf, np.ndarray):
        return leaf
    return tf.constant(leaf, tf.float32) if np.issubdtype(leaf.dtype, np.floating) else tf.constant(leaf)


def required_attack(attack: "Attack | None", owner: str) -> "Attack":
    """Return an attack; raise InputError if it is missing, or something else, such as the class of an attack.

    Args:
        attack: the argument of a constructor.
        owner: name of the class, for the message.
    """
    if attack is None:
        raise InputError(
            f"{owner} needs an attack with a radius, such as attack=PGD(ThreatModel(epsilon=8 / 255), steps=10); "
            f"{USUAL_RADII}."
        )
    if not isinstance(attack, Attack):
        raise InputError(f"{owner}.attack is {described(attack)}; it must be an Attack, such as PGD(threat).")
    return attack


def facts_of(attack: Attack) -> dict:
    """Return what a report says of an attack inside a training: its threat model and its steps."""
    threat = attack.threat
    facts = {"norm": threat.norm, "epsilon": threat.epsilon, **threat.frame_settings}
    if tuple(threat.bounds) != (0.0, 1.0):
        facts["bounds"] = list(threat.bounds)
    if len(threats := getattr(attack, "threats", ())) > 1:
        facts["threats"] = [threat.budget for threat in threats]
    return facts | {"attack_steps": attack.steps}
