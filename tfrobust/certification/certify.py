"""Certificates: which examples no perturbation within epsilon can turn into misclassified ones."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfrobust.certification import intervals, linear_bounds
from tfrobust.certification.network import Network, NoBoundsError, walk
from tfrobust.certification.operations import Arithmetic
from tfrobust.common.settings import require_choice, require_least

METHODS = ("ibp", "crown_ibp", "crown")
# Added to epsilon, relative and absolute: an attack that computes in float32 can leave the ball by a rounding.
_RADIUS_ROUNDING = (2.0**-20, 2.0**-22)
# Margin of logits that remains one in float32, whose smallest numbers count as 0; and one of probabilities, too, whose
# rounding can hide a smaller one.
_LOGIT_MARGIN, _PROBABILITY_MARGIN = 2.0**-100, 2.0**-16
# Pixels of a batch; all hidden values of a network are many times as many.
_BATCH_VALUES = 2**18


def certified_margins(
    network: Network | keras.Model,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    epsilon: float,
    method: str = "ibp",
    bounds: tuple[float, float] = (0.0, 1.0),
    progress: Callable | None = None,
) -> np.ndarray:
    """Return a lower bound of each example's worst margin over all images within epsilon in L∞ and the pixel box.

    The margin is the logit of the label less the largest other logit. Where the bound is positive, the network
    classifies the example correctly whatever the perturbation. Where it is not, nothing is known.

    The bound holds for the network in float32 with any order of its sums: it is computed in float64 with the a-priori
    margin for rounding of `operations`, over an epsilon that is larger by 2^-20 of itself and 2^-22, so that
    perturbations rounded to float32 lie inside. Where a number inside the network could come near the largest float32
    (above 2^100), there is no bound.

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
        images: float [n, ...] within `bounds`.
        labels: integer [n], class ids.
        epsilon: radius in pixel units, >= 0.
        method: "ibp": intervals. "crown_ibp": the larger of that and of one linear bound. "crown": linear bounds also
            of the hidden values that a ReLU may cut off, at the cost of one pass each.
        bounds: (low, high) of the pixels.
        progress: (done, total) after each batch, or None.

    Returns:
        float64 [n]; -inf where there is no bound.

    Raises:
        ValueError: a layer without bounds, by name; a network that casts its input or computes in another dtype than
            float32, with the name of the first such layer; an unknown method; a negative epsilon.
    """
    require_choice(method, "method", METHODS)
    require_least(epsilon, "epsilon", 0.0)
    network = walk(network) if isinstance(network, keras.Layer) else network
    if network.other_arithmetic:
        raise NoBoundsError(network.other_arithmetic)
    radius = epsilon * (1 + _RADIUS_ROUNDING[0]) + _RADIUS_ROUNDING[1]

    images, labels = np.asarray(images, np.float64), np.asarray(labels, np.int32)
    size = max(1, min(128, _BATCH_VALUES // (images[0].size * (1 if method == "ibp" else 16))))
    rows = []
    for start in range(0, len(images), size):
        # Of one static size; the last batch is filled with copies of the last image.
        chosen = np.minimum(np.arange(start, start + size), len(images) - 1)
        worst = _finite(_worst_margins(network, images[chosen], labels[chosen], radius, method, bounds))
        rows.append(worst.numpy()[: len(images) - start])
        if progress is not None:
            progress(min(start + size, len(images)), len(images))
    return np.concatenate(rows) - (_PROBABILITY_MARGIN if network.probabilities else _LOGIT_MARGIN)


def _worst_margins(network: Network, images, labels, radius: float, method: str, bounds) -> tf.Tensor:
    """Return the bounds of one batch, float64 [b]; -inf where there is none."""
    box = intervals.input_box(tf.constant(images), radius, *bounds)
    boxes, in_range = intervals.propagate_in_range(network, box, for_margins=method == "ibp")
    margins = _finite(intervals.margins(network, boxes, tf.constant(labels)))
    coefficients = linear_bounds.margin_coefficients(labels, margins.shape[-1], margins.dtype)
    if method != "ibp":
        margins = tf.maximum(margins, _finite(linear_bounds.lower_bounds(network, boxes, coefficients)))
    if method == "crown":
        boxes = linear_bounds.tightened(network, boxes)
        margins = tf.maximum(margins, _finite(linear_bounds.lower_bounds(network, boxes, coefficients)))
    # The label's own margin is 0.
    is_label = tf.one_hot(labels, margins.shape[-1], on_value=True, off_value=False)
    worst = tf.reduce_min(tf.where(is_label, tf.constant(np.inf, margins.dtype), margins), axis=-1)
    return tf.where(in_range, worst, -np.inf)


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
