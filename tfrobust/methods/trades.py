"""TRADES (Zhang et al., 2019)."""

import keras

from tfrobust.methods.shared.adversarial_method import AdversarialMethod
from tfrobust.methods.shared.adversarial_terms import robust_terms


@keras.saving.register_keras_serializable(package="tfrobust")
class TRADES(AdversarialMethod):
    """Cross-entropy on clean images, and the divergence between clean and adversarial predictions.

    L = ce + beta kl, kl = KL( h(x) || h(x^a) ), beta = term weight `kl` = 6. The adversary maximizes the same
    divergence, unless it names another objective. That of the authors' code starts at x + 0.001 N(0, 1), which is
    PGD's random_start="gaussian".

    Terms: `ce`, `kl`. Needs: labels.

    Example:
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.2), steps=10, random_start="gaussian")
        >>> method = robust.methods.TRADES(*parts, attack=attack, term_weights={"kl": 1.0})
        >>> method.terms, method.adversary.objective
        (('ce', 'kl'), 'kl')

    Args:
        encoder, head: as in `Method`.
        **kwargs: as in `AdversarialMethod`: adversary, attack, forward, label_smoothing, weight_perturbation.

    Source:
        Zhang et al. 2019, https://arxiv.org/abs/1901.08573, eq. 5.
    """

    terms = ("ce", "kl")
    default_weights = {"kl": 6.0}
    inner_objective = "kl"

    def loss_terms(self, views, batch, context):
        """Compute `ce` and `kl`, and the clean logits."""
        (_, clean), (_, adversarial) = self.propagate_views(views["images"], views["adversarial"], forward=self.forward)
        return robust_terms("trades", clean, adversarial, self.targets(batch.labels, clean)), clean
