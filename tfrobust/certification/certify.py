"""Certificates: which examples no perturbation within epsilon can turn into misclassified ones."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfrobust.certification import balls, branching, intervals, linear_bounds, lipschitz, slopes, tightening
from tfrobust.certification.network import Network, NoBoundsError, walk
from tfrobust.certification.operations import Arithmetic, Box
from tfrobust.common import arrays, norm_table
from tfrobust.common.settings import require_choice, require_least
from tfrobust.errors import InputError

METHODS = ("ibp", "crown_ibp", "crown", "alpha_crown", "complete", "lipschitz")
NORMS = ("linf", *balls.NORMS)
# Added to epsilon, relative and of each value: an attack that computes in float32 can leave the ball by a rounding,
# which grows with the largest pixel. In L2 and L1 also the roundings of a sum, relative, 2^-24 for each value.
_RADIUS_ROUNDING = (2.0**-20, 2.0**-22)
# Margin of logits that remains one in float32, whose smallest numbers count as 0; and one of probabilities, too, whose
# rounding can hide a smaller one.
_LOGIT_MARGIN, _PROBABILITY_MARGIN = 2.0**-100, 2.0**-16
# Radius of a ball that rounding leaves empty.
_LEAST_RADIUS = 2.0**-60
# Steps of the ascent on slopes, for the hidden values and for the margins.
_HIDDEN_STEPS, _MARGIN_STEPS = 10, 20
# Pixels of a batch; all hidden values of a network are many times as many.
_BATCH_VALUES = 2**18


def certified_margins(
    network: Network | keras.Model,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    epsilon: float,
    norm: str = "linf",
    method: str = "ibp",
    seconds: float = 60.0,
    bounds: tuple[float, float] = (0.0, 1.0),
    progress: Callable | None = None,
) -> np.ndarray:
    """Return a lower bound of each example's worst margin over all images within epsilon and the pixel box.

    The margin is the logit of the label less the largest other logit. Where the bound is positive, the network
    classifies the example correctly whatever the perturbation. Where it is not, nothing is known.

    The bound holds for the network in float32 with any order of its sums: it is computed in float64 with the a-priori
    margin for rounding of `operations`, over an epsilon that is larger by 2^-20 of itself and 2^-22, so that
    perturbations rounded to float32 lie inside. In L2 and L1, with n values of an image, it grows by n 2^-24 of itself
    more, and by the norm of n times 2^-22. Pixels up to p > 1 take p times 2^-22. Where a number inside the network
    could come near the largest float32 (above 2^100), there is no bound.

    Example:
        >>> import keras, numpy as np
        >>> from tfrobust import keras as robust
        >>> model = keras.Sequential([keras.Input((2, 1, 1)), keras.layers.Flatten(), keras.layers.Dense(2)])
        >>> model.layers[1].set_weights([np.eye(2), np.zeros(2)])  # the logits are the two pixels
        >>> margins = robust.certification.certified_margins(
        ...     model, np.array([[[[0.75]], [[0.25]]]]), np.array([0]), epsilon=0.125
        ... )
        >>> margins.round(4).tolist()
        [0.25]

    Args:
        network: a built Keras model, or its `walk`.
        images: float [n, ...] within `bounds`, n >= 1.
        labels: integer [n], class ids, of at least two classes.
        epsilon: radius in pixel units, >= 0.
        norm: "linf", "l2" or "l1".
        method: "ibp": intervals; in L2 and L1 from the dual norm of the first layer on. "crown_ibp": the larger of
            that and of one linear bound. "crown": linear bounds also of the hidden values that a ReLU may cut off, at
            the cost of one pass each. "alpha_crown": then, where it certifies a correctly classified image not, the
            same with the best slopes. "complete": `decide`. "lipschitz": in L2, by upper bounds of the layers' spectral
            norms (`lipschitz`).
        seconds: as in `decide`; for the method "complete".
        bounds: (low, high) of the pixels.
        progress: (done, total) after each batch, or None.

    Returns:
        float64 [n]; -inf where there is no bound.

    Raises:
        ValueError: a layer without bounds, by name; a network that casts its input or computes in another dtype than
            float32, with the name of the first such layer; an unknown method; a negative epsilon; pixels outside the
            bounds; images that do not fit the network; labels that are none of its classes.
    """
    require_choice(method, "method", METHODS)
    if method == "complete":
        settings: dict[str, Any] = {"norm": norm, "seconds": seconds, "bounds": bounds, "progress": progress}
        return decide(network, images, labels, epsilon=epsilon, **settings).margins
    if method == "lipschitz" and norm != "l2":
        raise InputError(f"The method 'lipschitz' bounds in 'l2', not in {norm!r}.")
    images = _pixels(images, bounds)
    ball = _Ball.checked(network, images[0].shape, epsilon, norm, bounds, progress)
    labels = arrays.check_labels(labels, len(images), ball.class_count(images[:1]), floats=True)
    return _reported(ball, ball.margins(images, labels, method))


class Decisions(NamedTuple):
    """The results of `decide`.

    Attributes:
        margins: float64 [n], as `certified_margins` returns them.
        broken: bool [n], True where a counterexample was met: an image of the ball that the network, computed in
            float64, does not give its label.
        counterexamples: float32 [n, ...]; the image itself where none was met.
    """

    margins: np.ndarray
    broken: np.ndarray
    counterexamples: np.ndarray


def decide(
    network: Network | keras.Model,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    epsilon: float,
    norm: str = "linf",
    seconds: float = 60.0,
    bounds: tuple[float, float] = (0.0, 1.0),
    progress: Callable | None = None,
) -> Decisions:
    """Certify each image or meet a counterexample, by branch and bound where linear bounds do neither.

    The arguments are those of `certified_margins`. `seconds`, >= 0, count for each image that linear bounds leave open;
    after them it stays undecided.

    Example:
        >>> import keras, numpy as np
        >>> from tfrobust import keras as robust
        >>> model = keras.Sequential([keras.Input((2, 1, 1)), keras.layers.Flatten(), keras.layers.Dense(2)])
        >>> model.layers[1].set_weights([np.eye(2), np.zeros(2)])  # the logits are the two pixels
        >>> images, labels = np.array([[[[0.75]], [[0.25]]], [[[0.5]], [[0.4]]]]), np.array([0, 0])
        >>> decisions = robust.certification.decide(model, images, labels, epsilon=0.125)
        >>> (decisions.margins > 0).tolist(), decisions.broken.tolist()
        ([True, False], [False, True])

    Returns:
        The decisions; an image is undecided if its margin is not positive and it is not broken.

    Raises:
        ValueError: as `certified_margins`; negative seconds.
    """
    options: dict[str, Any] = {"norm": norm, "seconds": seconds, "bounds": bounds, "progress": progress}
    (decisions,) = decide_parts(network, [(images, labels)], epsilon=epsilon, **options)
    return decisions


def decide_parts(
    network: Network | keras.Model,
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
    *,
    epsilon: float,
    norm: str = "linf",
    seconds: float = 60.0,
    bounds: tuple[float, float] = (0.0, 1.0),
    progress: Callable | None = None,
) -> Iterator[Decisions]:
    """Yield the decisions of `decide` on one part of the images after another, with the same graphs.

    The arguments are those of `decide`; the images of all parts have one shape, and `progress` counts over all parts.
    """
    require_least(seconds, "seconds", 0.0)
    if not parts:
        return
    first = _pixels(parts[0][0], bounds)
    ball = _Ball.checked(network, first[0].shape, epsilon, norm, bounds)
    search, classes = branching.Search(ball.network, ball.smaller), ball.class_count(first[:1])
    done, total = 0, sum(len(images) for images, _ in parts)
    for images, labels in parts:
        images = _pixels(images, bounds)
        labels = arrays.check_labels(labels, len(images), classes, floats=True)
        report = None if progress is None else functools.partial(_report_from, progress, done, total)
        yield _decided(ball, search, images, labels, seconds, report)
        done += len(images)


def _report_from(progress: Callable, before: int, total: int, done: int) -> None:
    progress(before + done, total)


def _decided(ball: _Ball, search: branching.Search, images, labels, seconds: float, report) -> Decisions:
    margins, broken = ball.margins(images, labels, "crown"), ball.point_margins(images, labels) <= 0
    counterexamples = images.astype(np.float32)
    for index in range(len(images)):
        if np.isfinite(margins[index]) and not margins[index] > 0 and not broken[index]:
            rows = slice(index, index + 1)
            boxes, _ = ball.boxes(images[rows])
            decision = search.decide(
                tightening.tightened(ball.network, boxes), ball.inner(images[rows]), int(labels[index]), seconds
            )
            margins[index] = max(margins[index], decision.bound)
            if decision.counterexample is not None:
                broken[index], counterexamples[index] = True, decision.counterexample
        if report is not None:
            report(index + 1)
    return Decisions(_reported(ball, margins), broken, counterexamples)


def _reported(ball: _Ball, margins: np.ndarray) -> np.ndarray:
    """Return margins less what the network's arithmetic can hide."""
    return margins - (_PROBABILITY_MARGIN if ball.network.probabilities else _LOGIT_MARGIN)


