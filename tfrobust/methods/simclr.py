"""SimCLR: two views of an image are positives, all other images of the batch negatives."""

import keras

from tfrobust.methods.shared.nt_xent import NTXentMethod
from tfrobust.methods.shared.self_supervised import VIEWS


@keras.saving.register_keras_serializable(package="tfrobust")
class SimCLR(NTXentMethod):
    """NT-Xent between two augmented views of each image, and an online linear probe.

    L = contrastive + probe; contrastive is the mean over the 2N views i of -log( exp(s_ij / t) / sum_(k != i) exp(s_ik
    / t) ), j the other view of the image, s the cosine of the projections.

    Terms: `contrastive`, `probe`. Observed: `embedding_deviation`; with `false_negatives` also `negatives_left` per
    anchor and, by the true labels, the shares `false_negatives_found` and `true_negatives_removed`. Needs: no labels
    with probe=False.

    Example:
        >>> from tfrobust import keras as robust
        >>> views = robust.augment.PadCrop(padding=1)
        >>> method = robust.methods.SimCLR(robust.models.DigitsCNN(), robust.models.LinearHead(10), views=views)
        >>> method.terms, method.host_view_names
        (('contrastive', 'probe'), ('view_1', 'view_2'))

    Args:
        encoder, head: as in `Method`.
        **kwargs: as in `NTXentMethod`.

    Source:
        Chen et al. 2020, https://arxiv.org/abs/2002.05709, eq 1 and algorithm 1, with the online probe of
        google-research/simclr. The released loss is scale="sum" in one joint pass. Campbell et al. 2020 (eq 1,
        self_in_denominator=True as printed) has separate passes, forward="separate".
    """

    own_terms = ("contrastive",)

    def loss_terms(self, views, batch, context):
        """Compute NT-Xent and the probe, and the logits of the first view."""
        embeddings, projections = zip(*self.represent(*(views[name] for name in VIEWS)), strict=True)
        contrastive, observed = self.contrast(projections, context, batch, features=embeddings)
        probe, logits = self.probe_terms(embeddings, batch)
        return {"contrastive": contrastive, **probe, **observed}, logits
