"""Keras layers that augment and corrupt.

The random layers (`Augment`, `AugMix`, `Corrupt`, `UtilityPerturbation`) also work inside `Dataset.map`, on batches
and, except the last, on single images: `dataset.map(lambda image, label: (layer(image, training=True), label))`.
Leave `num_parallel_calls` out: calls at the same time may read the same call number, and then sample equal random
numbers.
"""

import random
from collections.abc import Callable

import keras
import tensorflow as tf

from tfrobust import corruptions
from tfrobust.augment import augmix, utility_perturbation
from tfrobust.augment.augmentation import Augmentation
from tfrobust.common.configured import Configured
from tfrobust.ops import batch_checks, distribution, randomness

__all__ = ["AugMix", "Augment", "Corrupt", "UtilityPerturbation"]


class _DrawingLayer(Configured, keras.layers.Layer):
    """Base of random layers on pixels, which count their training calls so that each call has new random numbers."""

    def __init__(self, *, seed: int | None = None, name: str | None = None, **kwargs):
        # Without autocast, pixels keep their precision: an encoder normalizes them before it casts to 16 bits.
        super().__init__(name=name, autocast=False, **kwargs)
        # As that of Keras's own layers, so that two of them draw different numbers.
        self.seed = random.randint(1, 2**31 - 1) if seed is None else seed
        self.calls = self.add_weight(
            name="calls",
            shape=(),
            dtype="int64",
            initializer="zeros",
            trainable=False,
            aggregation="only_first_replica",
        )

    def check_pixels(self, images):
        """Raise ValueError for pixels that are not floating point."""
        batch_checks.check_floats(images, self.name)

    def changed(self, change: Callable, images):
        """Apply `change` to images as float32 [b, h, w, c], and cast the result back.

        Args:
            change: float32 [b, h, w, c] -> float32 [b, h, w, c].
            images: float [b, h, w, c], or a single image [h, w, c], which is treated as a batch of one.

        Raises:
            ValueError: pixels that are not floating point, or outside [0, 1].
        """
        batch_checks.check_pixels(images, self.name)
        alone = images.shape.rank == 3
        result = tf.cast(change(tf.cast(images[None] if alone else images, tf.float32)), images.dtype)
        return result[0] if alone else result

    def augmented(self, augmentation: Augmentation, images, training):
        """Apply an augmentation with the key of this call in training; return the images unchanged otherwise."""
        if training:
            return self.changed(lambda batch: augmentation(batch, self.next_key()), images)
        self.check_pixels(images)
        return images

    def next_key(self):
        """Return the key of this call, int32 [2], and count the call; calls at the same time may return equal keys."""
        key = randomness.make_key(self.seed, "augment", tf.convert_to_tensor(self.calls))
        self.calls.assign_add(1)
        return key


@keras.saving.register_keras_serializable(package="tfrobust")
class Augment(_DrawingLayer):
    """Augmentation as a layer: random per image and per call in training, the identity otherwise.

    Call number n uses the key (seed, n); n is a variable that is saved with the model, so that resumed training has new
    random numbers. Under a distribution strategy the random numbers are sampled for the global batch, and each replica
    takes its own rows: the result does not depend on the number of replicas.

    Example:
        >>> import numpy as np
        >>> from tfrobust import keras as robust
        >>> layer = robust.layers.Augment(robust.augment.RandomFlip(probability=1.0))
        >>> images = np.array([0.0, 0.5], "float32").reshape(1, 1, 2, 1)
        >>> np.ravel(layer(images, training=True)).tolist(), np.ravel(layer(images)).tolist()
        ([0.5, 0.0], [0.0, 0.5])

    Args:
        augmentation: one of `tfrobust.keras.augment`.
        seed: seed of the random numbers; None draws it from Keras's global seed.

    Returns:
        Of `call`: images [b, h, w, c] in the dtype of the input; computed in float32.

    Raises:
        TypeError: the augmentation is no `Augmentation`.
        ValueError: in `call`, pixels that are not floating point, or, in training, outside [0, 1].
    """

    def __init__(self, augmentation: Augmentation, *, seed: int | None = None, name: str | None = None, **kwargs):
        super().__init__(seed=seed, name=name, **kwargs)
        if not isinstance(augmentation, Augmentation):
            raise TypeError(f"Augment takes an augmentation such as RandomShift(), not {type(augmentation).__name__}.")
        self.augmentation = augmentation

    def call(self, images, *, training=None):
        """Augment images in training."""
        return self.augmented(self.augmentation, images, training)


