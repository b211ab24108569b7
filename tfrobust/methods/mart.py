"""MART: adversarial training that is aware of misclassified examples."""

import keras

from tfrobust.losses import robust
from tfrobust.methods.shared.adversarial_method import AdversarialMethod


@keras.saving.register_keras_serializable(package="tfrobust")
class MART(AdversarialMethod):
    """Boosted cross-entropy of adversarial examples, and a divergence weighted by the doubt in the clean image.

    L = bce + lambda kl. bce = CE( h(x^a), y ) - log(1 - max_{k != y} h_k(x^a)), kl = KL( h(x) || h(x^a) ) (1 - h_y(x)),
    lambda = term weight `kl` = 5. No gradient is stopped. The adversary maximizes the cross-entropy. That of the
    authors' code starts at x + 0.001 N(0, 1), which is PGD's random_start="gaussian".

    Terms: `bce`, `kl`. Needs: labels.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.1), steps=2)
        >>> parts = robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10)
        >>> method = robust.methods.MART(*parts, attack=attack)
        >>> method.compile("adam")
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> sorted(method.fit(images, labels, verbose=0).history)
        ['bce', 'kl', 'loss']

    Args:
        encoder, head: as in `Method`.
        **kwargs: as in `AdversarialMethod`: adversary, attack, forward, label_smoothing (of the cross-entropy in
            `bce`), weight_perturbation.

    Source:
        Wang et al. 2020, https://openreview.net/forum?id=rklOg6EFwS, eqs 7 to 9. The training script of the released
        code has lambda = 5; the default of its function is 6.
    """

    terms = ("bce", "kl")
    default_weights = {"kl": 5.0}

    def loss_terms(self, views, batch, context):
        """Compute `bce` and `kl`, and the clean logits."""
        (_, clean), (_, adversarial) = self.propagate_views(views["images"], views["adversarial"], forward=self.forward)
        boosted = robust.boosted_cross_entropy(adversarial, batch.labels, self.targets(batch.labels, adversarial))
        weighted = robust.misclassification_aware_kl(clean, adversarial, batch.labels)
        return {"bce": boosted, "kl": weighted}, clean
