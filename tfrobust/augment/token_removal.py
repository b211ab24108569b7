"""Removal of the least and of the most useful tokens of sentences."""

import dataclasses
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust.augment.utility_perturbation import NoisyCopies
from tfrobust.common.configured import Configured
from tfrobust.errors import InputError
from tfrobust.ops import removal


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenRemoval(Configured):
    """Two copies of each sentence, without its k tokens of least and without its k of most utility.

    The counterpart of `UtilityPerturbation` for text: x without BOTTOM_k(u) and x without TOP_k(u); k = round(fraction
    n) for a sentence of n tokens (without padding), at least 1, and at most n // 2, so that the two sets are disjoint.
    Tokens of equal utility are in random order.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> sentences = tf.constant([[7, 4, 9, 0], [5, 6, 0, 0]])
        >>> utility = tf.constant([[0.3, 0.1, 0.9, 0.0], [0.2, 0.4, 0.0, 0.0]])
        >>> copies = robust.augment.TokenRemoval(fraction=0.1)(sentences, utility, tf.constant([0, 1]))
        >>> copies.least.numpy().tolist(), copies.most.numpy().tolist()
        ([[7, 9, 0, 0], [6, 0, 0, 0]], [[7, 4, 0, 0], [5, 0, 0, 0]])

    Args:
        fraction: share of the sentence that is removed, in (0, 0.5].
        smallest_utility: a sentence whose largest utility is below this number has no usable tokens, >= 0. A sentence
            of one token has none either.

    Raises:
        ValueError: an argument out of its range.

    Source:
        Kim et al. 2021, definitions 1 and 3 (discrete inputs), section 4.1 (fractions of 0.1, 0.2, 0.3 "of the sequence
        length", here of the sentence's own length) and section 3 (the threshold, 1e-12).
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
        """Measure the utility u of each token by removing it, with `ops.removal.utility`.

        Args:
            objective: (tokens, labels) -> float [b].
            tokens: int32 [b, l].
            labels: int32 [b].

        Returns:
            float32 [b, l].
        """
        return removal.utility(objective, tokens, labels)

    def passes(self, shape: tuple[int, ...]) -> int:
        """Estimate the cost of the utility, in forward and backward passes over examples of shape (l,)."""
        return max(1, round(shape[0] / 3))  # forward passes only

    def choose(self, tokens: tf.Tensor, utility: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Select the k tokens of least and of most utility.

        Args:
            tokens: int32 [b, l].
            utility: float [b, l].
            key: int32 [2], for the order of tokens of equal utility, one for all sentences.

        Returns:
            Two masks, bool [b, l].
        """
        present = removal.is_token(tokens)
        length = tf.reduce_sum(tf.cast(present, tf.int32), axis=1, keepdims=True)
        count = tf.cast(tf.round(self.fraction * tf.cast(length, tf.float32)), tf.int32)
        count = tf.minimum(tf.maximum(count, 1), length // 2)
        # A stable sort after shuffling the places orders ties randomly; padding is sorted after all tokens.
        order = tf.argsort(tf.random.stateless_uniform([tokens.shape[1]], key))
        shuffled = tf.gather(tf.where(present, utility, utility.dtype.max), order, axis=1)
        ranks = tf.argsort(tf.argsort(shuffled, axis=1, stable=True), axis=1)
        rank = tf.gather(ranks, tf.argsort(order), axis=1)
        return rank < count, (rank >= length - count) & (rank < length)

    def __call__(self, tokens: tf.Tensor, utility: tf.Tensor, key: tf.Tensor) -> NoisyCopies:
        """Create the two copies of a batch.

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
        least, most = (removal.remove(tokens, mask) for mask in chosen)
        return NoisyCopies(least, most, usable)