@keras.saving.register_keras_serializable(package="tfrobust")
class AugMixLayer(_DrawingLayer):
    """AugMix as a layer: in training, each image of each call is mixed with random chains of operations.

    Equal to `Augment(tfrobust.keras.augment.AugMix(...), seed=seed)`, which documents the operations. Outside of
    training it is the identity.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> layer = robust.layers.AugMix(severity=3.0)
        >>> images = tf.random.stateless_uniform([2, 8, 8, 1], (0, 1))
        >>> first, second = layer(images, training=True), layer(images, training=True)
        >>> bool(tf.reduce_all(first == second)), bool(tf.reduce_all(layer(images) == images))
        (False, True)

    Args:
        width: chains of each image, >= 1.
        depth: operations of each chain, >= 1; None for 1, 2 or 3 with equal probability.
        severity: in [0.1, 10].
        alpha: > 0, of the Dirichlet and the Beta distribution.
        all_operations: sample from 13 operations, not 9.
        seed: seed of the random numbers; None draws it from Keras's global seed.

    Returns:
        Of `call`: images [b, h, w, c] in [0, 1] in the dtype of the input; c is 1 or 3.

    Raises:
        ValueError: a number out of its range; in `call`, pixels that are not floating point, or, in training, outside
            [0, 1], or other channels.
    """

    def __init__(
        self,
        *,
        width: int = 3,
        depth: int | None = None,
        severity: float = 3.0,
        alpha: float = 1.0,
        all_operations: bool = False,
        seed: int | None = None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(seed=seed, name=name, **kwargs)
        self.width, self.depth, self.severity, self.alpha = width, depth, severity, alpha
        self.all_operations = all_operations
        self._augmentation = augmix.AugMix(
            width=width, depth=depth, severity=severity, alpha=alpha, all_operations=all_operations
        )

    def call(self, images, *, training=None):
        """Augment images in training."""
        return self.augmented(self._augmentation, images, training)


@keras.saving.register_keras_serializable(package="tfrobust")
class Corrupt(_DrawingLayer):
    """Natural corruption as a layer, in training and in inference: noise, blur, weather, digital artifacts.

    In training, call number n uses the key (seed, n); n is saved with the model. In inference every call uses the key
    of call 0, so that the same batch has the same output. Each row of the global batch has its own random numbers.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> layer = robust.layers.Corrupt("contrast", severity=5)
        >>> images = tf.reshape([0.0, 1.0], [1, 1, 2, 1])
        >>> [round(float(value), 3) for value in tf.reshape(layer(images), [-1])]
        [0.424, 0.573]

    Args:
        corruption: its name, such as "fog" (`tfrobust.corruptions.NAMES`, `EXTRA_NAMES`).
        severity: 1 to 5.
        seed: seed of the random numbers.

    Returns:
        Of `call`: images [b, h, w, c] in [0, 1] in the dtype of the input; c is 1 or 3.

    Raises:
        ValueError: no such corruption or severity; in `call`, pixels that are not floating point, or outside [0, 1].
    """

    def __init__(self, corruption: str, severity: int = 3, *, seed: int = 0, name: str | None = None, **kwargs):
        super().__init__(seed=seed, name=name, **kwargs)
        corruptions.check(corruption, severity)
        self.corruption = corruption
        self.severity = severity
        # XLA has neither the JPEG codec nor Poisson sampling.
        self.supports_jit = corruption not in ("jpeg_compression", "shot_noise")

    def call(self, images, *, training=None):
        """Corrupt images."""
        number = tf.convert_to_tensor(self.calls) if training else 0

        def corrupted(batch):
            rows = distribution.global_rows(tf.shape(batch)[0])
            keys = randomness.example_keys(randomness.make_key(self.seed, "corrupt", number), rows)
            return corruptions.corrupt(batch, self.corruption, self.severity, keys)

        corrupt_images = self.changed(corrupted, images)
        if training:
            self.calls.assign_add(1)
        return corrupt_images


@keras.saving.register_keras_serializable(package="tfrobust")
class UtilityPerturbationLayer(_DrawingLayer):
    """Noise on the least and on the most useful features of each image, as a layer of any model.

    Equal to `tfrobust.keras.augment.UtilityPerturbation`, which documents the noise. Outside of training both copies
    are the images themselves.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> layer = robust.layers.UtilityPerturbation(count=1, deviation=0.5)
        >>> images, utility = tf.zeros([1, 2, 2, 1]), tf.reshape([0.1, 0.4, 0.3, 0.2], [1, 2, 2, 1])
        >>> least, most = layer(images, utility, training=True)
        >>> [tf.where(tf.reshape(copy, [-1]))[:, 0].numpy().tolist() for copy in (least, most)]
        [[0], [1]]

    Args:
        count: k >= 1, at most half of the features; or the share of all features, in (0, 0.5].
        deviation: sigma > 0, in units of the pixels.
        unit: "values" or "pixels".
        seed: seed of the random numbers; None draws it from Keras's global seed.

    Returns:
        Of `call(images, utility)`: two tensors like the images, with noise on the features of least and of most
        utility; nothing is clipped.

    Raises:
        ValueError: an argument out of its range; in `call`, pixels that are not floating point, or another shape.
    """

    def __init__(
        self,
        *,
        count: int | float = 256,
        deviation: float = 0.5,
        unit: str = "values",
        seed: int | None = None,
        name: str | None = None,
        **kwargs,
    ):
        super().__init__(seed=seed, name=name, **kwargs)
        self.count, self.deviation, self.unit = count, deviation, unit
        self._perturbation = utility_perturbation.UtilityPerturbation(count=count, deviation=deviation, unit=unit)

    def call(self, images, utility, *, training=None):
        """Return the two noisy copies of images in training, and the images twice otherwise."""
        self.check_pixels(images)
        if not training:
            return images, images
        noisy = self._perturbation(tf.cast(images, tf.float32), tf.cast(utility, tf.float32), self.next_key())
        return tf.cast(noisy.least, images.dtype), tf.cast(noisy.most, images.dtype)

    def compute_output_shape(self, images_shape, utility_shape=None):
        """Return the shape of the images twice."""
        return images_shape, images_shape


# Public names of the layers; in gin files these names refer to the augmentations.
AugMix = AugMixLayer
UtilityPerturbation = UtilityPerturbationLayer
