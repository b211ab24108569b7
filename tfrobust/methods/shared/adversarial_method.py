"""Base class of the methods that train on images and on their adversarial examples."""

import contextlib

import tensorflow as tf

from tfrobust.attacks.shared.attack import Attack
from tfrobust.common.settings import require_share
from tfrobust.losses import classification
from tfrobust.methods.shared.adversarial_terms import adversarial_views
from tfrobust.methods.shared.adversary import Adversary, of_method
from tfrobust.methods.shared.method import Method, checked_forward
from tfrobust.methods.shared.weight_perturbation import WeightPerturbation


class AdversarialMethod(Method):
    """Base of the methods with an adversary that attacks their own predictions.

    Args:
        encoder, head: as in `Method`.
        adversary: how adversarial examples are generated; without an objective of its own, for that of the method.
        attack: the attack of an adversary without further settings, in place of `adversary`.
        forward: "separate" passes for clean and adversarial images (as the reference), or one "joint" pass.
        label_smoothing: s in [0, 1). The cross-entropies with labels have the targets (1 - s) y + s / k, with y the
            one-hot label of k classes. The attack uses the labels as they are.
        weight_perturbation: adversarial weight perturbation of each step, or None.
        **kwargs: as in `Method`.

    Raises:
        ValueError: an unknown `forward`, a `label_smoothing` outside [0, 1), or not one of `adversary` and `attack`.

    Attributes of a subclass:
        inner_objective: objective of an adversary that names none; None leaves it to the subclass.
    """

    inner_objective: str | None = "cross_entropy"

    def __init__(
        self,
        encoder,
        head,
        *,
        adversary: Adversary | None = None,
        attack: Attack | None = None,
        forward: str = "separate",
        label_smoothing: float = 0.0,
        weight_perturbation: WeightPerturbation | None = None,
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.adversary = of_method(type(self).__name__, adversary, attack, self.inner_objective)
        self.forward = checked_forward(forward)
        self.label_smoothing = require_share(label_smoothing, f"{type(self).__name__}.label_smoothing")
        self.weight_perturbation = weight_perturbation

    @property
    def passes_per_step(self):
        """Passes per step: those of the attack, clean and adversarial images, and twice these with AWP."""
        passes = 2 if self.weight_perturbation is None else 4
        return self.adversary.attack.steps + passes

    def make_views(self, batch, context):
        """Return the images and their adversarial examples."""
        return adversarial_views(self, self.adversary, batch, context)

    def targets(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Return the targets of the cross-entropies: the labels, or smoothed rows [b, k].

        Args:
            labels: int32 [b].
            logits: [b, k], for the number of classes.
        """
        if not self.label_smoothing:
            return labels
        return classification.smoothed(labels, logits.shape[-1], self.label_smoothing)

    def around_update(self, differentiate):
        """Return the context that perturbs the weights, if there is a `weight_perturbation`."""
        if self.weight_perturbation is None:
            return contextlib.nullcontext()
        return self.weight_perturbation.applied(self.trainable_variables, self.update_number(), differentiate)
