"""Objectives that contrast the features of an image with those of its noisy copies: eqs. 6 and 9 of Kim et al. 2021."""

import dataclasses

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.losses.contrastive import masked_contrastive
from tfrobust.losses.feature_margin import FORMS, feature_margin
from tfrobust.ops import distribution
from tfrobust.pairs import masks
from tfrobust.structs import PairMasks, Tags

SCALES = ("mean", "sum")
# Views of an image: the image, noise on its least useful features, noise on its most useful features, and the latter
# where it must not be used.
_CLEAN, _LEAST, _MOST, _UNUSED = 0, 1, 2, 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureObjective(Configured):
    """Base of the two objectives: the scale of the term.

    Attributes:
        scale: "mean": the term unchanged, which reproduces the numbers of the paper (gin/fcl.gin). "sum": the term of
            each example times the size of the global batch. The mean taken by the training step is then the sum over
            the batch that algorithm 1 of the paper prints.
    """

    scale: str = "mean"

    def __post_init__(self):
        require_choice(self.scale, f"{type(self).__name__}.scale", SCALES)

    def __call__(self, rows: tf.Tensor, clean: tf.Tensor, least: tf.Tensor, most=None, usable=None) -> tf.Tensor:
        """Compute the term of each image.

        Args:
            rows: integer [b], this replica's rows of the global batch.
            clean: float [b, d], embeddings of the images.
            least: float [b, d], embeddings of the copies to be close to.
            most: float [b, d], embeddings of the copies to be far from; None for none.
            usable: bool [b], false where `most` is ignored; None: all are used.

        Returns:
            float32 [b].
        """
        values = self.values(rows, clean, least, most, usable)
        if self.scale == "mean":
            return values
        return values * tf.cast(distribution.replica()[0] * tf.shape(values)[0], tf.float32)

    def values(self, rows, clean, least, most, usable) -> tf.Tensor:
        """Compute the term of each image before scaling (hook); arguments as in `__call__`.

        Returns:
            float32 [b].
        """
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureContrast(FeatureObjective):
    """Contrastive objective of feature contrastive learning.

    -log( e^{s(z, z+)/t} / ( e^{s(z, z+)/t} + e^{s(z, z-)/t} + sum_{j != i} e^{s(z, z_j)/t} ) ), z_j the clean
    embeddings of the other images of the global batch. Only the clean image is an anchor.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> contrast = robust.methods.FeatureContrast(temperature=1.0, scale="mean")
        >>> z = tf.eye(2)  # two images, nothing in common; noise changes neither
        >>> print(contrast(tf.range(2), z, z).numpy().round(3))  # log(1 + 1 / e)
        [0.313 0.313]

    Attributes:
        temperature: tau > 0.
        scale: as in `FeatureObjective`.

    Source:
        Kim et al. 2021, eq. 6 and algorithm 1.
    """

    temperature: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        if not self.temperature > 0:
            raise InputError(f"FeatureContrast.temperature is {self.temperature}; it must be above 0.")

    def values(self, rows, clean, least, most, usable):
        """Compute the contrastive value of each image."""
        views = [(clean, _CLEAN), (least, _LEAST)]
        if most is not None:
            views.append((most, _MOST if usable is None else tf.where(usable, _MOST, _UNUSED)))
        anchor_tags = masks.tag(rows, view=_CLEAN)
        tags = masks.join(*(anchor_tags._replace(view=anchor_tags.view * 0 + view) for _, view in views))
        keys, key_tags = distribution.gather((tf.concat([embedding for embedding, _ in views], axis=0), tags))
        return masked_contrastive(
            clean, keys, masks.ByRows(_pairs, anchor_tags, key_tags), temperature=self.temperature
        )


def _pairs(anchors: Tags, keys: Tags) -> PairMasks:
    one_image, view = masks.same_sample(anchors, keys), keys.view[None, :]
    return PairMasks(
        positive=one_image & (view == _LEAST), negative=(one_image & (view == _MOST)) | (~one_image & (view == _CLEAN))
    )


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureMargin(FeatureObjective):
    """Margin objective of feature contrastive learning: `losses.feature_margin`, eq. 9.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> objective = robust.methods.FeatureMargin(margin=1.0, scale="mean")
        >>> z = tf.zeros([1, 2])
        >>> print(objective(tf.range(1), z, z + 0.1, z + 2.0).numpy().round(3))
        [0.02]

    Attributes:
        margin: gamma > 0.
        form: "paper" or "inside", see `losses.feature_margin`.
        scale: as in `FeatureObjective`.

    Source:
        Kim et al. 2021, appendix B.
    """

    margin: float = 1.0
    form: str = "paper"

    def __post_init__(self):
        super().__post_init__()
        if not self.margin > 0 or self.form not in FORMS:
            raise InputError(
                f"FeatureMargin takes a margin > 0 and one of {list(FORMS)}, not {self.margin}, {self.form!r}."
            )

    def values(self, rows, clean, least, most, usable):
        """Compute the margin loss of each image, or the squared distance to `least` if there is no `most`."""
        if most is None:
            return tf.reduce_sum(tf.square(tf.cast(clean, tf.float32) - tf.cast(least, tf.float32)), axis=-1)
        return feature_margin(clean, least, most, margin=self.margin, form=self.form, mask=usable)