def _pixels(images, bounds: tuple[float, float]) -> np.ndarray:
    """Return images as float64 [n, ...], n >= 1, or raise InputError for values that are no pixels within the bounds.

    The box around an image outside the bounds would be empty, and everything is true of its images.
    """
    numbers = np.shape(bounds) == (2,) and np.asarray(bounds).dtype.kind in "fiu"
    if not numbers or not np.isfinite(bounds).all() or not bounds[0] < bounds[1]:
        raise InputError(f"bounds are {bounds!r}; they are the lowest and the highest pixel, two finite numbers.")
    images = np.asarray(images, np.float64)
    if images.ndim < 2 or not images.size:
        raise InputError(f"images have the shape {list(images.shape)}, not [n, ...] with n >= 1.")
    arrays.check_pixels(images, "images", *bounds)
    return images


def _of_each_value(bounds: tuple[float, float]) -> float:
    """Return by how much epsilon grows for the rounding of a pixel within the bounds."""
    return _RADIUS_ROUNDING[1] * max(1.0, -bounds[0], bounds[1])


class _Ball(NamedTuple):
    """A network and the balls around its images.

    Attributes:
        network: the network; in L2 and L1 it begins with the ball, with its rounding.
        epsilon: radius.
        bounds: (low, high) of the pixels.
        progress: (done, total) after each batch, or None.
        smaller: in L2 and L1, the ball in which rounded images surely lie; else None.
    """

    network: Network
    epsilon: float
    bounds: tuple[float, float]
    progress: Callable | None
    smaller: balls.NormBall | None

    @classmethod
    def checked(cls, network, shape: tuple[int, ...], epsilon: float, norm="linf", bounds=(0.0, 1.0), progress=None):
        """Return the balls around images of a shape, or raise what `certified_margins` says."""
        require_least(epsilon, "epsilon", 0.0)
        require_choice(norm, "norm", NORMS)
        network = walk(network) if isinstance(network, keras.Layer) else network
        if network.other_arithmetic:
            raise NoBoundsError(network.other_arithmetic)
        if norm == "linf":
            return cls(network, epsilon, bounds, progress, None)
        values = math.prod(shape)
        relative = _RADIUS_ROUNDING[0] + values * 2.0**-24
        absolute = _of_each_value(bounds) * norm_table.NORMS[norm].farthest(values)
        network = network.in_ball(norm, epsilon * (1 + relative) + absolute, bounds)
        smaller = balls.NormBall(norm, max(epsilon * (1 - relative) - absolute, _LEAST_RADIUS), bounds)
        return cls(network, epsilon, bounds, progress, smaller)

    def class_count(self, images: np.ndarray) -> int:
        """Return the number of classes, or raise InputError for images that do not fit the network."""
        try:
            shape = intervals.logits(self.network, tf.constant(images), Arithmetic(unit=0.0)).shape
        except (tf.errors.InvalidArgumentError, ValueError) as error:
            raise InputError(f"images of the shape {list(images.shape[1:])} do not fit the network.") from error
        if len(shape) != 2 or shape[1] < 2:
            raise InputError(f"outputs have the shape {list(shape[1:])}; a margin is that of two classes or more.")
        return shape[1]

    def boxes(self, images: np.ndarray, for_margins: bool = False) -> tuple[list[Box], tf.Tensor]:
        """Return `intervals.propagate_in_range` of the balls with their rounding."""
        if self.smaller is not None:
            point = tf.constant(images)
            boxes, in_range = intervals.propagate_in_range(self.network, Box(point, point))
            return tightening.tightened(self.network, boxes, first_only=True), in_range
        radius = self.epsilon * (1 + _RADIUS_ROUNDING[0]) + _of_each_value(self.bounds)
        box = intervals.input_box(tf.constant(images), radius, *self.bounds)
        return intervals.propagate_in_range(self.network, box, for_margins=for_margins)

    def inner(self, images: np.ndarray) -> Box:
        """Return the balls themselves, float32, rounded inwards; in L2 and L1 their centers, twice."""
        if self.smaller is not None:
            return Box(*[tf.constant(images.astype(np.float32))] * 2)
        box = intervals.input_box(tf.constant(images), self.epsilon, *self.bounds)
        lower, upper = (end.numpy().astype(np.float32) for end in box)
        lower = np.where(lower < box.lower, np.nextafter(lower, np.float32(np.inf)), lower)
        upper = np.where(upper > box.upper, np.nextafter(upper, np.float32(-np.inf)), upper)
        return Box(*map(tf.constant, (np.minimum(lower, upper), upper)))

    def point_margins(self, images: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the margins of the images themselves, float64 [n]."""
        size = max(1, _BATCH_VALUES // images[0].size)
        parts = [
            intervals.logits(self.network, tf.constant(images[start : start + size]), Arithmetic(unit=0.0)).numpy()
            for start in range(0, len(images), size)
        ]
        logits, rows = np.concatenate(parts), np.arange(len(labels))
        of_labels = logits[rows, labels]
        logits[rows, labels] = -np.inf
        return of_labels - logits.max(1)

    def margins(self, images: np.ndarray, labels: np.ndarray, method: str) -> np.ndarray:
        """Return the bounds of all images, float64 [n]; -inf where there is none, or no finite one."""
        size = _BATCH_VALUES // (images[0].size * (1 if method == "ibp" else 16))
        size = max(1, min(128, size, len(images)))
        norms = lipschitz.norms(self.network, images.shape[1:]) if method == "lipschitz" else None
        rows = []
        for start in range(0, len(images), size):
            # Of one static size; the last batch is filled with copies of the last image.
            chosen = np.minimum(np.arange(start, start + size), len(images) - 1)
            if norms is not None and self.network.ball is not None:
                radius = self.network.ball.radius
                margins = lipschitz.margins(self.network, norms, images[chosen], labels[chosen], radius)
                worst = _least(margins, labels[chosen]).numpy()
            else:
                worst = self._of_batch(images[chosen], labels[chosen], method)
            rows.append(worst[: len(images) - start])
            if self.progress is not None:
                self.progress(min(start + size, len(images)), len(images))
        worst = np.concatenate(rows)
        return np.where(np.isfinite(worst), worst, -np.inf)

    def _of_batch(self, images: np.ndarray, labels: np.ndarray, method: str) -> np.ndarray:
        network = self.network
        boxes, in_range = self.boxes(images, for_margins=method == "ibp")
        margins = _finite(intervals.margins(network, boxes, tf.constant(labels)))
        functions = linear_bounds.margin_coefficients(labels, margins.shape[-1], margins.dtype)
        if method != "ibp":
            margins = tf.maximum(margins, _finite(linear_bounds.lower_bounds(network, boxes, functions)))
        if method not in ("ibp", "crown_ibp"):
            boxes = tightening.tightened(network, boxes)
            margins = tf.maximum(margins, _finite(linear_bounds.lower_bounds(network, boxes, functions)))
        worst = tf.where(in_range, _least(margins, labels), -np.inf).numpy()
        if method == "alpha_crown":
            rows = np.flatnonzero(np.isfinite(worst) & (worst <= 0) & (self.point_margins(images, labels) > 0))
            if len(rows):
                boxes = [Box(*(tf.gather(end, rows) for end in box)) for box in boxes]
                boxes = tightening.tightened(network, boxes, steps=_HIDDEN_STEPS)
                best = slopes.best_bounds(network, boxes, tf.gather(functions, rows), _MARGIN_STEPS)
                worst[rows] = np.maximum(worst[rows], _least(_finite(best), labels[rows]))
        return worst


def _least(margins: tf.Tensor, labels: np.ndarray) -> tf.Tensor:
    """Return the least margin of each example, [b], of [b, k]; the label's own is 0."""
    is_label = tf.one_hot(labels, margins.shape[-1], on_value=True, off_value=False)
    return tf.reduce_min(tf.where(is_label, tf.constant(np.inf, margins.dtype), margins), axis=-1)


def _finite(bounds: tf.Tensor) -> tf.Tensor:
    """Replace NaN and infinity by -inf: minima and maxima may ignore a NaN."""
    return tf.where(tf.math.is_finite(bounds), bounds, tf.constant(-np.inf, bounds.dtype))


def certified(margins: np.ndarray) -> np.ndarray:
    """Return which examples are certified, bool [n]: those with a positive margin; a margin of exactly 0 is a tie."""
    return margins > 0.0


def reproduces(network: Network, images: np.ndarray, logits: np.ndarray) -> bool:
    """Return True if the operations of a network give a model's outputs.

    A model can do in its `call` what its layers do not show, so bounds of its layers are only used after this check.

    Args:
        network: the network.
        images: float [n, ...], a few images.
        logits: float [n, k], the model's outputs for them, or (of probabilities) their logits.
    """
    exact = Arithmetic(tf.float64, 0.0)
    size = max(1, _BATCH_VALUES // images[0].size)
    batches = [images[start : start + size] for start in range(0, len(images), size)]
    computed = np.concatenate([intervals.logits(network, tf.constant(batch), exact).numpy() for batch in batches])
    if computed.shape != logits.shape:
        return False
    if network.probabilities:
        computed, logits = (np.asarray(tf.nn.softmax(tf.cast(values, tf.float64))) for values in (computed, logits))
    else:
        computed, logits = (
            values - values[:, :1] for values in (computed, logits)
        )  # of probabilities up to a constant
    return bool(np.all(np.abs(computed - logits) <= 1e-3 * (1 + np.abs(computed))))
