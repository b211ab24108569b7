"""Noisy Feature Mixup (Lim et al., 2022)."""

import keras
import tensorflow as tf

from tfrobust.augment.mixing import FeatureNoise, Mixing, at_one_stage, mix_rows, require_stages
from tfrobust.losses.mixed import mixed_cross_entropy
from tfrobust.methods.shared.method import Method
from tfrobust.ops import randomness
from tfrobust.ops.shapes import batch_size


@keras.saving.register_keras_serializable(package="tfrobust")
class NFM(Method):
    """Manifold Mixup with noise on the mixed features.

    g~ = (1 + multiplicative noise) * (lambda g_k(x) + (1 - lambda) g_k(x')) + additive noise at stage k, which then
    passes through the rest of the network; ce_mixed = lambda CE(y) + (1 - lambda) CE(y'). One k and one lambda ~
    Beta(1, 1) per step; partners are permuted inside groups of rows (the authors permute the whole batch).

    Terms: `ce_mixed`. Needs: labels, an encoder with stages. The training accuracy compares predictions on mixed
    examples with y.

    Example:
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> method = robust.methods.NFM(*parts, noise=robust.methods.FeatureNoise(additive=0.1, multiplicative=0.1))
        >>> method.stages
        (0, 1, 2, 3)

    Args:
        encoder, head: as in `Method`.
        mixing: how weights and partners are sampled.
        noise: additive and multiplicative noise on the mixed features; levels 0.4 and 0.2 by default.
        stages: the stages that may be mixed, with equal probability: 0 is the input, k the output of stage k. The
            released code has 0 to 3 for its ResNet and 0 to 2 for its Wide ResNet.
        **kwargs: as in `Method`.

    Raises:
        ValueError: stages that the encoder does not have.

    Source:
        Lim et al. 2022, https://arxiv.org/abs/2110.02180, and its released code; Erichson et al. 2022, section 3.1.
    """

    terms = ("ce_mixed",)

    def __init__(
        self,
        encoder,
        head,
        *,
        mixing: Mixing | None = None,
        noise: FeatureNoise | None = None,
        stages: tuple[int, ...] = (0, 1, 2, 3),
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.mixing = mixing or Mixing()
        self.noise = noise or FeatureNoise()
        self.stages = require_stages(encoder, stages, "NFM")

    def loss_terms(self, views, batch, context):
        """Compute the mixed cross-entropy and the logits of the mixed hidden states."""
        mix = self.mixing.draw(randomness.fold(context.key, "mixing"), batch_size(batch.images))
        key = randomness.fold(context.key, "noise")
        scales = self.noise.scales(key)  # sampled here so that they are traced once, not at each stage

        def change(hidden):
            return self.noise(mix_rows(hidden, mix), key, scales=scales)

        at_stage = at_one_stage(randomness.fold(context.key, "stage"), self.stages, change)
        _, logits = self.propagate(views["images"], at_stage=at_stage)
        partner_labels = tf.gather(batch.labels, mix.partner)
        return {"ce_mixed": mixed_cross_entropy(logits, batch.labels, partner_labels, mix.weight)}, logits
