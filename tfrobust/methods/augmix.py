"""AugMix training: cross-entropy, and predictions that are consistent under the augmentation."""

from collections.abc import Iterable

import keras
import tensorflow as tf

from tfrobust.augment.augmentation import Augmentation
from tfrobust.augment.augmix import AugMix
from tfrobust.losses.classification import cross_entropy
from tfrobust.losses.consistency import jensen_shannon
from tfrobust.methods.shared.method import Method, checked_forward
from tfrobust.ops import randomness

AUGMENTED = ("augmented_1", "augmented_2")


@keras.saving.register_keras_serializable(package="tfrobust")
class AugMixTraining(Method):
    """Cross-entropy on images, and the divergence between the predictions on them and on two augmentations.

    L = ce + 12 jsd, ce = CE( h(x), y ), jsd = JS( h(x), h(x'), h(x'') ). x' and x'' are two samples of `augmentation`,
    computed by the input pipeline. 12 is the term weight `jsd`.

    Terms: `ce`, `jsd`. Needs: labels.

    Example:
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> method = robust.methods.AugMixTraining(*parts, augmentation=robust.augment.AugMix(severity=1.0))
        >>> method.terms, method.host_view_names
        (('ce', 'jsd'), ('augmented_1', 'augmented_2'))

    Args:
        encoder, head: as in `Method`.
        augmentation: sampled twice for each image; `AugMix()` by default.
        forward: one "joint" pass of the three views (as the reference), or "separate" passes.
        **kwargs: as in `Method`.

    Raises:
        ValueError: an augmentation that cannot be called, or an unknown `forward`.

    Source:
        Hendrycks et al. 2020, https://arxiv.org/abs/1912.02781, eq. 1, and its released code.
    """

    terms = ("ce", "jsd")
    default_weights = {"jsd": 12.0}
    host_view_names = AUGMENTED

    def __init__(self, encoder, head, *, augmentation: Augmentation | None = None, forward: str = "joint", **kwargs):
        super().__init__(encoder, head, **kwargs)
        self.augmentation = augmentation or AugMix()
        self.forward = checked_forward(forward)

    @property
    def passes_per_step(self):
        """Passes per step: three, one per view."""
        return 1 + len(AUGMENTED)

    def host_views(self, images, key):
        """Return two samples of the augmentation."""
        return augmented_views(self.augmentation, images, key, AUGMENTED)

    def make_views(self, batch, context):
        """Return the images and their two augmentations."""
        return {"images": batch.images, **self.extra_views(batch, context)}

    def loss_terms(self, views, batch, context):
        """Compute `ce` of the images, `jsd` of the three views, and the logits of the images."""
        stacked = [views[name] for name in ("images", *AUGMENTED)]
        logits = [logits for _, logits in self.propagate_views(*stacked, forward=self.forward)]
        return {"ce": cross_entropy(logits[0], batch.labels), "jsd": jensen_shannon(logits)}, logits[0]


def augmented_views(augmentation: Augmentation, images: tf.Tensor, key: tf.Tensor, names: Iterable[str]) -> dict:
    """Sample an augmentation of the images once for each name.

    Args:
        augmentation: (images, key) -> images.
        images: float32 [b, h, w, c] in [0, 1].
        key: int32 [2] or [b, 2].
        names: names of the views.

    Returns:
        A dict from name to float32 [b, h, w, c].
    """
    return {name: augmentation(images, randomness.fold(key, name)) for name in names}
