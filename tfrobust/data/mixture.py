"""Two groups of training examples that are mixed at a fixed share of each batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfrobust.data.spec import Examples
from tfrobust.errors import InputError


class MixedExamples(Examples):
    """Original examples, then generated ones, which are drawn with replacement into a fixed share of each batch.

    Args:
        original: the examples that are shuffled, each once in a pass.
        generated: further examples of the same shape.
        share: fraction of each batch that is generated, in (0, 1).

    Raises:
        ValueError: examples of different shapes, or a mixture among them.
    """

    def __init__(self, original: Examples, generated: Examples, share: float):
        if generated.image_shape != original.image_shape:
            raise InputError(
                f"generated images have the shape {list(generated.image_shape)}, the others "
                f"{list(original.image_shape)}."
            )
        for part in (original, generated):
            refuse_mixture(part, "WithGenerated")
        self.original, self.generated, self.share = original, generated, share
        self.image_shape, self.dtype = original.image_shape, original.dtype
        self.fit, self.interpolation = original.fit, original.interpolation
        self.labels = np.concatenate([original.labels, generated.labels])

    def fetch(self, index: tf.Tensor) -> tf.Tensor:
        """Return the examples at some positions, float32 [b, h, w, c]."""
        return self._stitched(lambda part, index, _: part.fetch(index), index, tf.zeros([tf.size(index), 2], tf.int32))

    def fetch_training(self, index: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Return the examples at some positions for training; see `Examples.fetch_training`."""
        return self._stitched(lambda part, index, keys: part.fetch_training(index, keys), index, keys)

    def arrays(self, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the examples as arrays, original ones first; generated ones if the limit leaves room for them."""
        count = len(self.original)
        if limit is None or limit >= len(self):
            return super().arrays()
        first = self.original.arrays(limit)
        if limit <= count:
            return first
        return tuple(map(np.concatenate, zip(first, self.generated.arrays(limit - count), strict=True)))

    def rows_of(self, batch_size: int) -> int:
        """Return how many rows of a batch are generated.

        Raises:
            ValueError: it would be none.
        """
        rows = int(batch_size * self.share + 1e-9)
        if rows == 0:
            raise InputError(
                f"WithGenerated.share = {self.share:.6g} of a batch of {batch_size} is less than one image: take a "
                "larger share or batch."
            )
        return rows

    def take(self, positions: Sequence[int]) -> Examples:
        """Raise ValueError: a part of a mixture has no share of its own."""
        raise InputError("WithGenerated cannot be split: set validation_size and fractions of its source.")

    def _stitched(self, fetch, index, keys):
        """Fetch each example from its own group, so that no file is read twice."""
        count = len(self.original)
        group = tf.cast(index >= count, tf.int32)
        rows = tf.dynamic_partition(tf.range(tf.size(index)), group, 2)
        indices, own_keys = tf.dynamic_partition(index, group, 2), tf.dynamic_partition(keys, group, 2)
        parts = [
            fetch(part, indices[number] - number * count, own_keys[number])
            for number, part in enumerate((self.original, self.generated))
        ]
        return tf.ensure_shape(tf.dynamic_stitch(rows, parts), [index.shape[0], *self.image_shape])

    def _hash_images(self, digest):
        digest.update(f"mixture {self.share!r}\n".encode())
        for part in (self.original, self.generated):
            digest.update(part.fingerprint.encode())


def refuse_mixture(examples: Examples, source: str) -> None:
    """Raise ValueError for a mixture whose share of each batch a source would lose.

    Args:
        examples: examples of another source, from which `source` makes its own.
        source: name of the class, for the message.
    """
    if isinstance(examples, MixedExamples):
        raise InputError(
            f"{source} takes no source with generated images, whose share of each batch it would lose: use "
            "WithGenerated once, as the outermost source."
        )
