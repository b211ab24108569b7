"""The base of the adversaries inside training: an attack, its mode of batch norm, and a ramp of its radius."""

import dataclasses
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.shared import modes
from tfrobust.attacks.shared.attack import Attack, required_attack
from tfrobust.common.configured import Configured
from tfrobust.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class RampedAdversary(Configured):
    """Base of the adversaries: an attack, and a schedule of its radius.

    Attributes:
        attack: the attack, with its threat model.
        mode: mode of batch norm during the attack.
        ramp: schedule of the step from 0 to 1, by which radius and step of the attack are multiplied, such as
            `LinearRamp` or `SmoothedRamp`, maybe in `OverTraining`. While it is 0, the examples are not perturbed. None
            is 1 from the start. The attack is then PGD, FGSM, or one of their variants.
    """

    attack: Attack | None = None
    mode: str = "inference"
    ramp: keras.optimizers.schedules.LearningRateSchedule | None = None

    def __post_init__(self):
        required_attack(self.attack, type(self).__name__)
        modes.check_mode(self.mode)
        if self.ramp is not None and not isinstance(self.attack, PGD):
            name = type(self).__name__
            raise InputError(
                f"{name}.ramp scales attacks with steps of fixed size, such as PGD and FGSM; {name}.attack is "
                f"{type(self.attack).__name__}."
            )

    def search(self, objective: Callable, inputs, key: tf.Tensor, step: tf.Tensor | None = None):
        """Return adversarial examples that maximize an objective, with the radius of a step.

        Args:
            objective: inputs -> float [b], as in `Attack.perturb`.
            inputs: float32 [b, ...], or a nest of such.
            key: int32 [2].
            step: number of updates so far; None: the whole radius.

        Returns:
            As `inputs`, with gradients stopped.
        """
        attack = required_attack(self.attack, type(self).__name__)
        if self.ramp is None or step is None or not isinstance(attack, PGD):
            return self.find(attack, objective, inputs, key)
        share = tf.cast(self.ramp(step), tf.float32)
        return tf.cond(
            share > 0,
            lambda: self.find(attack.scaled(share), objective, inputs, key),
            lambda: tf.nest.map_structure(tf.identity, inputs),
        )

    def find(self, attack: Attack, objective: Callable, inputs, key: tf.Tensor):
        """Run the attack, whose radius and step may be tensors (hook); arguments and result as in `search`."""
        return attack.perturb(objective, inputs, key)
