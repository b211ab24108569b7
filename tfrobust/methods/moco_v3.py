"""MoCo v3: recognize the momentum network's projection of the other view among those of all images of the batch."""

import keras

from tfrobust.errors import InputError
from tfrobust.losses.contrastive import masked_contrastive
from tfrobust.methods.shared.momentum import MomentumPrediction
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.ops import distribution
from tfrobust.pairs import masks, selection


@keras.saving.register_keras_serializable(package="tfrobust")
class MoCoV3(MomentumPrediction):
    """Momentum contrast, version 3: contrastive learning with the keys of a momentum network, without a queue.

    L = contrastive + probe; contrastive = 2 t (l(q_1, k_2) + l(q_2, k_1)), l(q, k)_i = -log( exp(<q_i, k_i> / t) /
    sum_j exp(<q_i, k_j> / t) ), j over the global batch, all vectors normalized to length 1. q are the predictions of
    the trained network, k the projections of the momentum network, through which no gradient flows. Its weights are
    updated before its passes, k <- k + r_t (q - k), from the same initial weights.

    Terms: `contrastive`, `probe`. Observed: `embedding_deviation`. Needs: no labels with probe=False.

    Example:
        >>> import keras
        >>> from tfrobust import keras as robust
        >>> rate = keras.optimizers.schedules.CosineDecay(0.01, 1000)  # m from 0.99 to 1
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> method = robust.methods.MoCoV3(*parts, temperature=0.2, target_rate=rate)
        >>> method.terms, method.projection.hidden, method.prediction.normalization
        (('contrastive', 'probe'), (4096,), 'hidden')

    Args:
        encoder, head: as in `Method`.
        projection: that of the paper's ResNet-50 by default: 4096 units, batch norm, ReLU, 256 units, batch norm
            without scale and offset, all layers without bias.
        prediction: maps projections to projections. The default is that of the ResNet-50 if `projection` is None, which
            lacks the last batch norm; otherwise a layer with the architecture of the projection.
        temperature: t > 0. The paper has 1 for ResNet-50 and 0.2 for ViT.
        target_rate: r_t in [0, 1], a number or a schedule of the step.
        **kwargs: as in `MomentumMethod`. `forward` is "separate" passes of the two views (the default), or one "joint"
            pass, in both networks.

    Raises:
        ValueError: a temperature that is not above 0, a `target_rate` outside [0, 1]; when built, a prediction whose
            output has another size than the projection.

    Source:
        Chen et al. 2021, https://arxiv.org/abs/2104.02057, algorithm 1; facebookresearch/moco-v3, moco/builder.py. The
        random, frozen projection of patches is `ViT.frozen_patches`.
    """

    least_batch = 2  # a single image has no negatives
    updates_before_keys = True

    def __init__(
        self,
        encoder,
        head,
        *,
        projection: keras.layers.Layer | None = None,
        prediction: keras.layers.Layer | None = None,
        temperature: float = 1.0,
        target_rate=0.01,
        **kwargs,
    ):
        if projection is None:
            style = {"dim": 256, "use_bias": False, "output_bias": False}
            projection = ProjectionHead((4096,), normalization="standardized", **style)
            prediction = prediction or ProjectionHead((4096,), normalization="hidden", **style)
        networks = {"projection": projection, "prediction": prediction, "target_rate": target_rate}
        super().__init__(encoder, head, **networks, **kwargs)
        self.temperature = temperature
        if not temperature > 0:
            raise InputError(f"MoCoV3.temperature is {temperature}; it must be > 0.")

    @property
    def terms(self):
        """`contrastive`, then `probe` if it is trained."""
        return ("contrastive", *self.probe_names)

    def compare(self, prediction, target, context):
        """Compute 2 t l(q, k) of each image over the keys of all replicas."""
        keys, others = distribution.gather((target, masks.tag(context.rows, view=1)))
        pairs = masks.ByRows(selection.sample_ids, masks.tag(context.rows, view=0), others)
        return 2.0 * self.temperature * masked_contrastive(prediction, keys, pairs, temperature=self.temperature)
