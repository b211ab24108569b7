"""Contrastive learning with noisy copies: the baseline of feature contrastive learning."""

import functools

import keras

from tfrobust.attacks.shared.attack import Attack
from tfrobust.augment.augmentation import Augmentation
from tfrobust.augment.noise import AddGaussian
from tfrobust.losses.classification import cross_entropy
from tfrobust.methods.shared.adversarial_terms import adversarial_views
from tfrobust.methods.shared.adversary import Adversary, of_method
from tfrobust.methods.shared.feature_objectives import FeatureContrast, FeatureObjective
from tfrobust.methods.shared.method import Method, checked_forward
from tfrobust.ops import randomness


@keras.saving.register_keras_serializable(package="tfrobust")
class CLGaussian(Method):
    """Cross-entropy, and embeddings that are insensitive to noise on the whole image.

    L = ce + weight feature_contrast; as in `FCL`, with noise on every pixel, and without z-.

    Terms: `ce`, `feature_contrast`, and `ce_adv` with an adversary. Needs: labels.

    Example:
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> robust.methods.CLGaussian(*parts, noise=robust.augment.AddGaussian(deviation=0.2)).terms
        ('ce', 'feature_contrast')

    Args:
        encoder, head: as in `Method`.
        noise: makes the noisy copy, sampled anew in every step; `AddGaussian(deviation=0.5)` by default.
        objective: `FeatureContrast` (the default) or `FeatureMargin`, whose second term is absent because there is no
            z-.
        adversary: adds the cross-entropy on its adversarial examples; None for none.
        attack: the attack of an adversary without further settings, in place of `adversary`.
        forward: "separate" passes for the images and each copy, or one "joint" pass.
        **kwargs: as in `Method`.

    Source:
        Kim et al. 2021, section 4.3: "a contrastive loss similar in form" to eq. 6, "a random Gaussian perturbed image
        as the positive". The paper does not print the loss; without utilities there is no z-.
    """

    default_weights = {"feature_contrast": 1e-3}

    def __init__(
        self,
        encoder,
        head,
        *,
        noise: Augmentation | None = None,
        objective: FeatureObjective | None = None,
        adversary: Adversary | None = None,
        attack: Attack | None = None,
        forward: str = "separate",
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.noise = noise or AddGaussian(deviation=0.5)
        self.objective = objective or FeatureContrast()
        has_adversary = adversary is not None or attack is not None
        self.adversary = of_method("CLGaussian", adversary, attack, "cross_entropy") if has_adversary else None
        self.forward = checked_forward(forward)

    @property
    def terms(self):
        """`ce`, `feature_contrast` and, with an adversary, `ce_adv`."""
        return ("ce", "feature_contrast") if self.adversary is None else ("ce", "feature_contrast", "ce_adv")

    @property
    def passes_per_step(self):
        """Passes per step: one for the images and one for the noisy copies, plus those of the adversary."""
        return super().passes_per_step + 1

    def make_views(self, batch, context):
        """Return the images, their noisy copies and, with an adversary, their adversarial examples."""
        views = {"images": batch.images}
        if self.adversary is not None:
            views = adversarial_views(self, self.adversary, batch, context)
        noise = functools.partial(self.noise, key=randomness.fold(context.key, "noise"))
        return {**views, "noisy": self.on_unit_pixels(noise, batch.images)}

    def loss_terms(self, views, batch, context):
        """Compute the terms and the logits of the images."""
        names = ["images", "noisy", *([] if self.adversary is None else ["adversarial"])]
        passes = self.propagate_views(*(views[name] for name in names), forward=self.forward)
        (clean, logits), (noisy, _), *adversarial = passes
        terms = {
            "ce": cross_entropy(logits, batch.labels),
            "feature_contrast": self.objective(context.rows, clean, noisy),
        }
        if adversarial:
            terms["ce_adv"] = cross_entropy(adversarial[0][1], batch.labels)
        return terms, logits
