"""Adversarial Supervised Contrastive Learning, with global and local selection of pairs."""

import dataclasses
import functools

import keras
import tensorflow as tf

from tfrobust.augment.augmentation import Augmentation
from tfrobust.augment.standard import RandomShift
from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_choice
from tfrobust.losses import robust
from tfrobust.methods.shared import projections
from tfrobust.methods.shared.adversarial_method import AdversarialMethod
from tfrobust.methods.shared.adversarial_terms import INNER_OBJECTIVES, ROBUST_TERMS, adversarial_views, robust_terms
from tfrobust.methods.shared.batch_contrast import Contrast
from tfrobust.ops import randomness
from tfrobust.pairs import masks
from tfrobust.pairs.selection import PAIR_COUNTS

# Groups of views (x1, x2, x1^a, x2^a by position) that are contrasted with each other.
COMBINATIONS = {
    "joint": ((0, 1, 2, 3),),
    "by_kind": ((0, 1), (2, 3)),
    "by_transform": ((0, 2), (1, 3)),
}


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoTransforms(Configured):
    """Two random transforms of each image in place of the image (the main method of the released code).

    Example:
        >>> from tfrobust import keras as robust
        >>> robust.methods.TwoTransforms(augmentation=robust.augment.RandomFlip(), combine="by_kind").combine
        'by_kind'

    Attributes:
        augmentation: sampled twice per image.
        combine: "joint": one loss over both transforms and their adversarial examples. "by_kind": the mean of clean
            against clean and adversarial against adversarial. "by_transform": the mean over transforms of each one
            against its adversarial example. These are combine_type 1, 2 and 3 of the released code.
    """

    augmentation: Augmentation = dataclasses.field(default_factory=RandomShift)
    combine: str = "joint"

    def __post_init__(self):
        require_choice(self.combine, "TwoTransforms.combine", COMBINATIONS)


