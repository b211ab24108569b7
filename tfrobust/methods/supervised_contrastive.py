"""Cross-entropy and supervised contrastive learning without adversarial examples: the row "SCL" of Bui et al. 2021."""

import keras
import tensorflow as tf

from tfrobust.augment.augmentation import Augmentation
from tfrobust.augment.standard import RandomShift
from tfrobust.losses import classification
from tfrobust.methods.shared import projections
from tfrobust.methods.shared.batch_contrast import Contrast
from tfrobust.methods.shared.method import Method, checked_forward
from tfrobust.ops import randomness
from tfrobust.pairs import masks
from tfrobust.pairs.selection import PAIR_COUNTS


@keras.saving.register_keras_serializable(package="tfrobust")
class SupervisedContrastive(Method):
    """Cross-entropy and the supervised contrastive loss on two augmented views of each image.

    L = ce + contrastive; ce is the mean over the two views. The paper does not say how its row "SCL" was trained. This
    implementation keeps eq 3, with a second augmented view in place of the adversarial example.

    Terms: `ce`, `contrastive`. Observed: positives and negatives per anchor, all of them clean. Needs: labels.

    Example:
        >>> from tfrobust import keras as robust
        >>> parts = robust.models.DigitsCNN(), robust.models.LinearHead(10)
        >>> method = robust.methods.SupervisedContrastive(*parts, augmentation=robust.augment.PadCrop(padding=1))
        >>> method.terms
        ('ce', 'contrastive')

    Args:
        encoder, head: as in `Method`.
        augmentation: sampled twice per image, in addition to the augmentation of the pipeline; shifts by 10 % by
            default.
        forward: one "joint" pass over both views (as SupCon), or "separate" passes.
        contrast: selection, temperature, similarity and scale of the contrastive term.
        projection: a head between embedding and contrastive term, or None for the embedding itself.
        **kwargs: as in `Method`.

    Source:
        Khosla et al. 2020, https://arxiv.org/abs/2004.11362; Bui et al. 2021, Table 2.
    """

    terms = ("ce", "contrastive")
    observations = PAIR_COUNTS
    differentiable_views = ("view_1", "view_2")

    def __init__(
        self,
        encoder,
        head,
        *,
        augmentation: Augmentation | None = None,
        forward: str = "joint",
        contrast: Contrast | None = None,
        projection: keras.layers.Layer | None = None,
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.augmentation = augmentation or RandomShift()
        self.forward = checked_forward(forward)
        self.contrast = contrast or Contrast()
        self.projection = projection

    @property
    def passes_per_step(self):
        """Passes per step: two, one per view."""
        return 2

    def build_parts(self, example_shape, embedding_dim):
        """Build the projection."""
        if self.projection is not None:
            projections.build_projection(self, self.projection, embedding_dim)

    def make_views(self, batch, context):
        """Return two augmentations of the images."""
        keys = [randomness.fold(context.key, "view", number) for number in (1, 2)]
        return {f"view_{n}": self.augmentation(batch.images, key) for n, key in enumerate(keys, start=1)}

    def loss_terms(self, views, batch, context):
        """Compute both terms, the pair counts, and the logits of the first view."""
        passes = self.propagate_views(views["view_1"], views["view_2"], forward=self.forward)
        embeddings = [z if self.projection is None else self.projection(z, training=True) for z, _ in passes]
        tags = [
            masks.tag(context.rows, view=view, label=batch.labels, prediction=tf.argmax(logits, axis=-1))
            for view, (_, logits) in enumerate(passes)
        ]
        contrastive, counts = self.contrast(embeddings, tags, clean_views=2)
        entropies = [classification.cross_entropy(logits, batch.labels) for _, logits in passes]
        return {"ce": tf.add_n(entropies) / 2, "contrastive": contrastive, **counts}, passes[0][1]
