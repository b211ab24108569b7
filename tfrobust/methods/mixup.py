"""Mixup (Zhang et al., 2018)."""

import keras
import tensorflow as tf

from tfrobust.augment.mixing import Mixing, mix_rows
from tfrobust.losses.mixed import mixed_cross_entropy
from tfrobust.methods.shared.method import Method
from tfrobust.methods.shared.pixel_bounds import PixelBounds
from tfrobust.ops import randomness
from tfrobust.ops.shapes import batch_size


@keras.saving.register_keras_serializable(package="tfrobust")
class Mixup(PixelBounds, Method):
    """Cross-entropy on convex combinations of two images, with labels weighted like the images.

    x~ = lambda x + (1 - lambda) x', ce_mixed = lambda CE(h(x~), y) + (1 - lambda) CE(h(x~), y'). One lambda ~ Beta(1,
    1) per step; partners are permuted inside groups of rows (the authors permute the whole batch).

    Terms: `ce_mixed`. Needs: labels. The training accuracy compares predictions on mixed images with y.

    Example:
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> robust.methods.Mixup(*parts, mixing=robust.methods.Mixing(alpha=0.2)).terms
        ('ce_mixed',)

    Args:
        encoder, head: as in `Method`.
        mixing: how weights and partners are sampled.
        **kwargs: as in `Method`; `bounds` of the pixels, (0.0, 1.0) by default.

    Source:
        Zhang et al. 2018, https://arxiv.org/abs/1710.09412, and its released code.
    """

    terms = ("ce_mixed",)
    differentiable_views = ("mixed",)

    def __init__(self, encoder, head, *, mixing: Mixing | None = None, **kwargs):
        super().__init__(encoder, head, **kwargs)
        self.mixing = mixing or Mixing()

    def make_views(self, batch, context):
        """Return the images and the mixed images."""
        return {"images": batch.images, "mixed": mix_rows(batch.images, self._mix(batch, context))}

    def loss_terms(self, views, batch, context):
        """Compute the mixed cross-entropy and the logits of the mixed images."""
        mix = self._mix(batch, context)
        _, logits = self.propagate(views["mixed"])
        partner_labels = tf.gather(batch.labels, mix.partner)
        return {"ce_mixed": mixed_cross_entropy(logits, batch.labels, partner_labels, mix.weight)}, logits

    def _mix(self, batch, context):
        return self.mixing.draw(randomness.fold(context.key, "mixing"), batch_size(batch.images))
