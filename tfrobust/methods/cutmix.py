"""CutMix."""

import keras
import tensorflow as tf

from tfrobust.augment.mixing import Mix, Mixing, cut_box
from tfrobust.errors import InputError
from tfrobust.losses.mixed import mixed_cross_entropy
from tfrobust.methods.base import Method
from tfrobust.ops import randomness
from tfrobust.ops.shapes import batch_size


@keras.saving.register_keras_serializable(package="tfrobust")
class CutMix(Method):
    """Cross-entropy on images with a box pasted from another, weighted by the area.

    x~ = x outside a box of area 1 - lambda, x' inside; ce_mixed = l CE(h(x~), y) + (1 - l) CE(h(x~), y'), where l
    is the area that is really left. One lambda ~ Beta(1, 1) and one box a step, partners inside groups of rows (the
    authors permute the whole batch).

    Terms: `ce_mixed`. Needs: labels. The training accuracy is that of the mixed images against y.

    Example:
        >>> from tfrobust import keras as robust
        >>> method = robust.methods.CutMix(robust.models.DigitsCNN(), robust.models.LinearHead(10), probability=0.5)
        >>> method.terms, method.mixing.alpha
        (('ce_mixed',), 1.0)

    Source:
        Yun et al. 2019, https://arxiv.org/abs/1905.04899, and its released code, whose rounding `cut_box` follows.
    """

    terms = ("ce_mixed",)
    differentiable_views = ("mixed",)

    def __init__(self, encoder, head, *, mixing: Mixing | None = None, probability: float = 1.0, **kwargs):
        """Args beyond the base's:

        mixing: how weights, boxes and partners are drawn; `per_example` gives each image a box of its own.
        probability: that a step (an example, with `per_example`) cuts at all. The released commands have 1 for
            ImageNet and 0.5 for CIFAR.
        """
        super().__init__(encoder, head, **kwargs)
        if not 0 <= probability <= 1:
            raise InputError(f"CutMix.probability is {probability}; it lies in [0, 1].")
        self.mixing = mixing or Mixing()
        self.probability = probability

    def make_views(self, batch, context):
        mix, inside = self._cut(batch, context)
        return {
            "images": batch.images,
            "mixed": tf.where(inside[..., None], tf.gather(batch.images, mix.partner), batch.images),
        }

    def loss_terms(self, views, batch, context):
        mix, _ = self._cut(batch, context)
        _, logits = self.propagate(views["mixed"])
        partner_labels = tf.gather(batch.labels, mix.partner)
        return {"ce_mixed": mixed_cross_entropy(logits, batch.labels, partner_labels, mix.weight)}, logits

    def _cut(self, batch, context) -> tuple[Mix, tf.Tensor]:
        """The weights as cut, with the partners; and the pixels to be pasted, bool [h, w] or [b, h, w]."""
        key, count = randomness.fold(context.key, "mixing"), batch_size(batch.images)
        mix = self.mixing.draw(key, count)
        chance, *centre = (
            self.mixing.per_step(randomness.uniform(), randomness.fold(key, word), count)
            for word in ("probability", "row", "column")
        )
        wanted = tf.where(chance < self.probability, mix.weight, 1.0)
        inside, weight = cut_box(wanted, tf.stack(centre, axis=-1), *batch.images.shape[1:3])
        return Mix(weight, mix.partner), inside
