"""MoCo v3: recognize the momentum network's projection of the other view among those of all images of the batch."""

from typing import Any

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.losses.contrastive import masked_contrastive
from tfrobust.methods.shared.filtering import FilteringMethod
from tfrobust.methods.shared.momentum import MomentumPrediction
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.ops import distribution
from tfrobust.pairs import masks, selection
from tfrobust.pairs.false_negatives import FilteredMasks


@keras.saving.register_keras_serializable(package="tfrobust")
class MoCoV3(FilteringMethod, MomentumPrediction):
    """Momentum contrast, version 3: contrastive learning with the keys of a momentum network, without a queue.

    L = contrastive + probe; contrastive = 2 t (l(q_1, k_2) + l(q_2, k_1)), l(q, k)_i = -log( exp(<q_i, k_i> / t) /
    sum_j exp(<q_i, k_j> / t) ), j over the global batch, all vectors normalized to length 1. q are the predictions of
    the trained network, k the projections of the momentum network, through which no gradient flows. Its weights are
    updated before its passes, k <- k + r_t (q - k), from the same initial weights.

    `false_negatives` removes keys of other images from the sum over j, or makes them positives. The cosine of anchor i
    and key j is that of the loss, <q_i, k_j>; with features="embedding" it is the cosine of the trained encoder's
    embedding of one view and the momentum encoder's embedding of the other view. Each direction is filtered separately,
    by its own anchors and keys. A direction has one key per image, so all `key_views` of `AdaptiveFNC` agree. FNC takes
    the larger cosine of both views of the anchor's image with the key. Gupta et al. 2023 has false negative
    cancellation for SimCLR, RoCL and ACL only.

    Terms: `contrastive`, `probe`. Observed: `embedding_deviation`; with `false_negatives` also `negatives_left` per
    anchor and, by the true labels, the shares `false_negatives_found` and `true_negatives_removed`. Needs: no labels
    with probe=False.

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
        **kwargs: as in `FilteringMethod` and `MomentumMethod`. `forward` is "separate" passes of the two views (the
            default), or one "joint" pass, in both networks.

    Raises:
        ValueError: a temperature that is not above 0, a `target_rate` outside [0, 1]; when built, a prediction whose
            output has another size than the projection, or missing `examples`.

    Source:
        Chen et al. 2021, https://arxiv.org/abs/2104.02057, algorithm 1; facebookresearch/moco-v3, moco/builder.py. The
        random, frozen projection of patches is `ViT.frozen_patches`.
    """

    own_terms = ("contrastive",)
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
            style: dict[str, Any] = {"dim": 256, "use_bias": False, "output_bias": False}
            projection = ProjectionHead((4096,), normalization="standardized", **style)
            prediction = prediction or ProjectionHead((4096,), normalization="hidden", **style)
        networks = {"projection": projection, "prediction": prediction, "target_rate": target_rate}
        super().__init__(encoder, head, **networks, **kwargs)
        self.temperature = temperature
        if not temperature > 0:
            raise InputError(f"MoCoV3.temperature is {temperature}; it must be > 0.")

    def compare(self, queries, key, context, batch):
        """Compute 2 t l(q, k) of each image over the keys of all replicas that `false_negatives` leaves."""
        query_tags, tags = (self.tags(context, batch, view=view) for view in (0, 1))
        keys, key_tags = distribution.gather((key[1], tags))
        if self.false_negatives is None:
            pairs, observed = masks.ByRows(selection.sample_ids, query_tags, key_tags), {}
        else:
            embedded = self.false_negatives.features == "embedding"
            compared = tf.concat([embedding if embedded else q for embedding, q in queries], axis=0)
            arguments = (
                query_tags,
                key_tags,
                compared,
                distribution.gather(key[0]) if embedded else keys,
                context.step,
            )
            pairs = FilteredMasks(selection.sample_ids, self.false_negatives, *arguments, views=len(queries))
            observed = self.detection_logs(pairs, context, batch)
        values = masked_contrastive(queries[0][1], keys, pairs, temperature=self.temperature)
        return 2.0 * self.temperature * values, observed
