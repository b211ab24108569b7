"""Noise on a grid: Gaussian and uniform noise for smoothing, exact in floating point, and the radii that it certifies.

Smoothing in floating point is not sound as it is usually programmed. x + z loses low bits, so the sums that are
possible reveal x, and a network can tell x from x + delta by them (Voracek and Hein 2023, arXiv 2207.07209). Here the
image is rounded to multiples of 1 / N, N a power of two, and so is the noise. Their sum is exact in float32. It has the
distribution of round(N (x + z)) / N with real numbers, so that the theorem applies to the classifier after rounding.
Two corrections remain, and both make a certificate smaller:

- Rounding moves the image and a perturbed image by at most half a step per value: `GridNoise.rounding`.
- Draws in float64 have nearly the distribution of rounded real noise: `GridNoise.distance` bounds the total variation.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import ClassVar

import numpy as np
import tensorflow as tf
from scipy import special

from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError

# The generator of all draws: it is the same on every device.
ALGORITHM = "philox"
# Up to both, sums of images and noise have at most 24 bits on every grid here, so that they are exact in float32.
_LARGEST_SIGMA = 2.0
_LARGEST_PIXEL = 8.0
# Relative error of the normal quantile function in float64; about ten times what is measured.
_QUANTILE_ERROR = 4e-15


@dataclasses.dataclass(frozen=True)
class GridNoise(abc.ABC):
    """Base of the noise that an image is smoothed with: independent for each value, and a multiple of 1 / `grid`.

    Attributes:
        sigma: standard deviation in pixel units, in (0, 2].

    Attributes of a subclass:
        norm: the norm of the radius.
        grid: N, the number of steps per pixel unit.
    """

    sigma: float
    norm: ClassVar[str]
    grid: ClassVar[int]

    def __post_init__(self):
        if not 0 < self.sigma <= _LARGEST_SIGMA:
            raise InputError(f"sigma is {self.sigma}; it lies in (0, {_LARGEST_SIGMA:g}], for pixels in [0, 1].")

    def onto_grid(self, images: tf.Tensor) -> tf.Tensor:
        """Return images, float [...], as numbers of steps, whole float64 [...]."""
        return tf.round(tf.cast(images, tf.float64) * self.grid)

    def is_exact(self, image: tf.Tensor) -> tf.Tensor:
        """Return True, a scalar, if all sums of the image and noise are exact in float32; False for NaN."""
        return tf.reduce_all(tf.abs(image) <= _LARGEST_PIXEL)

    def noisy(self, steps: tf.Tensor, key: tf.Tensor, draws: int) -> tf.Tensor:
        """Return an image, as numbers of steps [h, w, c], with noise: float32 [draws, h, w, c] from a key int32 [2]."""
        shape = [draws, *steps.shape]
        fractions = tf.random.stateless_uniform(shape, key, dtype=tf.float64, alg=ALGORITHM)
        noise_steps = tf.round(self.quantile(fractions + 2.0**-53) * self.grid)
        return tf.cast((steps + noise_steps) / self.grid, tf.float32)

    @abc.abstractmethod
    def quantile(self, probability: tf.Tensor) -> tf.Tensor:
        """Return the quantile of the noise, float64, for odd multiples of 2^-53 in (0, 1)."""

    @abc.abstractmethod
    def radius(self, probability: np.ndarray) -> np.ndarray:
        """Return the radius that a lower bound of the top class's probability proves, float64; 0 up to 1/2."""

    @abc.abstractmethod
    def rounding(self, values: int) -> float:
        """Return how much closer two images of so many values can be than the same images on the grid."""

    @abc.abstractmethod
    def distance(self, values: int) -> float:
        """Return a bound of the total variation between draws for so many values and rounded noise of real numbers."""


@dataclasses.dataclass(frozen=True)
class Gaussian(GridNoise):
    """Gaussian noise N(0, sigma^2), which certifies in L2: sigma quantile(p), Cohen et al. 2019, theorem 1."""

    norm: ClassVar[str] = "l2"
    grid: ClassVar[int] = 2**14

    def quantile(self, probability: tf.Tensor) -> tf.Tensor:
        """Return sigma times the standard normal quantile."""
        return self.sigma * tf.math.ndtri(probability)

    def radius(self, probability: np.ndarray) -> np.ndarray:
        """Return sigma times the standard normal quantile, rounded down."""
        return self.sigma * special.ndtri(np.maximum(probability, 0.5)) * (1 - 1e-12)

    def rounding(self, values: int) -> float:
        """Return sqrt(d) / N: each of the two images moves by at most sqrt(d) / 2N."""
        return math.sqrt(values) / self.grid

    def distance(self, values: int) -> float:
        """Return d times the sum over all thresholds between two steps of the error of the distribution function.

        There are less than 17 sigma N thresholds t where the draws lie. At each, the uniform draws have an error of
        2^-52, and the quantile one of 2 e |t| phi(t), whose sum is below 2 e sigma N. Beyond lies a mass of 2^-52.
        """
        steps = self.sigma * self.grid
        return values * ((17 * steps + 2) * 2.0**-52 + 2 * (_QUANTILE_ERROR + 2.0**-52) * (steps + 1))


@dataclasses.dataclass(frozen=True)
class Uniform(GridNoise):
    """Uniform noise on (-b, b), b = sqrt(3) sigma, which certifies in L1: 2 b (p - 1/2).

    Source:
        Lee et al. 2019 (arXiv 1906.04948); Levine and Feizi 2021 (arXiv 2103.10834), whose lambda is b.
    """

    norm: ClassVar[str] = "l1"
    grid: ClassVar[int] = 2**20

    @property
    def half_width(self) -> float:
        """The largest noise b."""
        return math.sqrt(3.0) * self.sigma

    def quantile(self, probability: tf.Tensor) -> tf.Tensor:
        """Return b (2 p - 1)."""
        return self.half_width * (2.0 * probability - 1.0)

    def radius(self, probability: np.ndarray) -> np.ndarray:
        """Return 2 b (p - 1/2), rounded down."""
        return 2.0 * self.half_width * (np.maximum(probability, 0.5) - 0.5) * (1 - 1e-12)

    def rounding(self, values: int) -> float:
        """Return d / N: each of the two images moves by at most d / 2N."""
        return values / self.grid

    def distance(self, values: int) -> float:
        """Return d times the sum of an error of 2^-51 at each threshold between two steps."""
        return values * (2 * self.half_width * self.grid + 2) * 2.0**-51


NOISES = {"gaussian": Gaussian, "uniform": Uniform}


def make_noise(name: str, sigma: float) -> GridNoise:
    """Return the noise of a name.

    Args:
        name: "gaussian" or "uniform".
        sigma: standard deviation in pixel units, in (0, 2].

    Raises:
        ValueError: another name or sigma.
    """
    return NOISES[require_choice(name, "noise", NOISES)](sigma)
