"""Plain training, the baseline of every table, and XE+Gaussian: the same with noisy copies."""

import keras

from tfrobust.augment.augmentation import Augmentation
from tfrobust.common.kinds import ANY
from tfrobust.errors import InputError
from tfrobust.losses import classification
from tfrobust.methods.shared.method import Method, checked_forward
from tfrobust.methods.shared.pixel_bounds import PixelBounds
from tfrobust.ops import randomness


@keras.saving.register_keras_serializable(package="tfrobust")
class Supervised(PixelBounds, Method):
    """Cross-entropy on images and, with `noise`, on a noisy copy of each image.

    L = ce (+ weight ce_noisy). With noise = AddGaussian and a small weight it is XE+Gaussian of the papers. For noise
    that replaces images, use an augmentation of the input pipeline.

    Terms: `ce`, and `ce_noisy` with noise. Needs: labels.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> method = robust.methods.Supervised(robust.models.CNN(((4,),), dense=(8,)), robust.models.LinearHead(10))
        >>> method.compile("adam")
        >>> images, labels = np.random.rand(20, 8, 8, 1), np.arange(20) % 10
        >>> sorted(method.fit(images, labels, verbose=0).history)
        ['ce', 'loss']
        >>> noisy = robust.methods.Supervised(method.encoder, method.head, noise=robust.augment.AddGaussian())
        >>> noisy.terms
        ('ce', 'ce_noisy')

    Args:
        encoder, head: as in `Method`.
        noise: makes the copy, sampled anew in every step; None for none.
        forward: "separate" passes for images and copies, or one "joint" pass. The paper does not specify it.
        **kwargs: as in `Method`; `bounds` of the pixels, (0.0, 1.0) by default.

    Source:
        Kim et al. 2021, section 4.3 and appendix C: the weight of `ce_noisy` is 1e-4.
    """

    default_weights = {"ce_noisy": 1e-4}
    kinds = ANY

    def __init__(self, encoder, head, *, noise: Augmentation | None = None, forward: str = "separate", **kwargs):
        super().__init__(encoder, head, **kwargs)
        if noise is not None and self.bounds != (0.0, 1.0):
            raise InputError(f"Supervised.noise is for pixels in [0, 1], not {self.bounds}: leave out noise or bounds.")
        self.noise = noise
        self.forward = checked_forward(forward)

    @property
    def terms(self):
        """`ce` and, with noise, `ce_noisy`."""
        return ("ce",) if self.noise is None else ("ce", "ce_noisy")

    @property
    def passes_per_step(self):
        """Passes per step: one per term."""
        return len(self.terms)

    def make_views(self, batch, context):
        """Return the images and, with noise, their noisy copies."""
        if self.noise is None:
            return {"images": batch.images}
        return {"images": batch.images, "noisy": self.noise(batch.images, randomness.fold(context.key, "noise"))}

    def loss_terms(self, views, batch, context):
        """Compute the cross-entropy of each view, and the logits of the images."""
        passes = self.propagate_views(*views.values(), forward=self.forward)
        entropies = [classification.cross_entropy(logits, batch.labels) for _, logits in passes]
        return dict(zip(self.terms, entropies, strict=True)), passes[0][1]
