"""Puzzle Mix (Kim et al., 2020)."""

import keras
import tensorflow as tf

from tfrobust.attacks.shared import objectives
from tfrobust.augment.mixing import Mixing
from tfrobust.augment.puzzlemix import Puzzle, input_saliency
from tfrobust.losses.mixed import checked_objective, mixed_loss
from tfrobust.methods.shared.method import Method
from tfrobust.ops import randomness
from tfrobust.ops.gradients import input_gradient
from tfrobust.ops.shapes import batch_size


@keras.saving.register_keras_serializable(package="tfrobust")
class PuzzleMix(Method):
    """Cross-entropy on images composed of the salient blocks of two images.

    The saliency of a pixel is the size of the input gradient of CE(h(x), y), in inference mode. x~ = m P x + (1 - m) P'
    x', with the mask m of the lowest energy and the transports P, P' of `Puzzle`; ce_mixed = l CE(h(x~), y) + (1 - l)
    CE(h(x~), y'), l the mean of the image's mask. One weight ~ Beta(1, 1) and one number of blocks per step; partners
    are permuted inside groups of rows (the authors permute the whole batch). The authors differentiate with respect to
    normalized images, in which channels of a larger deviation have more weight.

    Terms: `ce_mixed`. Needs: labels, square images. The training accuracy compares predictions on mixed images with y.

    Example:
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> robust.methods.PuzzleMix(*parts, puzzle=robust.methods.Puzzle(blocks=(2, 4))).puzzle.transport_cost
        0.8

    Args:
        encoder, head: as in `Method`.
        mixing: how weights and partners are sampled. There is one number of blocks per step even with `per_example`.
        puzzle: how images are divided into blocks, selected and transported.
        objective: "cross_entropy" (the paper), or "binary_cross_entropy" of the softmax against the mixed one-hot
            labels, averaged over the classes (the released code).
        **kwargs: as in `Method`.

    Raises:
        ValueError: an unknown objective.

    Source:
        Kim, Choo and Song 2020, https://arxiv.org/abs/2009.06962, and its released code, which computes graph cuts on
        the host.
    """

    terms = ("ce_mixed",)
    differentiable_views = ("mixed",)

    def __init__(
        self,
        encoder,
        head,
        *,
        mixing: Mixing | None = None,
        puzzle: Puzzle | None = None,
        objective: str = "cross_entropy",
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.mixing = mixing or Mixing()
        self.puzzle = puzzle or Puzzle()
        self.objective = checked_objective(objective, "PuzzleMix")

    @property
    def passes_per_step(self) -> int:
        """Passes per step: one for the saliency, one for the mixed images."""
        return 2

    def make_views(self, batch, context):
        """Return the images, the mixed images and their weights."""
        # A confident model's gradients are below the smallest float16; the saliency has no scale.
        forward = objectives.ranged(lambda images: self.propagate(images, training=False)[1])

        def objective(images):
            return objectives.cross_entropy_of(forward(images), batch.labels)

        _, gradient = input_gradient(objective, batch.images)
        key = randomness.fold(context.key, "puzzle")
        mixed, weight = self.puzzle(batch.images, input_saliency(gradient), self._mix(batch, context), key)
        return {"images": batch.images, "mixed": mixed, "weight": weight}

    def loss_terms(self, views, batch, context):
        """Compute the mixed loss and the logits of the mixed images."""
        _, logits = self.propagate(views["mixed"])
        partner_labels = tf.gather(batch.labels, self._mix(batch, context).partner)
        return {"ce_mixed": mixed_loss(self.objective, logits, batch.labels, partner_labels, views["weight"])}, logits

    def _mix(self, batch, context):
        return self.mixing.draw(randomness.fold(context.key, "mixing"), batch_size(batch.images))
