"""How the features of an image and of its noisy copies are set against each other: eqs. 6 and 9 of paper 000."""

import dataclasses

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.losses.contrastive import masked_contrastive
from tfrobust.losses.feature_contrast import FORMS, feature_margin
from tfrobust.ops import distribution
from tfrobust.ops.configured import Configured
from tfrobust.pairs import masks
from tfrobust.structs import PairMasks, Tags

SCALES = ("mean", "sum")
# Views of an image: itself, noise on its least and on its most useful features; the last, where it is not to be used.
_CLEAN, _LEAST, _MOST, _UNUSED = 0, 1, 2, 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureObjective(Configured):
    """Base of the two objectives: who gets how much weight.

    Attributes:
        scale: "mean": as it is, with which the paper's numbers come out as it has them (gin/fcl.gin). "sum": per
            example times the size of the global batch, so that the mean which the step takes is the sum over the
            batch that the paper's algorithm 1 prints.
    """

    scale: str = "mean"

    def __post_init__(self):
        if self.scale not in SCALES:
            raise InputError(f"{type(self).__name__}.scale is {self.scale!r}; it is one of {list(SCALES)}.")

    def __call__(self, rows: tf.Tensor, clean: tf.Tensor, least: tf.Tensor, most=None, usable=None) -> tf.Tensor:
        """The term of each image.

        Args:
            rows: integer [b], this replica's rows of the global batch.
            clean, least: float [b, d], embeddings of the images, and of their copies to be close to.
            most: float [b, d], of their copies to be far from; None for none.
            usable: bool [b], false where `most` does not count; None: all count.

        Returns:
            float32 [b].
        """
        values = self.values(rows, clean, least, most, usable)
        if self.scale == "mean":
            return values
        return values * tf.cast(distribution.replica()[0] * tf.shape(values)[0], tf.float32)

    def values(self, rows, clean, least, most, usable) -> tf.Tensor:
        """Hook: the term of each image, float32 [b], before the scale."""
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureContrast(FeatureObjective):
    """The contrastive objective of feature contrastive learning.

    -log( e^{s(z, z+)/t} / ( e^{s(z, z+)/t} + e^{s(z, z-)/t} + sum_{j != i} e^{s(z, z_j)/t} ) ), z_j the clean
    embeddings of the other images of the global batch. The anchor is the clean image alone.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> contrast = robust.methods.FeatureContrast(temperature=1.0, scale="mean")
        >>> z = tf.eye(2)  # two images, nothing in common; noise changes neither
        >>> print(contrast(tf.range(2), z, z).numpy().round(3))  # log(1 + 1 / e)
        [0.313 0.313]

    Attributes:
        temperature: tau > 0.
        scale: as in the base.

    Source:
        Paper 000, eq. 6 and algorithm 1.
    """

    temperature: float = 0.1

    def __post_init__(self):
        super().__post_init__()
        if not self.temperature > 0:
            raise InputError(f"FeatureContrast.temperature is {self.temperature}; it must be above 0.")

    def values(self, rows, clean, least, most, usable):
        views = [(clean, _CLEAN), (least, _LEAST)]
        if most is not None:
            views.append((most, _MOST if usable is None else tf.where(usable, _MOST, _UNUSED)))
        own = masks.tag(rows, view=_CLEAN)
        tags = masks.join(*(own._replace(view=own.view * 0 + view) for _, view in views))
        keys, others = distribution.gather((tf.concat([each for each, _ in views], axis=0), tags))
        return masked_contrastive(clean, keys, masks.ByRows(_pairs, own, others), temperature=self.temperature)


def _pairs(anchors: Tags, keys: Tags) -> PairMasks:
    same, view = masks.same_sample(anchors, keys), keys.view[None, :]
    return PairMasks(positive=same & (view == _LEAST), negative=(same & (view == _MOST)) | (~same & (view == _CLEAN)))


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureMargin(FeatureObjective):
    """The alternative with a margin: `losses.feature_margin`, eq. 9.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> objective = robust.methods.FeatureMargin(margin=1.0, scale="mean")
        >>> z = tf.zeros([1, 2])
        >>> print(objective(tf.range(1), z, z + 0.1, z + 2.0).numpy().round(3))
        [0.02]

    Attributes:
        margin: gamma > 0.
        form: "paper" or "inside", see there.
        scale: as in the base.

    Source:
        Paper 000, appendix B.
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
        if most is None:
            return tf.reduce_sum(tf.square(tf.cast(clean, tf.float32) - tf.cast(least, tf.float32)), axis=-1)
        return feature_margin(clean, least, most, margin=self.margin, form=self.form, usable=usable)
