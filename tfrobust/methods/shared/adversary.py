"""Adversarial examples inside training: the attack, its objective, and the mode of batch norm."""

import dataclasses
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.attacks.shared import modes, objectives
from tfrobust.attacks.shared.attack import Attack, required_attack
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.methods.shared.ramped_adversary import RampedAdversary

OBJECTIVES = ("cross_entropy", "kl")
# For messages.
NOISY_STARTS = "take PGD with a random_start, such as 'uniform', or FastAdversary with a noise above 0"


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Adversary(RampedAdversary):
    """An attack inside training.

    Example:
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=8 / 255), steps=7)
        >>> robust.methods.Adversary(attack=attack, mode="batch").attack.steps
        7

    Attributes:
        attack: the attack, with its threat model.
        objective: "cross_entropy" with the labels (PGD adversarial training), or "kl", the divergence from the
            prediction of the clean images (TRADES), which is computed once. None: that of the method; outside of a
            method the cross-entropy.
        mode: batch norm during the attack: "inference", "batch" (batch statistics; moving statistics are not updated)
            or "train" (every attack step updates the moving statistics, as in the released ASCL code).
        ramp: schedule of the step from 0 to 1 by which the radius is multiplied, as in `RampedAdversary`, or None.

    Raises:
        ValueError: an unknown objective or mode, a ramp of another attack, or "kl" with an attack that starts at the
            image, such as FGSM: the divergence has no gradient there.

    Source:
        Madry et al. 2018; Zhang et al. 2019 (TRADES), section 4; Bui et al. 2021, section 4.1.
    """

    objective: str | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.objective is not None:
            require_choice(self.objective, "Adversary.objective", OBJECTIVES)
        if self.objective == "kl" and self.starts_at_image:
            raise InputError(
                f"{type(self).__name__} maximizes the divergence from the prediction of the image, and starts there, "
                f"where it has no gradient: {NOISY_STARTS}."
            )

    @property
    def starts_at_image(self) -> bool:
        """True if the first gradient is that at the image itself, where a distance from the image has none."""
        return getattr(self.attack, "random_start", "") == "none"

    def completed(self, objective: str) -> "Adversary":
        """Return this adversary, with the objective of a method if it has none."""
        return self if self.objective is not None else dataclasses.replace(self, objective=objective)

    def perturb(
        self, predict: Callable, images: tf.Tensor, labels: tf.Tensor, key: tf.Tensor, step: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Return adversarial images for a batch, with gradients stopped.

        Args:
            predict: (images, training=bool) -> logits [b, k].
            images: float32 [b, h, w, c] in [0, 1].
            labels: int32 [b]; ignored by the "kl" objective.
            key: int32 [2].
            step: number of updates so far, for the `ramp`; None: the whole radius.

        Returns:
            float32 [b, h, w, c], inside the attack's threat set.
        """
        return self.search(self.objective_on(predict, images, labels), images, key, step)

    def objective_on(self, predict: Callable, images: tf.Tensor, labels: tf.Tensor) -> Callable:
        """Return the function points [b, ...] -> float [b] that the attack maximizes; arguments as in `perturb`."""
        forward = objectives.ranged(modes.forward_in_mode(predict, self.mode), per_example=self.mode == "inference")
        if self.objective == "kl":
            # The reference code runs the clean pass again in every step; its result is the same each time.
            return objectives.kl(forward, tf.stop_gradient(forward(images)))
        return objectives.cross_entropy(forward, labels)


def of_method(
    owner: str, adversary: Adversary | None, attack: Attack | None, objective: str | None = None, kind: type = Adversary
):
    """Return the adversary of a method from its two arguments.

    Args:
        owner: name of the method, for messages.
        adversary: the argument `adversary`, or None.
        attack: the argument `attack`, which stands for an adversary without further settings; or None.
        objective: the method's own, for an adversary that names none; None leaves it open.
        kind: class of the adversary that `attack` stands for.

    Raises:
        InputError: both, or neither.
    """
    if adversary is not None and attack is not None:
        raise InputError(f"{owner} has an adversary and an attack: give one of them, since an adversary has an attack.")
    if adversary is None:
        adversary = kind(attack=required_attack(attack, owner))
    return adversary if objective is None else adversary.completed(objective)
