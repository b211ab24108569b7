"""PGD adversarial training."""

import keras

from tfrobust.methods.shared.adversarial_method import AdversarialMethod
from tfrobust.methods.shared.adversarial_terms import robust_terms


@keras.saving.register_keras_serializable(package="tfrobust")
class AdversarialTraining(AdversarialMethod):
    """Cross-entropy on clean images and on their adversarial examples (the row "ADV" of Bui et al. 2021).

    L = ce + ce_adv, ce_adv = CE( h(x^a), y ). Madry et al. (2018) train on the adversarial examples alone, which is the
    term weight `ce` = 0. The clean pass is made all the same, as in the released ASCL code: it gives the training
    accuracy, and the moving statistics of batch norm are then those of clean and of adversarial images. Madry et al.
    and Wong et al. make no such pass.

    Terms: `ce`, `ce_adv`. Needs: labels.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.1), steps=2)
        >>> parts = robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10)
        >>> method = robust.methods.AdversarialTraining(*parts, attack=attack)
        >>> method.compile("adam")
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> sorted(method.fit(images, labels, verbose=0).history)
        ['ce', 'ce_adv', 'loss']

    Args:
        encoder, head: as in `Method`.
        **kwargs: as in `AdversarialMethod`: adversary, attack, forward, label_smoothing, weight_perturbation.

    Source:
        Bui et al. 2021, eq. 4; Madry et al. 2018, https://arxiv.org/abs/1706.06083.
    """

    terms: tuple[str, ...] = ("ce", "ce_adv")

    def loss_terms(self, views, batch, context):
        """Compute `ce` and `ce_adv`, and the clean logits."""
        (_, clean), (_, adversarial) = self.propagate_views(views["images"], views["adversarial"], forward=self.forward)
        return robust_terms("adversarial_training", clean, adversarial, self.targets(batch.labels, clean)), clean
