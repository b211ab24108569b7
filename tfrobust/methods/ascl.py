"""Adversarial Supervised Contrastive Learning, with its global and local selections."""

import dataclasses

import keras
import tensorflow as tf

from tfrobust.attacks.adversary import Adversary
from tfrobust.augment.base import Augmentation
from tfrobust.augment.standard import RandomShift
from tfrobust.errors import InputError
from tfrobust.losses import robust
from tfrobust.methods import parts
from tfrobust.methods.adversarial import ROBUST_TERMS, adversarial_views, robust_terms
from tfrobust.methods.base import Method, checked_forward
from tfrobust.methods.contrast import Contrast
from tfrobust.ops import randomness
from tfrobust.ops.configured import Configured
from tfrobust.pairs import masks
from tfrobust.pairs.selection import PAIR_COUNTS

# Which views (x1, x2, x1^a, x2^a by position) are contrasted with each other.
COMBINATIONS = {
    "joint": ((0, 1, 2, 3),),
    "by_kind": ((0, 1), (2, 3)),
    "by_transform": ((0, 2), (1, 3)),
}


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoTransforms(Configured):
    """Two random transforms of each image instead of the image itself (the released main method).

    Example:
        >>> from tfrobust import keras as robust
        >>> robust.methods.TwoTransforms(augmentation=robust.augment.RandomFlip(), combine="by_kind").combine
        'by_kind'

    Attributes:
        augmentation: drawn twice per image.
        combine: "joint": one loss over both transforms and their adversaries; "by_kind": the mean of clean with
            clean and adversarial with adversarial; "by_transform": the mean of each transform with its adversary
            (the released combine_type 1, 2, 3).
    """

    augmentation: Augmentation = dataclasses.field(default_factory=RandomShift)
    combine: str = "joint"

    def __post_init__(self):
        if self.combine not in COMBINATIONS:
            raise InputError(f"TwoTransforms.combine is {self.combine!r}; it is one of {list(COMBINATIONS)}.")


