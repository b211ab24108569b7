"""Sentences as data: rows of token ids in place of images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tfrobust.common.arrays import check_labels
from tfrobust.data.checks import PADDING_WORD, UNKNOWN_WORD, check_memory, check_strengths, check_tokens
from tfrobust.data.spec import ArrayExamples

PADDING, UNKNOWN = 0, 1


class TokenExamples(ArrayExamples):
    """Sentences in memory, as token ids: 0 is padding (only at the end), 1 is unknown, words start at 2.

    Args:
        tokens: integer [n, length].
        labels: integer [n] class ids.
        strengths: float [n, length], distance of each token from neutral, |sentiment - 0.5| in [0, 0.5]; NaN if
            unknown, and for padding. None if none is known. They are used for evaluation only, never for training.

    Raises:
        ValueError: see `check_tokens`, `arrays.check_labels`, `check_strengths`.
    """

    dtype = np.dtype(np.int32)

    def __init__(self, tokens, labels, strengths=None):
        self.images = check_tokens(tokens)
        self.labels = check_labels(labels, len(self.images))
        self.image_shape = self.images.shape[1:]
        self.strengths = None if strengths is None else check_strengths(strengths, self.images)

    @property
    def tokens(self) -> np.ndarray:
        """The token ids, int32 [n, length]."""
        return self.images

    def take(self, positions: Sequence[int]) -> TokenExamples:
        """Return the examples at some positions as a separate split."""
        positions = np.asarray(positions, np.int64)
        strengths = None if self.strengths is None else self.strengths[positions]
        return TokenExamples(self.images[positions], self.labels[positions], strengths)

    def _hash_images(self, digest):
        super()._hash_images(digest)
        if self.strengths is not None:
            digest.update(self.strengths.astype("<f4").tobytes())


def vocabulary_of(words: Iterable[str]) -> tuple[str, ...]:
    """Return a vocabulary: padding, unknown, then the words in order without duplicates."""
    return (PADDING_WORD, UNKNOWN_WORD, *dict.fromkeys(words))


def encode(sentences: Sequence[Sequence[str]], ids: Mapping[str, int], length: int) -> np.ndarray:
    """Convert words to ids; sentences are truncated or padded at the end.

    Returns:
        int32 [n, length].
    """
    return padded([[ids.get(word, UNKNOWN) for word in sentence] for sentence in sentences], length, PADDING, np.int32)


def padded(rows: Sequence[Sequence], length: int, filling, dtype) -> np.ndarray:
    """Convert rows of different lengths to one array, truncated or padded at the end.

    Returns:
        [n, length].
    """
    check_memory(len(rows), (length,), np.dtype(dtype).itemsize, "text")
    array = np.full((len(rows), length), filling, dtype)
    for target, row in zip(array, rows, strict=True):
        target[: len(row)] = row[:length]
    return array
