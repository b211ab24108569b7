"""The endpoint of the smoothed classifier: class, certified radius and abstention, by the server's own entropy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from tfrobust.certification import smoothing
from tfrobust.certification.smoothing_noise import make_noise
from tfrobust.common.configured import Configured
from tfrobust.common.settings import require_whole
from tfrobust.ops import randomness

# The most votes of one answer: tables of radii have as many entries.
_MOST_DRAWS = 1_000_000


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ServedSmoothing(Configured):
    """The smoothed classifier as an endpoint of an export, `serving_smoothed`.

    For each image it returns `class` int32 [b] (-1: abstains), `radius` float64 [b] in pixel units, `abstain` bool [b]
    and `seed` int32 [b, 2], by CERTIFY of Cohen et al. 2019 (`certification.smoothed_certificates`). An image costs
    n0 + n passes.

    The noise comes from the server's own entropy, new for each image of each request. A client must not choose it: for
    known noise, an attacker can search for images that win the vote by chance, and so does a seed made of the image.
    The returned seed lets the owner of the model repeat it, with the function `smoothed_from_seed` of the
    SavedModel, which is no endpoint. A result is certified with probability 1 - alpha, so a client that repeats its
    request until the result suits it has no certificate.

    Attributes:
        sigma: standard deviation of the noise in pixel units, in (0, 2].
        noise: "gaussian", radii in L2; "uniform", radii in L1.
        selection: n0, draws that choose the class.
        draws: n, draws that bound its probability, at most 10^6.
        alpha: probability of a wrong certificate, in (0, 0.5).
        copies: noisy copies in one pass.
    """

    sigma: float
    noise: str = "gaussian"
    selection: int = 100
    draws: int = 1000
    alpha: float = 0.001
    copies: int = smoothing.COPIES_PER_PASS

    def __post_init__(self):
        make_noise(self.noise, self.sigma)
        smoothing.require_alpha(self.alpha)
        for name in ("selection", "draws", "copies"):
            require_whole(getattr(self, name), f"ServedSmoothing.{name}")
        for name in ("selection", "draws"):
            smoothing.require_most(getattr(self, name), f"ServedSmoothing.{name}", _MOST_DRAWS)

    def from_seed(self, logits: Callable, image_shape: Sequence[int], class_count: int) -> Callable:
        """Return the function (images [b, ...], seed int32 [b, 2]) -> outputs by name, in the graph.

        Args:
            logits: float32 [b, ...] -> [b, k].
            image_shape: of an image.
            class_count: k.
        """
        radii, abstains = self._tables(int(np.prod(image_shape)))
        noise = make_noise(self.noise, self.sigma)

        def votes(image, key, draws):
            passes = (tf.constant(0), tf.constant(-(-draws // self.copies)))
            return smoothing.count_votes(
                logits, image, key, passes, tf.constant(draws), noise=noise, copies=self.copies, k=class_count
            )

        def answer(row):
            image, key = row
            chosen = tf.argmax(votes(image, randomness.fold(key, "selection"), self.selection))
            count = votes(image, randomness.fold(key, "estimation"), self.draws)[chosen]
            abstain = tf.constant(abstains)[count]
            shown = tf.where(abstain, smoothing.ABSTAINED, tf.cast(chosen, tf.int32))
            return {"class": shown, "radius": tf.constant(radii)[count], "abstain": abstain}

        types = {"class": tf.int32, "radius": tf.float64, "abstain": tf.bool}
        signature = {name: tf.TensorSpec([], kind) for name, kind in types.items()}

        def from_seed(images, seed):
            answers = tf.map_fn(answer, (images, seed), fn_output_signature=signature, parallel_iterations=1)
            return {**answers, "seed": seed}

        return from_seed

    def _tables(self, values: int) -> tuple[np.ndarray, np.ndarray]:
        """Return radius and abstention for each number of votes 0 to n: the same numbers as in an evaluation."""
        counts = np.arange(self.draws + 1)
        noise, one_class = make_noise(self.noise, self.sigma), np.ones([len(counts), 1], np.int64)
        certificates = smoothing.certificates(
            one_class, counts[:, None], self.draws, noise=noise, alpha=self.alpha, values=values
        )
        return certificates.radii, certificates.classes == smoothing.ABSTAINED


def with_entropy(from_seed: Callable) -> Callable:
    """Return the endpoint: images [b, ...] -> outputs, with seeds that no one knows before."""

    def endpoint(images):
        # The only unseeded operation that op determinism allows, and no client can influence it.
        seed = tf.raw_ops.NonDeterministicInts(shape=tf.stack([tf.shape(images)[0], 2]), dtype=tf.int32)
        return from_seed(images, seed)

    return endpoint