@keras.saving.register_keras_serializable(package="tfrobust")
class ASCL(Method):
    """Adversarial training or TRADES, with the latents of a class pulled together across images and adversaries.

    L = L_robust + contrastive + 2 vat. The contrastive term of image i is L_i + L_i^a (eqs 1 to 3), its positives
    and negatives picked by `contrast.selection` (Table 1); vat = KL( h(x) || h(x^a) ) (eq 5). Weights 1 and 2 are
    the paper's lambda_SCL and lambda_VAT (section 8.2).

    Terms: `ce`, `ce_adv` or `kl`, `contrastive`, `vat`. Observed: positives and negatives per anchor, clean and
    adversarial keys apart (Fig. 3). Needs: labels.

    Example:
        >>> from tfrobust import keras as robust
        >>> method = robust.methods.ASCL(
        ...     robust.models.DigitsCNN(),
        ...     robust.models.LinearHead(10),
        ...     contrast=robust.methods.Contrast(selection=robust.methods.LeakedSelection()),
        ...     projection=robust.layers.LinearProjection(64),
        ... )
        >>> method.terms
        ('ce', 'ce_adv', 'contrastive', 'vat')

    Source:
        Bui et al. 2021, https://arxiv.org/abs/2101.10027. What the released code does otherwise is an argument:
        `contrast.scale`, `.similarity`, `.normalized`, `.temperature`, `contrast.selection.counterpart`,
        `vat_divide_by_classes`, term weight `ce` = 0, `transforms`, `projection`, `adversary.mode`. Its TRADES with
        two transforms also divides the robust KL by N x C; that inconsistency is not rebuilt.
    """

    observations = PAIR_COUNTS
    default_weights = {"kl": 6.0, "vat": 2.0}

    def __init__(
        self,
        encoder,
        head,
        *,
        objective: str = "adversarial_training",
        adversary: Adversary | None = None,
        forward: str = "separate",
        contrast: Contrast | None = None,
        projection: keras.layers.Layer | None = None,
        transforms: TwoTransforms | None = None,
        vat_divide_by_classes: bool = False,
        **kwargs,
    ):
        """Args beyond the base's:

        objective: what it stands on, "adversarial_training" (ADV-ASCL) or "trades" (TRADES-ASCL).
        adversary: how the adversaries are made. The paper uses the same steps, radius and step size for both.
        forward: "separate" passes for clean and adversarial images (as the reference), or one "joint" pass.
        contrast: selection, temperature, similarity and scale of the contrastive term.
        projection: a head between embedding and contrastive term (Table 6: p1, p2), None for the embedding itself.
        transforms: two transforms of each image, None for the image itself (the paper).
        vat_divide_by_classes: the released code's KL, smaller by the number of classes.
        """
        super().__init__(encoder, head, **kwargs)
        if objective not in ROBUST_TERMS:
            raise InputError(f"ASCL.objective is {objective!r}; it is one of {list(ROBUST_TERMS)}.")
        self.objective = objective
        self.adversary = adversary or Adversary(objective="kl" if objective == "trades" else "cross_entropy")
        self.forward = checked_forward(forward)
        self.contrast = contrast or Contrast()
        self.projection = projection
        self.transforms = transforms
        self.vat_divide_by_classes = vat_divide_by_classes

    @property
    def terms(self):
        return (*ROBUST_TERMS[self.objective], "contrastive", "vat")

    @property
    def differentiable_views(self):
        return ("images",) if self.transforms is None else ("images_1", "images_2")

    @property
    def passes_per_step(self):
        return super().passes_per_step * (1 if self.transforms is None else 2)

    def build_parts(self, image_shape, embedding_dim):
        if self.projection is not None:
            parts.build_projection(self, self.projection, embedding_dim)

    def make_views(self, batch, context):
        if self.transforms is None:
            return adversarial_views(self, self.adversary, batch, context)
        views = {}
        for number in (1, 2):
            own = context._replace(key=randomness.fold(context.key, "transform", number))
            images = self.transforms.augmentation(batch.images, own.key)
            made = adversarial_views(self, self.adversary, batch._replace(images=images), own)
            views |= {f"{name}_{number}": view for name, view in made.items()}
        return views

    def loss_terms(self, views, batch, context):
        clean_names = [name for name in views if name.startswith("images")]
        adversarial_names = [name for name in views if name.startswith("adversarial")]
        passes = self.propagate_views(*(views[name] for name in clean_names + adversarial_names), forward=self.forward)
        clean, adversarial = passes[: len(clean_names)], passes[len(clean_names) :]
        pairs = list(zip(clean, adversarial, strict=True))
        terms = _mean([robust_terms(self.objective, c[1], a[1], batch.labels) for c, a in pairs])
        vat = [robust.virtual_adversarial(c[1], a[1], divide_by_classes=self.vat_divide_by_classes) for c, a in pairs]
        contrastive, counts = self._contrast(passes, batch, context)
        return {**terms, "contrastive": contrastive, "vat": tf.add_n(vat) / len(vat), **counts}, clean[0][1]

    def _contrast(self, passes, batch, context):
        embeddings = [z if self.projection is None else self.projection(z, training=True) for z, _ in passes]
        tags = [
            masks.tag(context.rows, view=view, label=batch.labels, prediction=tf.argmax(logits, axis=-1))
            for view, (_, logits) in enumerate(passes)
        ]
        groups = ((0, 1),) if self.transforms is None else COMBINATIONS[self.transforms.combine]
        clean_views = len(passes) // 2
        found = [
            self.contrast([embeddings[v] for v in group], [tags[v] for v in group], clean_views=clean_views)
            for group in groups
        ]
        return tf.add_n([value for value, _ in found]) / len(found), _mean([counts for _, counts in found])


def _mean(rows: list[dict]) -> dict:
    """The mean of equally named values."""
    return {name: tf.add_n([row[name] for row in rows]) / len(rows) for name in rows[0]}
