"""BYOL: predict the momentum network's projection of one view from the projection of the other view."""

import keras
import tensorflow as tf

from tfrobust.methods.shared.momentum import MomentumPrediction
from tfrobust.models.heads.projection import ProjectionHead
from tfrobust.ops import similarity


@keras.saving.register_keras_serializable(package="tfrobust")
class BYOL(MomentumPrediction):
    """Bootstrap your own latent: regression onto a momentum network, without negatives.

    L = regression + probe; regression = |q(z_1) - z'_2|^2 + |q(z_2) - z'_1|^2 with all four vectors normalized to
    length 1. z are the projections of the online network, q is the prediction, z' are the projections of the target
    network, through which no gradient flows. After each update target <- target + r_t (online - target). The batch norm
    of the target network uses the statistics of its own batch, as that of the online network does.

    r_t = 1 - tau_t of the paper. Its cosine from tau_0 = 0.996 to 1 over T steps is
    target_rate=keras.optimizers.schedules.CosineDecay(0.004, T).

    Terms: `regression`, `probe`. Observed: `embedding_deviation`. Needs: no labels with probe=False.

    Example:
        >>> import keras
        >>> from tfrobust import keras as robust
        >>> head = robust.layers.ProjectionHead((64,), dim=16, normalization="hidden", output_bias=False)
        >>> rate = keras.optimizers.schedules.CosineDecay(0.004, 1000)
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> method = robust.methods.BYOL(*parts, projection=head, target_rate=rate)
        >>> method.terms, method.prediction.hidden  # the prediction is like the projection where none is given
        (('regression', 'probe'), (64,))

    Args:
        encoder, head: as in `Method`.
        projection: 4096 units, batch norm, ReLU, 256 units without bias by default, as in the paper.
        prediction: maps projections to projections; by default a layer with the architecture of the projection.
        **kwargs: as in `MomentumMethod`. `target_rate` is r_t in [0, 1], a number or a schedule of the step. `forward`
            is "separate" passes of the two views (the default), or one "joint" pass, in both networks.

    Raises:
        ValueError: when built, a prediction whose output has another size than the projection.

    Source:
        Grill et al. 2020, https://arxiv.org/abs/2006.07733, eqs 1 and 2 and section 3.3;
        google-deepmind/deepmind-research, byol. As in that code, both networks have independent initial weights and
        each view has its own pass. Difference: its probe sees the first view only, here it sees both.
    """

    own_terms = ("regression",)
    starts_equal = False

    def __init__(
        self,
        encoder,
        head,
        *,
        projection: keras.layers.Layer | None = None,
        **kwargs,
    ):
        if projection is None:
            projection = ProjectionHead((4096,), dim=256, normalization="hidden", output_bias=False)
        super().__init__(encoder, head, projection=projection, **kwargs)

    def compare(self, queries, key, context, batch):
        """Compute the squared distance of the directions."""
        return squared_distance(queries[0][1], key[1]), {}


def squared_distance(predictions: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Compute |a / |a| - b / |b||^2 of each pair of rows.

    Args:
        predictions: a, float [b, d].
        targets: b, float [b, d].

    Returns:
        float32 [b] in [0, 4].
    """
    gap = similarity.normalize(predictions) - similarity.normalize(targets)
    return tf.reduce_sum(tf.square(gap), axis=-1)
