"""Manifold Mixup (Verma et al., 2019)."""

import keras
import tensorflow as tf

from tfrobust.augment.mixing import Mixing, at_one_stage, mix_rows, require_stages
from tfrobust.losses.mixed import checked_objective, mixed_loss
from tfrobust.methods.shared.method import Method
from tfrobust.methods.shared.pixel_bounds import PixelBounds
from tfrobust.ops import randomness
from tfrobust.ops.shapes import batch_size


@keras.saving.register_keras_serializable(package="tfrobust")
class ManifoldMixup(PixelBounds, Method):
    """Mixup of the hidden states at one stage of the encoder, sampled anew for each step.

    g~ = lambda g_k(x) + (1 - lambda) g_k(x') at stage k, which then passes through the rest of the network; ce_mixed =
    lambda CE(y) + (1 - lambda) CE(y'). One k and one lambda ~ Beta(2, 2) per step; partners are permuted inside groups
    of rows (the authors permute the whole batch).

    Terms: `ce_mixed`. Needs: labels, an encoder with stages. The training accuracy compares predictions on mixed
    examples with y.

    Example:
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> robust.methods.ManifoldMixup(*parts, stages=(0, 3)).mixing.alpha
        2.0

    Args:
        encoder, head: as in `Method`.
        mixing: how weights and partners are sampled.
        stages: the stages that may be mixed, with equal probability: 0 is the input, k the output of stage k.
        objective: "cross_entropy" (the paper), or "binary_cross_entropy" of the softmax against the mixed one-hot
            labels, averaged over the classes (the released code).
        **kwargs: as in `Method`; `bounds` of the pixels, (0.0, 1.0) by default.

    Raises:
        ValueError: an unknown objective, or stages that the encoder does not have.

    Source:
        Verma et al. 2019, https://arxiv.org/abs/1806.05236, and its released code.
    """

    terms = ("ce_mixed",)

    def __init__(
        self,
        encoder,
        head,
        *,
        mixing: Mixing | None = None,
        stages: tuple[int, ...] = (0, 1, 2),
        objective: str = "cross_entropy",
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.mixing = mixing or Mixing(alpha=2.0)
        self.stages = require_stages(encoder, stages, "ManifoldMixup")
        self.objective = checked_objective(objective, "ManifoldMixup")

    def loss_terms(self, views, batch, context):
        """Compute the mixed loss and the logits of the mixed hidden states."""
        mix = self.mixing.draw(randomness.fold(context.key, "mixing"), batch_size(batch.images))
        at_stage = at_one_stage(
            randomness.fold(context.key, "stage"), self.stages, lambda hidden: mix_rows(hidden, mix)
        )
        _, logits = self.propagate(views["images"], at_stage=at_stage)
        partner_labels = tf.gather(batch.labels, mix.partner)
        return {"ce_mixed": mixed_loss(self.objective, logits, batch.labels, partner_labels, mix.weight)}, logits
