"""Randomized smoothing: predictions and certified radii of the classifier that votes over noisy copies of an image."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from scipy import special

from tfrobust.certification.smoothing_noise import ALGORITHM, GridNoise, make_noise
from tfrobust.common.settings import require_whole
from tfrobust.errors import InputError
from tfrobust.ops import randomness
from tfrobust.ops.probabilities import OF_ONE_OUTPUT

ABSTAINED = -1
# Noisy copies in one pass of the network. The shape of all passes is the same, so the results are too.
COPIES_PER_PASS = 128
# Longest graph call, in seconds: Python handles signals between two calls only.
_CALL_SECONDS = 2.5
# Margin of the confidence bound over the rounding of the incomplete beta function.
_BOUND_MARGIN = 1e-12


class Certificates(NamedTuple):
    """Classes of the smoothed classifier, with certified radii.

    Attributes:
        classes: int64 [n]; -1 where it abstains.
        radii: float64 [n], in pixel units, of the open ball in which the class cannot change; 0 where it abstains.
        probabilities: float64 [n], the lower confidence bounds of the probability of the chosen class.
    """

    classes: np.ndarray
    radii: np.ndarray
    probabilities: np.ndarray


def smoothed_certificates(
    model: keras.Model | Callable,
    images: np.ndarray,
    *,
    sigma: float,
    noise: str = "gaussian",
    selection: int = 100,
    draws: int = 10_000,
    alpha: float = 0.001,
    seed: int = 0,
    index: Sequence[int] | None = None,
    copies: int = COPIES_PER_PASS,
    progress: Callable | None = None,
) -> Certificates:
    """Certify the smoothed classifier g(x) = the class that the model gives x + noise most often (CERTIFY).

    Some draws choose the class. Others count how often it is the output, which gives a lower bound of its probability
    at one-sided confidence 1 - alpha, and so a radius. Up to 1/2 it abstains. Noise is added to the pixels as they
    are, and not clipped.

    With probability 1 - alpha over the draws, for each image by itself, g has this class in the open ball of the
    radius. It says nothing about the model without noise, and nothing about another norm. Radii are sound in
    floating point, see `smoothing_noise`: g rounds its input to a fine grid.

    Each draw is a function of the seed, the image's index, the purpose and the number of the draw. All passes have
    the same shape, and votes of the last one that are too many are not counted.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> model = lambda images: tf.concat([1.0 - images[:, 0, 0], images[:, 0, 0]], axis=-1)  # 1 from 0.5
        >>> image = np.full([1, 1, 1, 1], 1.0)
        >>> found = robust.certification.smoothed_certificates(model, image, sigma=0.25, draws=1000)
        >>> int(found.classes[0]), bool(0.3 < found.radii[0] < 0.5)
        (1, True)

    Args:
        model: float32 [b, ...] -> logits [b, k]; a Keras model runs in inference mode.
        images: float [n, ...]; it abstains where a pixel is not finite, or beyond 8, so that sums with the noise are
            not exact.
        sigma: standard deviation of the noise in pixel units, in (0, 2].
        noise: "gaussian", which certifies in L2; "uniform", which certifies in L1.
        selection: draws that choose the class, >= 1; the paper has 100.
        draws: draws that bound its probability, >= 1; the paper has 100,000. They limit the radius: with alpha 0.001 to
            3.2 sigma for 10,000 draws.
        alpha: probability of a wrong certificate, in (0, 0.5).
        seed: seed of all draws.
        index: integer [n], positions of the images in their data set; None: 0, 1, ...
        copies: noisy copies in one pass, >= 1; the draws depend on it.
        progress: (done, total) after each call, in images; or None.

    Returns:
        Certificates of the n images.

    Raises:
        ValueError: an argument outside its range, or an output that is not [b, k] with at least two classes.

    Source:
        Cohen, Rosenfeld and Kolter 2019 (arXiv 1902.02918), algorithm CERTIFY, with R = sigma quantile(p).
    """
    voting = Voting(model, images.shape[1:], make_noise(noise, sigma), copies)
    require_whole(selection, "selection")
    require_whole(draws, "draws")
    require_alpha(alpha)
    pairs = []
    for done, (image, position) in enumerate(_with_positions(images, index)):
        pairs.append(voting.both(image, draw_key(seed, position), selection, draws))
        if progress is not None:
            progress(done + 1, len(images))
    chosen, bounded = map(np.stack, zip(*pairs, strict=True))
    return certificates(chosen, bounded, draws, noise=voting.noise, alpha=alpha, values=images[0].size)


def smoothed_predictions(
    model: keras.Model | Callable,
    images: np.ndarray,
    *,
    sigma: float,
    noise: str = "gaussian",
    draws: int = 1000,
    alpha: float = 0.001,
    seed: int = 0,
    index: Sequence[int] | None = None,
    copies: int = COPIES_PER_PASS,
) -> np.ndarray:
    """Predict by the smoothed classifier (PREDICT): the class of most votes, if that is no chance result.

    With probability 1 - alpha for each image, the class is g's own if there is one. It comes without a radius.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> from tfrobust import keras as robust
        >>> model = lambda images: tf.concat([1.0 - images[:, 0, 0], images[:, 0, 0]], axis=-1)  # 1 from 0.5
        >>> images = np.array([1.0, 0.0, 0.5]).reshape(3, 1, 1, 1)
        >>> robust.certification.smoothed_predictions(model, images, sigma=0.25).tolist()
        [1, 0, -1]

    Args:
        model: as in `smoothed_certificates`; so are the other arguments.
        images: float [n, ...].
        sigma: standard deviation of the noise.
        noise: "gaussian" or "uniform".
        draws: number of votes, >= 1.
        alpha: largest p-value of the two-sided binomial test of the two classes with the most votes, in (0, 0.5).
        seed: seed of all draws.
        index: integer [n], or None.
        copies: noisy copies in one pass, >= 1.

    Returns:
        int64 [n]; -1 where it abstains.

    Raises:
        ValueError: as `smoothed_certificates`.

    Source:
        Cohen, Rosenfeld and Kolter 2019 (arXiv 1902.02918), algorithm PREDICT; Hung and Fithian 2019.
    """
    voting = Voting(model, images.shape[1:], make_noise(noise, sigma), copies)
    require_whole(draws, "draws")
    require_alpha(alpha)
    rows = [
        voting.count(image, randomness.fold(draw_key(seed, position), "prediction"), draws)
        for image, position in _with_positions(images, index)
    ]
    return majority_classes(np.stack(rows), alpha)


class Voting:
    """The votes of a model over noisy copies of an image, in passes of one static shape.

    Args:
        model: float32 [b, ...] -> logits [b, k].
        shape: of an image.
        noise: of the copies.
        copies: noisy copies in one pass.
        classes: k; None: that of the output's static shape.

    Raises:
        ValueError: the output is not [b, k], or `copies` < 1.
    """

    def __init__(
        self,
        model: Callable,
        shape: Sequence[int],
        noise: GridNoise,
        copies: int = COPIES_PER_PASS,
        classes: int | None = None,
    ):
        self.noise, self.copies = noise, require_whole(copies, "copies")
        predict = (lambda images: model(images, training=False)) if isinstance(model, keras.Layer) else model
        self.classes = classes or _class_count(predict, (copies, *shape))

        def add(image, key, first, last, draws):
            return count_votes(predict, image, key, (first, last), draws, noise=noise, copies=copies, k=self.classes)

        # Traced here, once.
        number = tf.TensorSpec([], tf.int32)
        self._add = tf.function(add, autograph=False).get_concrete_function(
            tf.TensorSpec(shape), tf.TensorSpec([2], tf.int32), number, number, number
        )

    def both(self, image: np.ndarray, key: tf.Tensor, selection: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the votes that choose a class and the independent ones that estimate its probability."""
        first = self.count(image, randomness.fold(key, "selection"), selection)
        return first, self.count(image, randomness.fold(key, "estimation"), draws)

    def count(self, image: np.ndarray, key: tf.Tensor, draws: int) -> np.ndarray:
        """Return the number of votes for each class, int64 [k]; see `count_votes`."""
        passes, start, step, votes = -(-draws // self.copies), 0, 1, 0
        image = tf.constant(image, tf.float32)
        while start < passes:  # whole numbers are added, so their sum does not depend on the clock
            stop = min(start + step, passes)
            began = time.monotonic()
            votes += self._add(image, key, *map(tf.constant, (start, stop, draws))).numpy()
            seconds = max((time.monotonic() - began) / (stop - start), 1e-6)
            start, step = stop, max(1, int(_CALL_SECONDS / seconds))
        return votes


def count_votes(
    predict: Callable, image: tf.Tensor, key: tf.Tensor, passes: tuple, draws, *, noise: GridNoise, copies: int, k: int
) -> tf.Tensor:
    """Count the votes of some passes, in the graph.

    Args:
        predict: float32 [b, ...] -> logits [b, k].
        image: float32 [...].
        key: int32 [2]; the noise of a pass is a function of it and of the pass's number.
        passes: int32 scalars, the first pass and the one after the last.
        draws: int32 scalar; copies with a number from `draws` on do not vote.
        noise: of the copies.
        copies: noisy copies in one pass.
        k: number of classes.

    Returns:
        int64 [k]. An output that is not finite is no vote. There are none at all for an image whose sums with noise are
        not exact: a pixel that is not finite, or beyond 8.
    """
    steps, exact = noise.onto_grid(image), noise.is_exact(image)

    def add(number, votes):
        pass_key = tf.random.experimental.stateless_fold_in(key, number, alg=ALGORITHM)
        logits = predict(noise.noisy(steps, pass_key, copies))
        valid = exact & (number * copies + tf.range(copies) < draws) & tf.reduce_all(tf.math.is_finite(logits), axis=-1)
        cast = tf.one_hot(tf.argmax(logits, axis=-1), k, on_value=True, off_value=False) & valid[:, None]
        return number + 1, votes + tf.reduce_sum(tf.cast(cast, tf.int64), axis=0)

    first, last = passes
    _, votes = tf.while_loop(lambda number, _: number < last, add, (first, tf.zeros([k], tf.int64)))
    return votes


def draw_key(seed: int, position: int) -> tf.Tensor:
    """Return the key of all draws for one image: of a seed and the image's position in its data set, int32 [2]."""
    return randomness.make_key(seed, "smoothing", int(position))


def certificates(
    selection: np.ndarray, estimation: np.ndarray, draws: int, *, noise: GridNoise, alpha: float, values: int
) -> Certificates:
    """Return the certificates that votes prove.

    Args:
        selection: integer [n, k], votes that choose the class.
        estimation: integer [n, k], votes of other draws, at most `draws` for each image.
        draws: number of draws of the estimation; those that gave no finite output are no votes.
        noise: of the draws.
        alpha: probability of a wrong certificate, in (0, 0.5).
        values: number of values of an image.
    """
    chosen = np.argmax(selection, axis=-1)
    successes = np.take_along_axis(estimation, chosen[:, None], axis=-1)[:, 0]
    probabilities = np.maximum(lower_bound(successes, draws, alpha) - noise.distance(values), 0.0)
    radii = np.maximum(noise.radius(probabilities) - noise.rounding(values), 0.0)
    return Certificates(np.where(probabilities > 0.5, chosen, ABSTAINED), radii, probabilities)


def lower_bound(successes: np.ndarray, draws: np.ndarray | int, alpha: float) -> np.ndarray:
    """Return the one-sided Clopper-Pearson lower bound of a probability, rounded down.

    The bound p solves P(B >= s) = alpha for B binomial (n, p): the alpha quantile of Beta(s, n - s + 1); 0 if s = 0.

    Args:
        successes: integer [...], s.
        draws: n >= s.
        alpha: 1 - confidence, in (0, 1).

    Returns:
        float64 [...] in [0, 1).

    Source:
        Clopper and Pearson 1934, Biometrika 26.
    """
    successes = np.asarray(successes, np.float64)
    quantile = special.betaincinv(np.maximum(successes, 1.0), draws - successes + 1.0, alpha)
    return np.where(successes > 0, np.maximum(quantile - _BOUND_MARGIN, 0.0), 0.0)


def majority_classes(votes: np.ndarray, alpha: float) -> np.ndarray:
    """Return the class of most votes, int64 [n] from integer [n, k]; -1 where it is not significant.

    The p-value is that of the two-sided binomial test of n1 among n1 + n2 votes, min(1, 2 P(B >= n1)).
    """
    order = np.argsort(-votes, axis=-1, kind="stable")
    first, second = (np.take_along_axis(votes, order[:, rank, None], axis=-1)[:, 0] for rank in (0, 1))
    p_value = np.where(first > second, 2.0 * special.betainc(np.maximum(first, 1), second + 1.0, 0.5), 1.0)
    return np.where(p_value <= alpha, order[:, 0], ABSTAINED)


def require_alpha(alpha: float) -> float:
    """Return alpha, or raise ValueError if it does not lie in (0, 0.5)."""
    if not 0 < alpha < 0.5:
        raise InputError(f"alpha is {alpha}; it lies in (0, 0.5), such as 0.001.")
    return alpha


def require_most(value: int, name: str, most: int) -> int:
    """Return a value of at most `most`, or raise ValueError for the argument `name`."""
    if value > most:
        raise InputError(f"{name} is {value}; it is at most {most}.")
    return value


def _class_count(predict: Callable, shape: tuple[int, ...]) -> int:
    """Return k of a model's output [b, k], without a pass."""
    traced = tf.function(predict, autograph=False).get_concrete_function(tf.TensorSpec(shape))
    output = traced.output_shapes
    if not isinstance(output, tf.TensorShape) or output.rank != 2 or output[1] is None:
        raise InputError(f"The model returns shape {output}; votes need logits [b, k].")
    if output[1] < 2:  # the only class would have all votes
        raise InputError(f"The model returns shape {output}; votes need two classes. {OF_ONE_OUTPUT}")
    return int(output[1])


def _with_positions(images: np.ndarray, index: Sequence[int] | None):
    """Return pairs of an image and its position."""
    return zip(images, range(len(images)) if index is None else index, strict=True)
