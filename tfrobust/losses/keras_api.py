"""Losses that fit Keras's `(y_true, y_pred)`: give them to `compile(loss=...)` of any model.

TRADES, ASCL, ADR and the like need the model or several views: they are methods, not losses.
"""

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.losses import contrastive
from tfrobust.ops import distribution, divergence
from tfrobust.ops import similarity as similarities
from tfrobust.structs import PairMasks

# Of one replica: what numbers the rows of all of them, which may be of different lengths.
_MOST_ROWS = 2**20


@keras.saving.register_keras_serializable(package="tfrobust")
class SupervisedContrastiveLoss(keras.losses.Loss):
    """Contrastive loss among the embeddings of a batch: equal labels attract, different ones repel.

    `masked_contrastive` with every other row of the batch as key, on all replicas of a `tf.distribute` strategy,
    positive where the label is equal. With image ids in place of labels, and two views of each image in the batch, it
    is NT-Xent (SimCLR).

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
        dtype: as there, but not of 16 bits, in which class ids from 257 on are rounded.

    Raises:
        ValueError: temperature <= 0; an unknown similarity; a dtype of 16 bits.

    Source:
        Khosla et al. 2020 (SupCon), arXiv:2004.11362, eq 2, without its code's factor temperature / 0.07.
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
        if similarity not in similarities.SIMILARITIES:
            raise InputError(f"similarity is {similarity!r}; it is one of {list(similarities.SIMILARITIES)}.")
        if self.dtype in ("float16", "bfloat16"):
            raise InputError(f"dtype is {self.dtype!r}, in which Keras rounds labels: 'float32' keeps them apart.")
        self.temperature = temperature
        self.similarity = similarity

    def call(self, y_true, y_pred):
        """y_true: ids [n] or [n, 1], or one-hot [n, k]. y_pred: embeddings float [n, d]. Returns float32 [n]."""
        y_true = tf.convert_to_tensor(y_true)
        if y_true.shape.rank == 2 and y_true.shape[1] not in (1, None):
            y_true = tf.argmax(y_true, axis=1)
        # Keras hands labels over in the loss's own float type; rounding brings the ids back.
        labels = tf.cast(tf.round(tf.reshape(tf.cast(y_true, tf.float32), [-1])), tf.int32)
        place = tf.range(tf.shape(labels)[0]) + tf.cast(distribution.replica()[1], tf.int32) * _MOST_ROWS
        keys, key_labels, key_places = distribution.gather((tf.convert_to_tensor(y_pred), labels, place))
        same = tf.equal(labels[:, None], key_labels[None, :])
        itself = tf.equal(place[:, None], key_places[None, :])
        masks = PairMasks(positive=same & ~itself, negative=~same)
        return contrastive.masked_contrastive(
            y_pred, keys, masks, temperature=self.temperature, similarity=self.similarity
        )

    def get_config(self):
        return {**super().get_config(), "temperature": self.temperature, "similarity": self.similarity}


@keras.saving.register_keras_serializable(package="tfrobust")
class LogitsKLDivergence(keras.losses.Loss):
    """KL( softmax(y_true) || softmax(y_pred) ) between logits, such as a teacher's and a student's.

    Unlike `keras.losses.KLDivergence` it takes logits and clips nothing, so that confident predictions keep
    their gradient; it sums over the classes and never divides by their number.

    Example:
        >>> from tfrobust import keras as robust
        >>> loss = robust.losses.LogitsKLDivergence()
        >>> round(float(loss([[2.0, 0.0]], [[0.0, 2.0]])), 4)
        1.5232

    Args:
        reduction, name, dtype: as in `keras.losses.Loss`.

    Raises:
        ValueError: when called, of `y_true` that is not shaped like `y_pred`, such as class ids.
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
        """y_true, y_pred: logits float [n, k]. Returns float32 [n], nats."""
        y_true, y_pred = tf.convert_to_tensor(y_true), tf.convert_to_tensor(y_pred)
        if not y_true.shape.is_compatible_with(y_pred.shape):
            raise InputError(
                f"LogitsKLDivergence takes two batches of logits, such as a teacher's and a student's, not "
                f"{y_true.shape} and {y_pred.shape}; for class ids there is keras.losses.SparseCategoricalCrossentropy."
            )
        return divergence.kl_from_logits(y_true, y_pred)
