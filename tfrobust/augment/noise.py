"""Gaussian noise on all pixels, the augmentation of the baseline XE+Gaussian."""

import dataclasses
from typing import ClassVar

import keras
import tensorflow as tf

from tfrobust.augment.augmentation import Augmentation
from tfrobust.common.kinds import OF_PIXELS
from tfrobust.errors import InputError
from tfrobust.ops import randomness
from tfrobust.ops.shapes import by_example


def check_deviation(deviation, owner: str) -> None:
    """Raise ValueError unless `deviation` is a number > 0 or a pair with 0 <= low < high; `owner` is named."""
    if isinstance(deviation, (list, tuple)):
        valid = len(deviation) == 2 and 0 <= deviation[0] < deviation[1]
    else:
        valid = deviation > 0
    if not valid:
        raise InputError(f"{owner} is {deviation}; it is a number > 0, or (low, high) with 0 <= low < high.")


def draw_noise(deviation: float | tuple[float, float], key: tf.Tensor, images_shape) -> tf.Tensor:
    """Sample Gaussian noise with a fixed deviation, or with one sampled per image or clip.

    Args:
        deviation: sigma, or (low, high): sigma ~ U(low, high).
        key: int32 [2] or [b, 2].
        images_shape: (b, h, w, c) or (b, t, h, w, c).

    Returns:
        float32 of that shape, not clipped.
    """
    noise = randomness.draw(randomness.normal(), randomness.fold(key, "noise"), images_shape)
    if not isinstance(deviation, (list, tuple)):
        return deviation * noise
    sigma = randomness.draw(randomness.uniform(*deviation), randomness.fold(key, "deviation"), [images_shape[0], 1])
    return by_example(sigma, noise) * noise


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class AddGaussian(Augmentation):
    """Gaussian noise on all values of an image or clip: clip(x + sigma n, 0, 1), n ~ N(0, 1) for each value.

    Example:
        >>> import tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> noisy = robust.augment.AddGaussian(deviation=0.1)(tf.fill([10, 32, 32, 3], 0.5), tf.constant([0, 1]))
        >>> 0.099 < float(tf.math.reduce_std(noisy)) < 0.101
        True

    Args:
        deviation: sigma > 0, in units of [0, 1]; or (low, high), sigma ~ U(low, high) sampled for each image, so that
            (0, 0.3) is any deviation up to 0.3.

    Draw:
        noise: float32 in the shape of the images, sigma n.

    Source:
        Kim et al. 2021, section 4.3 and appendix C: 0.3 for CIFAR, 0.5 for ImageNet. Lopes et al. 2019,
        https://arxiv.org/abs/1906.02611, for noise up to a level.
    """

    deviation: float | tuple[float, float] = 0.3

    kinds: ClassVar[tuple[str, ...]] = OF_PIXELS

    def __post_init__(self):
        check_deviation(self.deviation, "AddGaussian.deviation")

    def draw(self, key: tf.Tensor, images_shape) -> dict:
        """Sample the noise."""
        return {"noise": draw_noise(self.deviation, key, images_shape)}

    def apply(self, images: tf.Tensor, draw: dict) -> tf.Tensor:
        """Add the noise and clip to [0, 1]."""
        return tf.clip_by_value(images + draw["noise"], 0.0, 1.0)
