"""Runner: attacks, single or ensembles, over a data set, at a cost that follows the number of remaining examples."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tfrobust.attacks.shared import checks
from tfrobust.attacks.shared.checks import ProbabilitiesError
from tfrobust.attacks.shared.engine import Engine, checked_arguments
from tfrobust.attacks.shared.modes import as_predict
from tfrobust.common.configured import described
from tfrobust.errors import InputError
from tfrobust.ops import finite, probabilities, randomness
from tfrobust.structs import AttackResult

if TYPE_CHECKING:
    from tfrobust.attacks.shared.attack import Attack


def run_attack(
    attack: Attack,
    predict,
    inputs,
    labels=None,
    *,
    seed: int = 0,
    key: tf.Tensor | None = None,
    batch_size: int = 128,
    index: np.ndarray | None = None,
    targets: np.ndarray | None = None,
    progress: Callable | None = None,
    seconds: float | None = None,
    surrogate=None,
    votes: tuple[int, int] = (1, 1),
) -> AttackResult:
    """Attack a data set: `compile_attack(attack, predict).run(...)`, see `Engine.run`.

    `surrogate` and `votes` are those of `Engine`: votes=(10, 5) for a stochastic model.

    `inputs` may be a finite `tf.data.Dataset` of batches (inputs, labels), without `labels`.

    Probabilities, which hide gradients, are detected on the clean images and converted to logits as `evaluate` does,
    also those of a surrogate: log(p) of a softmax, log(p / (1 - p)) of sigmoids.

    Example:
        >>> import keras, numpy as np
        >>> from tfrobust import keras as robust
        >>> dense = keras.layers.Dense(2, kernel_initializer="identity")
        >>> model = keras.Sequential([keras.Input((1, 1, 2)), keras.layers.Flatten(), dense])
        >>> images = np.array([[0.7, 0.4], [1.0, 0.2]], "float32").reshape(2, 1, 1, 2)
        >>> attack = robust.attacks.FGSM(robust.attacks.ThreatModel(epsilon=0.2))
        >>> robust.attacks.run_attack(attack, model, images, np.array([0, 0])).success.tolist()
        [True, False]
    """
    _check_attack(attack, "run_attack")
    inputs, labels = finite.arrays_of(inputs, labels, "run_attack")
    if surrogate is not None and any(member.searches_surrogate for member in (attack, *attack.members)):
        surrogate = _as_logits(surrogate, checks.check_images(inputs, *attack.threat.bounds), batch_size)

    def run(function, known_logits: bool = False) -> AttackResult:
        return compile_attack(attack, function, known_logits=known_logits, surrogate=surrogate, votes=votes).run(
            inputs,
            labels,
            seed=seed,
            key=key,
            batch_size=batch_size,
            index=index,
            targets=targets,
            progress=progress,
            seconds=seconds,
        )

    try:
        return run(predict)
    except ProbabilitiesError as error:
        logits = functools.partial(probabilities.INVERSES[error.kind], as_predict(predict))
        return run(logits, known_logits=True)


def _as_logits(surrogate, inputs: np.ndarray, batch_size: int) -> Callable:
    """Return a surrogate, whose outputs are converted to logits if they are probabilities for all inputs."""
    predict = as_predict(surrogate)
    compiled = tf.function(predict, autograph=False, reduce_retracing=True)
    parts = [inputs[start : start + batch_size] for start in range(0, len(inputs), max(1, batch_size))]
    kind = probabilities.kind_of_outputs(np.concatenate([compiled(tf.constant(part)).numpy() for part in parts]))
    inverse = probabilities.INVERSES.get(kind)
    return surrogate if inverse is None else functools.partial(inverse, predict)


def compile_attack(attack: Attack, predict, **options) -> Engine | EnsembleEngine:
    """Compile an attack, single or ensemble, for a model; arguments as for `Engine`."""
    _check_attack(attack, "compile_attack")
    return (EnsembleEngine if attack.members else Engine)(attack, predict, **options)


def _check_attack(attack, caller: str) -> None:
    """Raise InputError if the first argument of a caller, the attack, is something else, such as the model."""
    if inspect.isclass(attack) or not hasattr(attack, "members"):
        raise InputError(
            f"The first argument of {caller} is an attack, such as PGD(threat), and the second a model; the first one "
            f"is {described(attack)}."
        )


class EnsembleEngine:
    """Ensemble compiled for a model: each member attacks the examples on which all before it failed.

    Every member starts from the clean inputs.

    Args:
        attack: an attack with members.
        predict: as for `Engine`.
        **options: as for `Engine`.
    """

    def __init__(self, attack: Attack, predict, **options):
        self.attack = attack
        self.engines = tuple(Engine(member, predict, **options) for member in attack.members)

    def run(
        self, inputs, labels, *, key=None, index=None, targets=None, seconds=None, batch_size=128, **options
    ) -> AttackResult:
        """Attack as `Engine.run` does; the result names the `member` that succeeded on each example.

        `progress` starts from zero with each member. A `key` is folded with the member's name.
        """
        data = checked_arguments(self.attack, inputs, labels, index, targets, batch_size)
        deadline = time.monotonic() + (float("inf") if seconds is None else seconds)

        def run_member(number, remaining):
            engine = self.engines[number]
            return engine.run(
                data.inputs[remaining],
                data.labels[remaining],
                key=None if key is None else randomness.fold(key, engine.attack.name),
                index=data.index[remaining],
                targets=None if data.targets is None else data.targets[remaining],
                seconds=None if seconds is None else max(0.0, deadline - time.monotonic()),
                batch_size=batch_size,
                **options,
            )

        adversarial = data.inputs.copy()
        success, distance, complete, member, passes = cascade(
            len(self.engines), len(adversarial), run_member, adversarial
        )
        return AttackResult(adversarial, success, distance, complete, member, passes.sum(axis=1))


def cascade(members: int, count: int, run_member: Callable, adversarial: np.ndarray | None = None):
    """Run the members of an ensemble one after the other, each on the examples that remain.

    Args:
        members: number of members.
        count: number of examples.
        run_member: (number of the member, positions int64 [m] of the remaining examples) -> a tuple with success bool
            [m], distance float32 [m], complete, passes [m, 2] or None, and, if `adversarial` is given, adversarial
            [m, ...].
        adversarial: [count, ...], the clean inputs; overwritten where a member succeeds. Or None.

    Returns:
        (success bool [count], distance float32 [count], complete, member int64 [count]: the member that succeeded, -1
        where none did or the clean input was already misclassified; passes float64 [count, members, 2], NaN where
        unknown).
    """
    passes = np.zeros([count, members, 2])
    success, distance, complete = np.zeros(count, bool), np.zeros(count, np.float32), True
    member = np.full(count, -1)
    for number in range(members):
        remaining = np.flatnonzero(~success)
        if not len(remaining):
            break
        result = run_member(number, remaining)
        succeeded = np.asarray(result.success)
        rows = remaining[succeeded]
        success[rows], distance[rows] = True, result.distance[succeeded]
        # Examples on which the first member succeeds at distance 0 were misclassified before any attack.
        member[rows] = np.where((number == 0) & (distance[rows] == 0), -1, number)
        complete = complete and result.complete
        passes[remaining, number] = np.nan if result.passes is None else result.passes
        if adversarial is not None:
            adversarial[rows] = result.adversarial[succeeded]
    return success, distance, complete, member, passes
