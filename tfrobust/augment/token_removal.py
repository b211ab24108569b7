"""Sentences without the tokens that matter least, and without those that matter most."""

import dataclasses
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.augment.utility_perturbation import NoisyCopies
from tfrobust.errors import InputError
from tfrobust.ops import removal
from tfrobust.ops.configured import Configured


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenRemoval(Configured):
    """Two shorter copies of each sentence: without its k tokens of least, and without its k of most utility.

    The counterpart for text of `UtilityPerturbation`: x \\ BOTTOM_k(u) and x \\ TOP_k(u); k = round(fraction n) of a
    sentence of n tokens (padding is none), at least 1, and at most n // 2, so that the two sets do not overlap. Tokens
    of equal utility stand in random order.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> sentences = tf.constant([[7, 4, 9, 0], [5, 6, 0, 0]])
        >>> utility = tf.constant([[0.3, 0.1, 0.9, 0.0], [0.2, 0.4, 0.0, 0.0]])
        >>> copies = robust.augment.TokenRemoval(fraction=0.1)(sentences, utility, tf.constant([0, 1]))
        >>> copies.least.numpy().tolist(), copies.most.numpy().tolist()
        ([[7, 9, 0, 0], [6, 0, 0, 0]], [[7, 4, 0, 0], [5, 0, 0, 0]])

    Args:
        fraction: of the sentence that is removed, in (0, 0.5].
        smallest_utility: below this largest utility a sentence has no usable tokens, >= 0; nor has one of one token.

    Source:
        Paper 000, definitions 1 and 3 (discrete inputs), section 4.1 (fractions of 0.1, 0.2, 0.3 "of the sequence
        length", here of the sentence's own) and section 3 (the guard, 1e-12).
    """

    fraction: float = 0.1
    smallest_utility: float = 1e-12

    def __post_init__(self):
        if not 0 < self.fraction <= 0.5 or not self.smallest_utility >= 0:
            raise InputError(
                f"TokenRemoval has fraction {self.fraction} (in (0, 0.5]) and smallest_utility "
                f"{self.smallest_utility} (>= 0)."
            )

    def utility(self, objective: Callable, tokens: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """u of each token, as `ops.removal.utility` measures it: by its removal."""
        return removal.utility(objective, tokens, labels)

    def passes(self, shape: tuple[int, ...]) -> int:
        """About what the utility costs, in forward and backward passes over examples of this shape (l,)."""
        return max(1, round(shape[0] / 3))  # they are forward alone

    def choose(self, tokens: tf.Tensor, utility: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The k tokens of least and of most utility.

        Args:
            tokens: int32 [b, l].
            utility: float [b, l].
            key: int32 [2]; the order among equals, one for all sentences.

        Returns:
            Two bool [b, l].
        """
        present = removal.is_token(tokens)
        length = tf.reduce_sum(tf.cast(present, tf.int32), axis=1, keepdims=True)
        count = tf.cast(tf.round(self.fraction * tf.cast(length, tf.float32)), tf.int32)
        count = tf.minimum(tf.maximum(count, 1), length // 2)
        # A stable order after a shuffle of the places takes equals at random; padding stands behind all tokens.
        order = tf.argsort(tf.random.stateless_uniform([tokens.shape[1]], key))
        shuffled = tf.gather(tf.where(present, utility, utility.dtype.max), order, axis=1)
        ranks = tf.argsort(tf.argsort(shuffled, axis=1, stable=True), axis=1)
        rank = tf.gather(ranks, tf.argsort(order), axis=1)
        return rank < count, (rank >= length - count) & (rank < length)

    def __call__(self, tokens: tf.Tensor, utility: tf.Tensor, key: tf.Tensor) -> NoisyCopies:
        """The two copies of a batch.

        Args:
            tokens: int32 [b, l], l known; 0 is padding, at the end.
            utility: float32 [b, l], >= 0.
            key: int32 [2].
        """
        tokens, utility = tf.convert_to_tensor(tokens), tf.convert_to_tensor(utility)
        if tokens.shape.rank != 2 or tokens.shape[1] is None or not tokens.shape.is_compatible_with(utility.shape):
            raise InputError(f"Tokens {tokens.shape} and utility {utility.shape} must have one shape [b, l], l known.")
        chosen = self.choose(tokens, utility, key)
        largest = tf.reduce_max(tf.where(removal.is_token(tokens), utility, 0.0), axis=1)
        usable = (largest >= self.smallest_utility) & tf.reduce_any(chosen[1], axis=1)
        return NoisyCopies(*(removal.remove(tokens, each) for each in chosen), usable)
