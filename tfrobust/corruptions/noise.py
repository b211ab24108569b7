"""Noise: Gaussian, shot, impulse, speckle. Each has a sampler and a function of images, samples and a constant.

Source: Hendrycks and Dietterich 2019 (arXiv 1903.12261), their make_cifar_c.py and make_imagenet_c.py.
"""

import tensorflow as tf

from tfrobust.corruptions import draws
from tfrobust.corruptions.registry import corruption


def draw_normal(keys: tf.Tensor, images: tf.Tensor, constants) -> dict:
    """Sample standard normal `noise` of the images' shape."""
    return {"noise": draws.normal(keys, images.shape[1:], "noise")}


@corruption(draw=draw_normal, small=(0.04, 0.06, 0.08, 0.09, 0.10), large=(0.08, 0.12, 0.18, 0.26, 0.38))
def gaussian_noise(images: tf.Tensor, draw: dict, deviation: float) -> tf.Tensor:
    """Add Gaussian noise: x + N(0, deviation^2)."""
    return images + deviation * draw["noise"]


@corruption(draw=draw_normal, small=(0.06, 0.1, 0.12, 0.16, 0.2), large=(0.15, 0.2, 0.35, 0.45, 0.6))
def speckle_noise(images: tf.Tensor, draw: dict, deviation: float) -> tf.Tensor:
    """Add multiplicative Gaussian noise: x + x N(0, deviation^2)."""
    return images + deviation * images * draw["noise"]


def draw_counts(keys: tf.Tensor, images: tf.Tensor, photons: float) -> dict:
    """Sample `counts` ~ Poisson(x photons)."""
    return {"counts": draws.poisson(keys, tf.maximum(images, 0.0) * photons)}


@corruption(draw=draw_counts, small=(500, 250, 100, 75, 50), large=(60, 25, 12, 5, 3))
def shot_noise(images: tf.Tensor, draw: dict, photons: float) -> tf.Tensor:
    """Return Poisson(x photons) / photons."""
    return draw["counts"] / photons


def draw_uniform(keys: tf.Tensor, images: tf.Tensor, constants) -> dict:
    """Sample `place`, uniform on [0, 1), of the images' shape."""
    return {"place": draws.uniform(keys, images.shape[1:], "impulse")}


@corruption(draw=draw_uniform, small=(0.01, 0.02, 0.03, 0.05, 0.07), large=(0.03, 0.06, 0.09, 0.17, 0.27))
def impulse_noise(images: tf.Tensor, draw: dict, amount: float) -> tf.Tensor:
    """Replace each value of each channel by 1 (salt) or 0 (pepper), each with probability amount / 2."""
    uniform = draw["place"]
    return tf.where(uniform < amount / 2, 1.0, tf.where(uniform < amount, 0.0, images))
