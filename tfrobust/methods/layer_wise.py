"""Layer-wise contrastive loss: NT-Xent at every stage of the encoder."""

import keras
import tensorflow as tf

from tfrobust.augment.mixing import more_stages
from tfrobust.errors import InputError
from tfrobust.methods.shared import layer_losses
from tfrobust.methods.shared.nt_xent import NTXentMethod
from tfrobust.methods.shared.self_supervised import VIEWS, keep_stages


@keras.saving.register_keras_serializable(package="tfrobust")
class LayerWiseContrastive(NTXentMethod):
    """SimCLR with a contrastive term at each stage of the encoder, with growing weights.

    L = sum_k alpha_k L_k, alpha_1 << alpha_2 << ... (eq 4). L_k, the term `layer_<k>`, is NT-Xent of the output of
    stage k, averaged over its positions. The last term, `contrastive`, is that of SimCLR, on the projected embedding.
    alpha is the term weight: 1 for the last term, and a tenth of the next stage's weight for each earlier one, unless
    `term_weights` sets other values. `penalty=LayerWiseTikhonov(betas={"layer_1": ..., "contrastive": ...})` adds the
    regularizer of eq 5.

    Terms: `contrastive`, `layer_1` to `layer_K`, `probe`. Needs: labels for the probe only.

    Example:
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.CNN(((4,), (8,)), dense=(8,)), robust.models.LinearHead(10)
        >>> method = robust.methods.LayerWiseContrastive(*parts, probe=False)
        >>> method.default_weights
        {'layer_1': 0.01, 'layer_2': 0.1}

    Args:
        encoder: as in `Method`, with stages.
        head: as in `Method`.
        **kwargs: as in `NTXentMethod`.

    Raises:
        ValueError: an encoder without stages.

    Source:
        Campbell, Manta and Iannantuono 2020, eqs 4 and 5, which the report leaves to future work: its
        script of that name has the loss of the last layer alone. The report does not define the vectors that L_k
        compares. Here they are the pooled outputs without a projection.
    """

    def __init__(self, encoder, head, **kwargs):
        super().__init__(encoder, head, **kwargs)
        count = getattr(encoder, "stage_count", 0)
        if not count or (count == 1 and hasattr(encoder, "stage_names")):
            raise InputError(
                f"LayerWiseContrastive needs an encoder with stages; {type(encoder).__name__} has "
                f"{count or 'none'}{more_stages(encoder)}."
            )

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The terms of the stages, first to last."""
        return tuple(f"layer_{stage}" for stage in range(1, self.encoder.stage_count + 1))

    @property
    def own_terms(self):
        """`contrastive`, then the terms of the stages."""
        return ("contrastive", *self.layer_names)

    @property
    def default_weights(self):
        """The weights of the stages: 0.1 for the last, a tenth of the next stage's for each earlier one."""
        deepest = len(self.layer_names)
        return {name: 10.0 ** (number - deepest) for number, name in enumerate(self.layer_names)}

    def loss_terms(self, views, batch, context):
        """Compute NT-Xent of the projections and of each stage, the probe, and the logits of the first view."""
        images = [views[name] for name in VIEWS]
        if self.forward == "separate":
            passes = [self._outputs(view) for view in images]
        else:
            stacked = self._outputs(tf.concat(images, axis=0))
            passes = list(zip(*(tf.split(part, len(images)) for part in stacked), strict=True))
        features, *compared = zip(*passes, strict=True)
        results = [self.contrast(list(vectors), context, batch, features=list(features)) for vectors in compared]
        terms = {name: value for name, (value, _) in zip(self.own_terms, results, strict=True)}
        probes, logits = self.probe_terms(list(features), batch)
        return {**terms, **results[0][1], **probes}, logits

    def _outputs(self, images) -> list[tf.Tensor]:
        """Return the embedding, its projection, and the pooled output of each stage, float32 [n, ...]."""
        keep, stages = keep_stages(range(1, self.encoder.stage_count + 1), _pooled)
        embedding = self.encoder(images, training=self.encoder.trainable, at_stage=keep)
        layer_losses.record(self.encoder)
        return [embedding, self.project(embedding, True), *stages]


def _pooled(hidden: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.cast(hidden, tf.float32), axis=list(range(1, hidden.shape.rank - 1)))
