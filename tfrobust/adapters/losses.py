"""Keras losses with the signature `(y_true, y_pred)`, for `compile(loss=...)` of any model.

TRADES, ASCL, ADR and similar ones need the model or several views: they are methods, not losses.
"""

import keras
import tensorflow as tf

from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.losses import contrastive
from tfrobust.ops import distribution, probabilities
from tfrobust.ops import similarity as similarities
from tfrobust.structs import PairMasks

# Offset between the row numbers of two replicas, whose batches may have different lengths.
_MOST_ROWS = 2**20
# A label passes in three floats, each of them exact in float32: label = (high _PIECE + middle) _PIECE + low.
_PIECE = 2**21


@keras.saving.register_keras_serializable(package="tfrobust")
class SupervisedContrastiveLoss(keras.losses.Loss):
    """Supervised contrastive loss among the embeddings of a batch: equal labels attract, different labels repel.

    It is `masked_contrastive` with every other row of the batch as key, on all replicas of a `tf.distribute` strategy,
    and rows of equal label as positives. Labels are compared as integers of 64 bits. With image ids in place of labels,
    and two views of each image in the batch, it is NT-Xent (SimCLR).

    Example:
        >>> from tfrobust import keras as robust
        >>> loss = robust.losses.SupervisedContrastiveLoss(temperature=1.0)
        >>> same = [[1.0, 0.0]] * 4                      # identical embeddings: log(number of candidates)
        >>> round(float(loss([0, 0, 1, 1], same)), 4)
        1.0986

    Args:
        temperature: > 0.
        similarity: one of `tfrobust.ops.similarity.SIMILARITIES`.
        reduction, name: as in `keras.losses.Loss`.
        dtype: as there, but not 16-bit, which rounds embeddings and labels.

    Raises:
        ValueError: temperature <= 0; an unknown similarity; a 16-bit dtype.

    Source:
        Khosla et al. 2020 (SupCon), arXiv:2004.11362, eq 2, without the factor temperature / 0.07 of its code.
    """

    def __init__(
        self,
        *,
        temperature: float = 0.07,
        similarity: str = "cosine",
        reduction: str | None = "sum_over_batch_size",
        name: str = "supervised_contrastive",
        dtype: str | None = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        if not temperature > 0:
            raise InputError(f"temperature is {temperature}; it must be > 0.")
        if self.dtype in ("float16", "bfloat16"):
            raise InputError(
                f"dtype is {self.dtype!r}, in which Keras rounds labels: use 'float32', which keeps class ids distinct."
            )
        self.temperature = temperature
        self.similarity = require_choice(similarity, "similarity", similarities.SIMILARITIES)

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Compute the loss as `keras.losses.Loss` does, with labels as integers."""
        # Keras casts labels to the loss's own float type, which merges large ids: they pass in pieces.
        labels = _ids(y_true)
        pieces = [labels // _PIECE**2, labels // _PIECE % _PIECE, labels % _PIECE]
        return super().__call__(tf.stack(pieces, axis=-1)[:, None, :], y_pred, sample_weight)

    def call(self, y_true, y_pred):
        """Compute the loss per row.

        Args:
            y_true: ids [n] or [n, 1], or one-hot [n, k]; or, from `__call__`, ids in pieces [n, 1, 3].
            y_pred: embeddings, float [n, d].

        Returns:
            float32 [n].
        """
        labels = _ids(y_true)
        position = tf.range(tf.shape(labels)[0]) + tf.cast(distribution.replica()[1], tf.int32) * _MOST_ROWS
        keys, key_labels, key_places = distribution.gather((tf.convert_to_tensor(y_pred), labels, position))
        same_label = tf.equal(labels[:, None], key_labels[None, :])
        itself = tf.equal(position[:, None], key_places[None, :])
        masks = PairMasks(positive=same_label & ~itself, negative=~same_label)
        return contrastive.masked_contrastive(
            y_pred, keys, masks, temperature=self.temperature, similarity=self.similarity
        )

    def get_config(self):
        """Return the constructor's arguments."""
        config = {**super().get_config(), "dtype": self.dtype}  # Keras leaves it out
        return {**config, "temperature": self.temperature, "similarity": self.similarity}


def _ids(labels) -> tf.Tensor:
    """Return labels as int64 [n], from ids [n] or [n, 1], one-hot rows [n, k], or the pieces of ids [n, 1, 3]."""
    labels = tf.convert_to_tensor(labels)
    if labels.shape.rank == 3:
        high, middle, low = (tf.cast(piece, tf.int64) for piece in tf.unstack(labels[:, 0], axis=-1))
        return (high * _PIECE + middle) * _PIECE + low
    if labels.shape.rank == 2 and labels.shape[1] not in (1, None):
        return tf.argmax(labels, axis=1)
    labels = tf.reshape(labels, [-1])
    return tf.cast(tf.round(labels) if labels.dtype.is_floating else labels, tf.int64)


@keras.saving.register_keras_serializable(package="tfrobust")
class LogitsKLDivergence(keras.losses.Loss):
    """KL( softmax(y_true) || softmax(y_pred) ) between logits, such as those of a teacher and a student.

    Unlike `keras.losses.KLDivergence` it takes logits and clips nothing, so that confident predictions keep their
    gradient. It sums over the classes and never divides by their number.

    Example:
        >>> from tfrobust import keras as robust
        >>> loss = robust.losses.LogitsKLDivergence()
        >>> round(float(loss([[2.0, 0.0]], [[0.0, 2.0]])), 4)
        1.5232

    Args:
        reduction, name, dtype: as in `keras.losses.Loss`.

    Raises:
        ValueError: in a call where `y_true` does not have the shape of `y_pred`, as with class ids.
    """

    def __init__(
        self,
        *,
        reduction: str | None = "sum_over_batch_size",
        name: str = "logits_kl_divergence",
        dtype: str | None = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, y_true, y_pred):
        """Compute the divergence per row.

        Args:
            y_true: logits, float [n, k].
            y_pred: logits, float [n, k].

        Returns:
            float32 [n], nats.
        """
        y_true, y_pred = tf.convert_to_tensor(y_true), tf.convert_to_tensor(y_pred)
        if not y_true.shape.is_compatible_with(y_pred.shape):
            raise InputError(
                f"LogitsKLDivergence takes two batches of logits, such as a teacher's and a student's, not "
                f"{y_true.shape} and {y_pred.shape}; for class ids there is keras.losses.SparseCategoricalCrossentropy."
            )
        return probabilities.kl_from_logits(y_true, y_pred)

    def get_config(self):
        """Return the constructor's arguments."""
        return {**super().get_config(), "dtype": self.dtype}
