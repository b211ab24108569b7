"""MTL-IBP training (De Palma et al., 2024): adversarial training with a small weight of interval bounds."""

import keras

from tfrobust.attacks.shared.attack import Attack
from tfrobust.losses.classification import cross_entropy
from tfrobust.methods.ibp import IBP
from tfrobust.methods.shared.adversarial_terms import adversarial_views
from tfrobust.methods.shared.adversary import Adversary, of_method


@keras.saving.register_keras_serializable(package="tfrobust")
class MTLIBP(IBP):
    """Cross-entropy on adversarial examples, and on lower bounds of the margins.

    L = kappa ce_adv + (1 - kappa) ce_certified + lambda (tightness + balance). A small weight of the bounds costs
    little accuracy under attack, and keeps bounds so tight that branch and bound can prove most of it
    (`CertifiedAccuracy.method = 'complete'`). A kappa of 0 is IBP. Radius, kappa and lambda follow the ramp as those of
    `IBP`; the attack has its own radius from the start, where the authors' grows with that of the bounds: give the
    adversary the same `ramp`.

    Terms: `ce_adv`, `ce_certified`, `tightness`, `balance`. Needs: labels, and layers that bounds can pass
    (`certification.network.walk`).

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.1), steps=2)
        >>> parts = robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10)
        >>> method = robust.methods.MTLIBP(*parts, epsilon=0.1, attack=attack, kappa=0.95)
        >>> method.compile("adam")
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> sorted(method.fit(images, labels, verbose=0).history)
        ['balance', 'ce_adv', 'ce_certified', 'loss', 'tightness']

    Args:
        encoder, head: as in `Method`.
        adversary: how adversarial examples are generated.
        attack: the attack of an adversary without further settings, in place of `adversary`.
        enlargement: as in `IBP`.
        kappa: final weight of the adversarial examples, in [0, 1].
        **kwargs: as in `IBP`.

    Raises:
        ValueError: as `IBP`; not one of `adversary` and `attack`.

    Source:
        De Palma et al. 2024, https://arxiv.org/abs/2305.13991, eq. 7; their alpha, 1 - kappa here, is 0.01 for MNIST
        at 0.1. Initialization and regularizers are those of `IBP`.
    """

    terms = ("ce_adv", "ce_certified", "tightness", "balance")

    def __init__(
        self,
        encoder,
        head,
        *,
        adversary: Adversary | None = None,
        attack: Attack | None = None,
        enlargement: float = 1.0,
        kappa: float = 0.99,
        **kwargs,
    ):
        super().__init__(encoder, head, enlargement=enlargement, kappa=kappa, **kwargs)
        self.adversary = of_method("MTLIBP", adversary, attack, "cross_entropy")

    @property
    def passes_per_step(self):
        """Passes per step: those of `IBP`, of the attack, and of the adversarial examples."""
        return super().passes_per_step + self.adversary.attack.steps + 1

    def make_views(self, batch, context):
        """Return the images and their adversarial examples."""
        return adversarial_views(self, self.adversary, batch, context)

    def loss_terms(self, views, batch, context):
        """Compute the terms and the logits of the images."""
        (_, clean), (_, adversarial) = self.propagate_views(views["images"], views["adversarial"], forward="separate")
        terms = {"ce_adv": cross_entropy(adversarial, batch.labels)}
        return terms | self.bounded_terms(views["images"], batch.labels, context), clean
