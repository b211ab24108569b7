"""Adversarial Divergence Reduction."""

import keras

from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.losses import robust
from tfrobust.methods.shared.adversarial_method import AdversarialMethod
from tfrobust.methods.shared.adversarial_terms import INNER_OBJECTIVES, ROBUST_TERMS, robust_terms
from tfrobust.ops import distribution


@keras.saving.register_keras_serializable(package="tfrobust")
class ADR(AdversarialMethod):
    """Adversarial training or TRADES, with adversarial examples pulled towards the clean images of their class.

    L = L_robust + local_compactness + local_smoothness + global_compactness + g global_smoothness + confidence. The
    ASCL comparison in the released code sets g = 0, the default here. The original ADR code has g = 1 and halves both
    cross-entropies.

    Terms: `ce`, `ce_adv` or `kl`, and the five of `losses.robust.adversarial_divergence`. Needs: labels.

    Example:
        >>> from tfrobust import keras as robust
        >>> attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.2), steps=10)
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> method = robust.methods.ADR(*parts, objective="trades", attack=attack)
        >>> method.terms[:2]
        ('ce', 'kl')

    Args:
        encoder, head: as in `Method`.
        objective: the robust objective L_robust, "adversarial_training" or "trades".
        label_scale: s of the pair weights (s - d) / s, in (0, 1].
        **kwargs: as in `AdversarialMethod`: adversary, attack, forward, label_smoothing, weight_perturbation.

    Raises:
        ValueError: an unknown `objective`, or a `label_scale` outside (0, 1].

    Source:
        Bui et al. 2020, https://arxiv.org/abs/2007.05123; the rows "ADR" of Bui et al. 2021, Tables 4 and 5.
    """

    default_weights = {"kl": 6.0, "global_smoothness": 0.0}
    inner_objective = None

    def __init__(
        self,
        encoder,
        head,
        *,
        objective: str = "adversarial_training",
        label_scale: float = 0.99,
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        if not 0 < label_scale <= 1:
            raise InputError(f"ADR.label_scale is {label_scale}; it lies in (0, 1].")
        self.objective = require_choice(objective, "ADR.objective", ROBUST_TERMS)
        self.adversary = self.adversary.completed(INNER_OBJECTIVES[objective])
        self.label_scale = label_scale

    @property
    def terms(self):
        """The terms of the robust objective and the five divergence terms."""
        return (*ROBUST_TERMS[self.objective], *robust.DIVERGENCE_TERMS)

    def loss_terms(self, views, batch, context):
        """Compute the terms of the robust objective and the divergence, and the clean logits."""
        clean, adversarial = self.propagate_views(views["images"], views["adversarial"], forward=self.forward)
        keys = distribution.gather((*clean, batch.labels))
        targets = self.targets(batch.labels, clean[1])
        return {
            **robust_terms(self.objective, clean[1], adversarial[1], targets),
            **robust.adversarial_divergence(clean, adversarial, batch.labels, keys=keys, scale=self.label_scale),
        }, clean[1]
