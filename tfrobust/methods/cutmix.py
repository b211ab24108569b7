"""CutMix (Yun et al., 2019)."""

import keras
import tensorflow as tf

from tfrobust.augment.mixing import Mix, Mixing, cut_box
from tfrobust.errors import InputError
from tfrobust.losses.mixed import mixed_cross_entropy
from tfrobust.methods.shared.method import Method
from tfrobust.methods.shared.pixel_bounds import PixelBounds
from tfrobust.ops import randomness
from tfrobust.ops.shapes import batch_size


@keras.saving.register_keras_serializable(package="tfrobust")
class CutMix(PixelBounds, Method):
    """Cross-entropy on images with a box pasted from another image, with labels weighted by area.

    x~ = x outside a box of area 1 - lambda, x' inside; ce_mixed = l CE(h(x~), y) + (1 - l) CE(h(x~), y'). l is the
    share of the image outside the box after clipping and rounding. One lambda ~ Beta(1, 1) and one box per step;
    partners are permuted inside groups of rows (the authors permute the whole batch).

    Terms: `ce_mixed`. Needs: labels. The training accuracy compares predictions on mixed images with y.

    Example:
        >>> from tfrobust import keras as robust
        >>> method = robust.methods.CutMix(robust.models.DigitsCNN(), robust.models.LinearHead(10), probability=0.5)
        >>> method.terms, method.mixing.alpha
        (('ce_mixed',), 1.0)

    Args:
        encoder, head: as in `Method`.
        mixing: how weights, boxes and partners are sampled; `per_example` gives each image a box of its own.
        probability: probability that a step (an example, with `per_example`) is mixed at all. The released commands
            have 1 for ImageNet and 0.5 for CIFAR.
        **kwargs: as in `Method`; `bounds` of the pixels, (0.0, 1.0) by default.

    Raises:
        ValueError: a probability outside [0, 1].

    Source:
        Yun et al. 2019, https://arxiv.org/abs/1905.04899, and its released code, whose rounding `cut_box` follows.
    """

    terms = ("ce_mixed",)
    differentiable_views = ("mixed",)

    def __init__(self, encoder, head, *, mixing: Mixing | None = None, probability: float = 1.0, **kwargs):
        super().__init__(encoder, head, **kwargs)
        if not 0 <= probability <= 1:
            raise InputError(f"CutMix.probability is {probability}; it lies in [0, 1].")
        self.mixing = mixing or Mixing()
        self.probability = probability

    def make_views(self, batch, context):
        """Return the images and the mixed images."""
        mix, inside = self._mix_and_box(batch, context)
        return {
            "images": batch.images,
            "mixed": tf.where(inside, tf.gather(batch.images, mix.partner), batch.images),
        }

    def loss_terms(self, views, batch, context):
        """Compute the mixed cross-entropy and the logits of the mixed images."""
        mix, _ = self._mix_and_box(batch, context)
        _, logits = self.propagate(views["mixed"])
        partner_labels = tf.gather(batch.labels, mix.partner)
        return {"ce_mixed": mixed_cross_entropy(logits, batch.labels, partner_labels, mix.weight)}, logits

    def _mix_and_box(self, batch, context) -> tuple[Mix, tf.Tensor]:
        """Return the mix with weights by area, and the pixels to paste, bool, to broadcast with the images."""
        key, count = randomness.fold(context.key, "mixing"), batch_size(batch.images)
        mix = self.mixing.draw(key, count)
        chance, *center = (
            self.mixing.per_step(randomness.uniform(), randomness.fold(key, word), count)
            for word in ("probability", "row", "column")
        )
        drawn_weight = tf.where(chance < self.probability, mix.weight, 1.0)
        inside, weight = cut_box(drawn_weight, tf.stack(center, axis=-1), *batch.images.shape[-3:-1])
        inside = inside[..., None]
        # One box for all frames of a clip.
        return Mix(weight, mix.partner), inside if batch.images.shape.rank == 4 else tf.expand_dims(inside, -4)