@keras.saving.register_keras_serializable(package="tfrobust")
class ASCL(AdversarialMethod):
    """Adversarial training or TRADES with a supervised contrastive loss over images and adversarial examples.

    L = L_robust + contrastive + 2 vat. The contrastive term of image i is L_i + L_i^a (eqs 1 to 3);
    `contrast.selection` picks its positives and negatives (Table 1). vat = KL( h(x) || h(x^a) ) (eq 5). The weights 1
    and 2 are lambda_SCL and lambda_VAT of the paper (section 8.2).

    Terms: `ce`, `ce_adv` or `kl`, `contrastive`, `vat`. Observed: positives and negatives per anchor, counted
    separately for clean and adversarial keys (Fig. 3). Needs: labels.

    Example:
        >>> from tfrobust import keras as robust
        >>> method = robust.methods.ASCL(
        ...     robust.models.DigitsCNN(),
        ...     robust.models.LinearHead(10),
        ...     attack=robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.2), steps=10),
        ...     contrast=robust.methods.Contrast(selection=robust.methods.LeakedSelection()),
        ...     projection=robust.layers.LinearProjection(64),
        ... )
        >>> method.terms
        ('ce', 'ce_adv', 'contrastive', 'vat')

    Args:
        encoder, head: as in `Method`.
        objective: the robust objective L_robust, "adversarial_training" (ADV-ASCL) or "trades" (TRADES-ASCL).
        contrast: selection, temperature, similarity and scale of the contrastive term.
        projection: a head between embedding and contrastive term (Table 6: p1, p2), or None for the embedding itself.
        transforms: two transforms of each image, or None for the image itself (the paper).
        vat_divide_by_classes: use the KL of the released code, which is divided by the number of classes.
        **kwargs: as in `AdversarialMethod`: adversary, attack, forward, label_smoothing, weight_perturbation. The paper
            uses the same steps, radius and step size for both objectives.

    Raises:
        ValueError: an unknown `objective`.

    Source:
        Bui et al. 2021, https://arxiv.org/abs/2101.10027. Differences of the released code are arguments:
        `contrast.scale`, `.similarity`, `.normalized`, `.temperature`, `contrast.selection.counterpart`,
        `vat_divide_by_classes`, term weight `ce` = 0, `transforms`, `projection`, `adversary.mode`. Its TRADES with two
        transforms also divides the robust KL by N x C; that inconsistency is not reproduced.
    """

    observations = PAIR_COUNTS
    default_weights = {"kl": 6.0, "vat": 2.0}
    inner_objective = None

    def __init__(
        self,
        encoder,
        head,
        *,
        objective: str = "adversarial_training",
        contrast: Contrast | None = None,
        projection: keras.layers.Layer | None = None,
        transforms: TwoTransforms | None = None,
        vat_divide_by_classes: bool = False,
        **kwargs,
    ):
        super().__init__(encoder, head, **kwargs)
        self.objective = require_choice(objective, "ASCL.objective", ROBUST_TERMS)
        self.adversary = self.adversary.completed(INNER_OBJECTIVES[objective])
        self.contrast = contrast or Contrast()
        self.projection = projection
        self.transforms = transforms
        self.vat_divide_by_classes = vat_divide_by_classes

    @property
    def terms(self):
        """The terms of the robust objective, `contrastive` and `vat`."""
        return (*ROBUST_TERMS[self.objective], "contrastive", "vat")

    @property
    def differentiable_views(self):
        """The clean views: the images, or their two transforms."""
        return ("images",) if self.transforms is None else ("images_1", "images_2")

    @property
    def passes_per_step(self):
        """Passes per step: those of the adversary, twice as many with two transforms."""
        return super().passes_per_step * (1 if self.transforms is None else 2)

    def build_parts(self, example_shape, embedding_dim):
        """Build the projection."""
        if self.projection is not None:
            projections.build_projection(self, self.projection, embedding_dim)

    def make_views(self, batch, context):
        """Return the images, or their transforms, and the adversarial examples of each."""
        if self.transforms is None:
            return adversarial_views(self, self.adversary, batch, context)
        views = {}
        for number in (1, 2):
            transform_context = context._replace(key=randomness.fold(context.key, "transform", number))
            transform = functools.partial(self.transforms.augmentation, key=transform_context.key)
            images = self.on_unit_pixels(transform, batch.images)
            transformed = adversarial_views(self, self.adversary, batch._replace(images=images), transform_context)
            views |= {f"{name}_{number}": view for name, view in transformed.items()}
        return views

    def loss_terms(self, views, batch, context):
        """Compute the robust terms, `contrastive`, `vat`, the pair counts, and the logits of the first clean view."""
        clean_names = [name for name in views if name.startswith("images")]
        adversarial_names = [name for name in views if name.startswith("adversarial")]
        passes = self.propagate_views(*(views[name] for name in clean_names + adversarial_names), forward=self.forward)
        clean, adversarial = passes[: len(clean_names)], passes[len(clean_names) :]
        pairs = list(zip(clean, adversarial, strict=True))
        targets = self.targets(batch.labels, clean[0][1])
        terms = _mean([robust_terms(self.objective, c[1], a[1], targets) for c, a in pairs])
        vat = [robust.virtual_adversarial(c[1], a[1], divide_by_classes=self.vat_divide_by_classes) for c, a in pairs]
        contrastive, counts = self._contrast(passes, batch, context)
        return {**terms, "contrastive": contrastive, "vat": tf.add_n(vat) / len(vat), **counts}, clean[0][1]

    def _contrast(self, passes, batch, context):
        """Compute the contrastive term [b], averaged over the groups of views, and the pair counts."""
        embeddings = [z if self.projection is None else self.projection(z, training=True) for z, _ in passes]
        tags = [
            masks.tag(context.rows, view=view, label=batch.labels, prediction=tf.argmax(logits, axis=-1))
            for view, (_, logits) in enumerate(passes)
        ]
        groups = ((0, 1),) if self.transforms is None else COMBINATIONS[self.transforms.combine]
        clean_views = len(passes) // 2
        results = [
            self.contrast([embeddings[v] for v in group], [tags[v] for v in group], clean_views=clean_views)
            for group in groups
        ]
        return tf.add_n([value for value, _ in results]) / len(results), _mean([counts for _, counts in results])


def _mean(rows: list[dict]) -> dict:
    """Average dicts of equal keys, key by key."""
    return {name: tf.add_n([row[name] for row in rows]) / len(rows) for name in rows[0]}
