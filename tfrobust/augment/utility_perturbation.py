"""Noise on the least and on the most useful features of images."""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from tfrobust.common.configured import Configured
from tfrobust.common.settings import as_plain, is_whole, require_choice
from tfrobust.errors import InputError
from tfrobust.ops import randomness, sensitivity_maps
from tfrobust.ops.shapes import batch_size

UNITS = ("values", "pixels")


class NoisyCopies(NamedTuple):
    """Two perturbed copies of images [b, h, w, c] (or of sentences [b, l]).

    Attributes:
        least: like the inputs, with noise on the least useful features (or without these tokens).
        most: like the inputs, with noise on the most useful features (or without these tokens).
        usable: bool [b], false if the utility of all features is negligible, so that `most` would have noise on random
            features.
    """

    least: tf.Tensor
    most: tf.Tensor
    usable: tf.Tensor


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class UtilityPerturbation(Configured):
    """Gaussian noise on the k features of least utility, and separately on the k of most utility, in each image.

    x + eps(BOTTOM_k(u)) and x + eps(TOP_k(u)); eps(S) ~ N(0, deviation^2), independent, on the features in S, 0
    elsewhere. The two noises are independent, and nothing is clipped. Features of equal utility are in random order:
    images have many of utility 0, and an order by index would prefer the upper left corner.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> images = tf.zeros([1, 2, 2, 1])
        >>> utility = tf.reshape([0.1, 0.4, 0.3, 0.2], [1, 2, 2, 1])
        >>> noisy = robust.augment.UtilityPerturbation(count=1)(images, utility, tf.constant([0, 1]))
        >>> [tf.where(tf.reshape(copy, [-1]))[:, 0].numpy().tolist() for copy in (noisy.least, noisy.most)]
        [[0], [1]]

    Args:
        count: k >= 1; or the share of all features, in (0, 0.5]. With more than half of the features the two sets would
            overlap.
        deviation: sigma > 0, in units of the pixels.
        unit: definition of a feature. "values": one value of a channel, as in the paper. "pixels": all channels of a
            pixel, whose utilities are added.
        smallest_utility: an image whose largest utility is below this number has no usable features, >= 0.

    Raises:
        ValueError: an argument out of its range; in a call, images of fewer than 2 k features.

    Source:
        Kim et al. 2021, definitions 1 and 3, section 4.2 (the threshold, 1e-12) and appendix C.
    """

    count: int | float = 256
    deviation: float = 0.5
    unit: str = "values"
    smallest_utility: float = 1e-12

    def __post_init__(self):
        object.__setattr__(self, "count", as_plain(self.count))
        if not is_whole(self.count) and not (isinstance(self.count, float) and 0 < self.count <= 0.5):
            raise InputError(
                f"UtilityPerturbation.count is {self.count!r}; it is a whole number >= 1, or a share in (0, 0.5]."
            )
        require_choice(self.unit, "UtilityPerturbation.unit", UNITS)
        if not self.deviation > 0 or not self.smallest_utility >= 0:
            raise InputError(
                f"UtilityPerturbation has deviation {self.deviation} (> 0) and smallest_utility "
                f"{self.smallest_utility} (>= 0)."
            )

    def utility(self, objective: Callable, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Measure the utility u of each value by the gradient of the objective, with `ops.sensitivity_maps.utility`.

        Args:
            objective: (images, labels) -> float [b].
            images: float32 [b, h, w, c].
            labels: int32 [b].

        Returns:
            float32 in the shape of `images`, >= 0.
        """
        return sensitivity_maps.utility(lambda images: objective(images, labels), images)

    def passes(self, shape: tuple[int, ...]) -> int:
        """Return the cost of the utility in forward and backward passes: 1 for examples of any shape."""
        return 1

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise InputError if images of this shape (h, w, c) have fewer than 2 k features."""
        self._count(math.prod(shape) // (shape[-1] if self.unit == "pixels" else 1))

    def _count(self, features: int) -> int:
        """Return k for images of `features` features."""
        count = self.count if isinstance(self.count, int) else max(1, min(round(self.count * features), features // 2))
        if 2 * count > features:
            raise InputError(
                f"UtilityPerturbation.count is {self.count}, but an image has {features} {self.unit}: the least and "
                f"the most useful ones would overlap. Use at most {features // 2}."
            )
        return count

    def choose(self, utility: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Select the k features of least and of most utility.

        Args:
            utility: float [b, n], n features.
            key: int32 [2], for the order of features of equal utility, one for all images.

        Returns:
            Two index tensors, int32 [b, k] in 0 .. n - 1, without a common feature of an image.
        """
        features = utility.shape[1]
        count = self._count(features)
        # A stable selection after shuffling the features breaks ties randomly. Opposite orders share no feature.
        order = tf.argsort(tf.random.stateless_uniform([features], key))
        least, most = (
            tf.gather(shuffled, tf.math.top_k(sign * tf.gather(utility, shuffled, axis=1), count).indices)
            for sign, shuffled in ((-1.0, order), (1.0, order[::-1]))
        )
        return least, most

    def __call__(self, images: tf.Tensor, utility: tf.Tensor, key: tf.Tensor) -> NoisyCopies:
        """Create the two noisy copies of a batch.

        Args:
            images: float32 [b, h, w, c].
            utility: float32 in the shape of `images`, >= 0, the output of `ops.sensitivity_maps.utility`.
            key: int32 [2], one key for the global batch.
        """
        images, utility = tf.convert_to_tensor(images), tf.cast(utility, tf.float32)
        images, shape = tf.cast(images, tf.float32) if images.dtype.is_floating else images, images.shape
        if None in shape[1:] or not shape.is_compatible_with(utility.shape):
            raise InputError(f"Images {shape} and utility {utility.shape} must have one, known shape [b, h, w, c].")
        channels = shape[-1] if self.unit == "pixels" else 1
        features = shape[1:].num_elements() // channels
        values = tf.reshape(utility, [-1, features, channels])
        places = self.choose(tf.reduce_sum(values, axis=-1), randomness.fold(key, "order"))
        copies = []
        for name, chosen in zip(("least", "most"), places, strict=True):
            noise = self._noise(chosen, features, channels, randomness.fold(key, name))
            copies.append(images + tf.ensure_shape(tf.reshape(noise, tf.shape(images)), shape))
        usable = tf.reduce_max(tf.reshape(utility, [-1, features * channels]), axis=1) >= self.smallest_utility
        least, most = copies
        return NoisyCopies(least, most, usable)

    def _noise(self, places: tf.Tensor, features: int, channels: int, key: tf.Tensor) -> tf.Tensor:
        """Sample noise, float32 [b, features, channels], which is 0 except at `places` [b, k]."""
        count = batch_size(places)
        drawn = randomness.draw(randomness.normal(self.deviation), key, [count, places.shape[1], channels])
        rows = tf.repeat(tf.range(count)[:, None], places.shape[1], axis=1)
        return tf.scatter_nd(tf.stack([rows, places], axis=-1), drawn, [count, features, channels])
