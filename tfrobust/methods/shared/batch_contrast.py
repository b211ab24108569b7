"""The contrastive term of supervised methods: pairs, temperature, similarity and scale in one frozen object."""

import dataclasses

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.losses.contrastive import masked_contrastive
from tfrobust.ops import distribution, similarity
from tfrobust.pairs import masks
from tfrobust.pairs.selection import GlobalSelection, Selection, count_pairs
from tfrobust.structs import Tags

SCALES = ("paper", "code")


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Contrast(Configured):
    """Contrast between the views of a batch: pairs, temperature, similarity and scale.

    Example:
        >>> from tfrobust import keras as robust
        >>> robust.methods.Contrast(selection=robust.methods.LeakedSelection(), temperature=0.2).similarity
        'cosine'

    Attributes:
        selection: decides which keys are positives and which are negatives of an anchor.
        temperature: tau > 0.
        similarity: one of `ops.similarity.SIMILARITIES`. Bui et al. 2021 leaves it open. The released code uses "linf"
            (minus the largest coordinate gap) with `normalized` and temperature 0.2.
        normalized: normalize embeddings to length 1 first. The cosine does so by itself.
        scale: "paper": the sum over the clean and the adversarial anchor of an image (Bui et al. 2021, eq. 3). "code":
            the mean over all anchors, half as large.

    Raises:
        ValueError: unknown scale or similarity, a temperature that is not above 0, or `normalized` with the cosine.
    """

    selection: Selection = dataclasses.field(default_factory=GlobalSelection)
    temperature: float = 0.07
    similarity: str = "cosine"
    normalized: bool = False
    scale: str = "paper"

    def __post_init__(self):
        require_choice(self.scale, "Contrast.scale", SCALES)
        if not self.temperature > 0 or self.similarity not in similarity.SIMILARITIES:
            valid = f"temperature > 0 and similarity one of {list(similarity.SIMILARITIES)}"
            raise InputError(f"Contrast has {self.temperature} and {self.similarity!r}; it takes {valid}.")
        if self.normalized and self.similarity == "cosine":
            raise InputError(
                "Contrast.normalized has no effect with the cosine, which normalizes by itself: leave it out."
            )

    def __call__(self, embeddings: list, tags: list[Tags], *, clean_views: int) -> tuple[tf.Tensor, dict]:
        """Compute the contrastive term of each image and count its pairs.

        Args:
            embeddings: one float [b, d] per view; keys are gathered over the replicas.
            tags: one `Tags` of int32 [b] per view.
            clean_views: number of clean views; views from this number on are adversarial.

        Returns:
            The term, float32 [b], and the counts of `pairs.selection.count_pairs`, float32 [b] each, averaged over the
            anchors of the image.
        """
        anchors, anchor_tags = tf.concat(embeddings, axis=0), masks.join(*tags)
        if self.normalized:
            anchors = similarity.normalize(anchors)
        keys, key_tags = distribution.gather((anchors, anchor_tags))
        pairs = masks.ByRows(self.selection, anchor_tags, key_tags)
        values = masked_contrastive(anchors, keys, pairs, temperature=self.temperature, similarity=self.similarity)
        counts = count_pairs(pairs, key_tags.view, clean_views=clean_views)
        views = len(embeddings)
        # The anchors [views * b], view by view, are reduced to one value per image.
        folded = {name: tf.add_n(tf.split(column, views)) / views for name, column in {"": values, **counts}.items()}
        term = folded.pop("")
        return (2.0 * term if self.scale == "paper" else term), folded
