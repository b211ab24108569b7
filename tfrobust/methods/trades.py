"""TRADES (Zhang et al., 2019)."""

import keras

from tfrobust.attacks.gradient import PGD
from tfrobust.methods.shared.adversarial_method import AdversarialMethod
from tfrobust.methods.shared.adversarial_terms import robust_terms
from tfrobust.methods.shared.adversary import Adversary


@keras.saving.register_keras_serializable(package="tfrobust")
class TRADES(AdversarialMethod):
    """Cross-entropy on clean images, and the divergence between clean and adversarial predictions.

    L = ce + beta kl, kl = KL( h(x) || h(x^a) ), beta = term weight `kl` = 6. The default adversary maximizes the same
    divergence from x + 0.001 N(0, 1), in inference mode, as the authors' code.

    Terms: `ce`, `kl`. Needs: labels.

    Example:
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> method = robust.methods.TRADES(*parts, term_weights={"kl": 1.0})
        >>> method.terms, method.adversary.objective
        (('ce', 'kl'), 'kl')

    Args:
        encoder, head: as in `Method`.
        adversary: how adversarial examples are generated.
        **kwargs: as in `AdversarialMethod`: forward, label_smoothing, weight_perturbation.

    Source:
        Zhang et al. 2019, https://arxiv.org/abs/1901.08573, eq. 5.
    """

    terms = ("ce", "kl")
    default_weights = {"kl": 6.0}

    def __init__(self, encoder, head, *, adversary: Adversary | None = None, **kwargs):
        super().__init__(encoder, head, adversary=adversary or trades_adversary(), **kwargs)

    def loss_terms(self, views, batch, context):
        """Compute `ce` and `kl`, and the clean logits."""
        (_, clean), (_, adversarial) = self.propagate_views(views["images"], views["adversarial"], forward=self.forward)
        return robust_terms("trades", clean, adversarial, self.targets(batch.labels, clean)), clean


def trades_adversary() -> Adversary:
    """Return PGD with 10 steps on the divergence, from a small Gaussian start."""
    return Adversary(attack=PGD(steps=10, random_start="gaussian"), objective="kl")
