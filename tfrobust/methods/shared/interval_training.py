"""Initialization and regularizers of training on interval bounds (Shi et al., 2021)."""

import math

import tensorflow as tf

from tfrobust.certification.affine import Dense, Sum
from tfrobust.certification.network import Network
from tfrobust.certification.nonlinear import Monotone, ReLU
from tfrobust.certification.operations import Box
from tfrobust.ops import distribution, randomness

# Ratios below it are penalized.
_TOLERANCE = 0.5


def initialize(network: Network, seed: int) -> None:
    """Draw all kernels but the last from N(0, sqrt(2 pi) / fan_in), half of that behind a residual sum.

    With this deviation the mean width of the bounds is the same before and after a layer with ReLU. A layer is behind a
    sum if it takes the sum itself, or what one operation, such as ReLU, makes of it.

    Source:
        Shi et al. 2021, https://arxiv.org/abs/2103.17268, section 3.2; shizhouxing/Fast-Certified-Robust-Training @
        557797bd, which halves behind one operation and not at the sum itself.
    """
    dense = [(operation, positions) for operation, positions in network.nodes if isinstance(operation, Dense)]
    for number, (operation, (position,)) in enumerate(dense[:-1]):
        deviation = math.sqrt(2 * math.pi) / operation.summands
        if _is_behind_sum(network, position):
            deviation /= 2
        kernel = operation.kernel
        key = randomness.make_key(seed, "interval initialization", number)
        kernel.assign(tf.random.stateless_normal(kernel.shape, key, stddev=deviation, dtype=kernel.dtype))


def _is_behind_sum(network: Network, position: int) -> bool:
    """Return True if the value of a position is a sum, or one operation of a sum."""
    if not position:
        return False
    operation, positions = network.nodes[position - 1]
    before = network.nodes[positions[0] - 1][0] if positions[0] else None
    return isinstance(operation, Sum) or isinstance(before, Sum)


def regularizers(network: Network, boxes: list[Box], scale: float = 1.0) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the two regularizers, scalars over the global batch, each a mean over the activations.

    tightness = relu(1/2 - t0 / t) / (1/2), with t the mean half-width before the activation and t0 that of the image,
    in pixels of [0, 1]: divided by `scale`, the width of the pixel box.
    balance = the same of r = min(q, 1 / q) for two ratios q of surely active to surely inactive units: of their mean
    centers, and of their summed squared deviations from the mean center. An activation without surely inactive units
    counts as balanced.

    Source:
        Shi et al. 2021, https://arxiv.org/abs/2103.17268, eqs 9 to 11, and the authors' code.
    """
    tightness, balance = [], []
    first = _mean((boxes[0].upper - boxes[0].lower) / 2) / scale
    for operation, places in network.nodes:
        if not isinstance(operation, (ReLU, Monotone)):
            continue
        lower, upper = boxes[places[0]]
        tightness.append(_penalty(first / tf.maximum(_mean((upper - lower) / 2), 1e-12)))
        center = (upper + lower) / 2
        squared = tf.square(center - _mean(center))
        active, inactive = (tf.cast(mask, center.dtype) for mask in (lower > 0, upper < 0))
        ratios = (
            (_mean(center * active), -_mean(center * inactive)),
            (_mean(squared * active), _mean(squared * inactive)),
        )
        balance.append(tf.add_n([_penalty(_least_ratio(*pair)) for pair in ratios]))
    count = max(1, len(tightness))
    return tuple(tf.add_n(parts) / count if parts else tf.constant(0.0) for parts in (tightness, balance))


def _penalty(ratio: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(_TOLERANCE - ratio) / _TOLERANCE


def _least_ratio(active: tf.Tensor, inactive: tf.Tensor) -> tf.Tensor:
    """Return min(q, 1 / q) of q = active / inactive, both >= 0; 1 where `inactive` is 0."""
    defined = inactive > 0
    ratio = active / tf.where(defined, inactive, 1.0)
    return tf.where(defined, tf.minimum(ratio, 1.0 / tf.maximum(ratio, 1e-12)), 1.0)


def _mean(values: tf.Tensor) -> tf.Tensor:
    """Return the mean over the values of the global batch."""
    count = distribution.global_sum(tf.cast(tf.size(values), values.dtype))
    return distribution.global_sum(tf.reduce_sum(values)) / count
