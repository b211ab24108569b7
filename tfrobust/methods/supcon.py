"""SupCon as pre-training: views of the same class are positives, views of other classes negatives."""

import keras

from tfrobust.errors import InputError
from tfrobust.methods.shared.nt_xent import NTXentMethod
from tfrobust.methods.shared.self_supervised import VIEWS
from tfrobust.pairs import selection


@keras.saving.register_keras_serializable(package="tfrobust")
class SupCon(NTXentMethod):
    """Supervised contrastive loss between two augmented views of each image, without cross-entropy on the encoder.

    L = factor contrastive + probe; contrastive is the mean over the 2N views i, and over all views p of i's class, of
    -log( exp(s_ip / t) / sum_(k != i) exp(s_ik / t) ). The factor t / base_temperature is that of the released code;
    the paper has none. This is stage one of two: a linear probe or a fine-tuned classifier follows.
    (`SupervisedContrastive` is the row of Bui et al. 2021 that trains with cross-entropy in a single stage.)

    Terms: `contrastive`, `probe`. Observed: `embedding_deviation`. Needs: labels.

    Example:
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> robust.methods.SupCon(*parts, base_temperature=0.07).temperature
        0.1

    Args:
        encoder, head: as in `Method`.
        temperature: t > 0, a number or a schedule of the step.
        base_temperature: 0.07 in the released code, where t = 0.1 multiplies the loss by 1.43. None: factor 1.
        **kwargs: as in `NTXentMethod`, without `false_negatives`.

    Raises:
        ValueError: a base temperature that is not above 0, or `false_negatives`.

    Source:
        Khosla et al. 2020, https://arxiv.org/abs/2004.11362, eq 2; HobbitLong/SupContrast, losses.py.
    """

    own_terms = ("contrastive",)
    needs_labels = True

    def __init__(self, encoder, head, *, temperature=0.1, base_temperature: float | None = None, **kwargs):
        super().__init__(encoder, head, temperature=temperature, **kwargs)
        self.base_temperature = base_temperature
        if base_temperature is not None and not base_temperature > 0:
            raise InputError(f"SupCon.base_temperature is {base_temperature}; it must be > 0, or None.")
        if self.false_negatives is not None:
            raise InputError(
                "SupCon has no false negatives, because pairs follow the labels: set false_negatives=None."
            )

    def pairs(self, anchors, keys):
        """Return pairs by class: positives share the label, negatives do not."""
        return selection.class_ids(anchors, keys)

    def loss_terms(self, views, batch, context):
        """Compute the supervised contrastive term and the probe, and the logits of the first view."""
        embeddings, projections = zip(*self.represent(*(views[name] for name in VIEWS)), strict=True)
        contrastive, observed = self.contrast(projections, context, batch)
        if self.base_temperature is not None:
            contrastive *= self.temperature_at(context.step) / self.base_temperature
        probe, logits = self.probe_terms(embeddings, batch)
        return {"contrastive": contrastive, **probe, **observed}, logits
