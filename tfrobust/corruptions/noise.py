"""Noise: Gaussian, shot, impulse, speckle. Each has a sampler and a function of images, samples and a constant.

Source: Hendrycks and Dietterich 2019 (arXiv 1903.12261), their make_cifar_c.py and make_imagenet_c.py.
"""

import tensorflow as tf

from tfrobust.corruptions import draws


def draw_normal(keys: tf.Tensor, images: tf.Tensor, constants) -> dict:
    """Sample standard normal `noise` of the images' shape."""
    return {"noise": draws.normal(keys, images.shape[1:], "noise")}


def gaussian_noise(images: tf.Tensor, draw: dict, deviation: float) -> tf.Tensor:
    """Add Gaussian noise: x + N(0, deviation^2)."""
    return images + deviation * draw["noise"]


def speckle_noise(images: tf.Tensor, draw: dict, deviation: float) -> tf.Tensor:
    """Add multiplicative Gaussian noise: x + x N(0, deviation^2)."""
    return images + deviation * images * draw["noise"]


def draw_counts(keys: tf.Tensor, images: tf.Tensor, photons: float) -> dict:
    """Sample `counts` ~ Poisson(x photons)."""
    return {"counts": draws.poisson(keys, tf.maximum(images, 0.0) * photons)}


def shot_noise(images: tf.Tensor, draw: dict, photons: float) -> tf.Tensor:
    """Return Poisson(x photons) / photons."""
    return draw["counts"] / photons


def draw_uniform(keys: tf.Tensor, images: tf.Tensor, constants) -> dict:
    """Sample `place`, uniform on [0, 1), of the images' shape."""
    return {"place": draws.uniform(keys, images.shape[1:], "impulse")}


def impulse_noise(images: tf.Tensor, draw: dict, amount: float) -> tf.Tensor:
    """Replace each value of each channel by 1 (salt) or 0 (pepper), each with probability amount / 2."""
    place = draw["place"]
    return tf.where(place < amount / 2, 1.0, tf.where(place < amount, 0.0, images))
