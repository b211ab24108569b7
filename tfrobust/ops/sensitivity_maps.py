"""Contextual utility and sensitivity of input values, and the concentration and correlation of such maps."""

from collections.abc import Callable

import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import randomness
from tfrobust.ops.gradients import input_gradient


def utility(objective: Callable, inputs: tf.Tensor) -> tf.Tensor:
    """Compute the sensitivity of the loss to each input value.

    u_ij = |d l(y_i, f(x_i)) / d x_ij|, j over pixels and channels.

    Args:
        objective: inputs -> float [b], the loss of each example, such as `attacks.shared.objectives.cross_entropy`.
        inputs: float32 [b, ...].

    Returns:
        float32 in the shape of `inputs`, >= 0, with gradients stopped.

    Raises:
        ValueError: the loss does not depend on the inputs by differentiable operations.

    Source:
        Kim et al. 2021, definition 1 (continuous inputs).
    """
    return tf.stop_gradient(tf.abs(input_gradient(objective, inputs)[1]))


def embedding_width(embed: Callable, inputs) -> int:
    """Return d of embeddings [b, d].

    Raises:
        ValueError: another rank, or d unknown before the embedding is computed.
    """
    shape = tf.function(embed, autograph=False).get_concrete_function(inputs).output_shapes
    if not isinstance(shape, tf.TensorShape) or shape.rank != 2 or shape[1] is None:
        raise InputError(f"An embedding is one tensor [b, d] of known d; this one has the shape {shape}.")
    return int(shape[1])


def random_directions(key: tf.Tensor, width: int, count: int) -> tf.Tensor:
    """Sample orthonormal directions, scaled so that squared projections sum to the squared norm on average.

    E sum_k <v_k, a>^2 = |a|^2 for every a; for `count` = `width` exactly, without E.

    Args:
        key: int32 [2].
        width: d.
        count: m, 1 <= m <= d.

    Returns:
        float32 [d, m], columns of length sqrt(d / m).
    """
    basis, _ = tf.linalg.qr(tf.random.stateless_normal([width, count], randomness.fold(key, "directions")))
    return basis * (width / count) ** 0.5


def projection_error(width: int, count: int) -> float:
    """Return the relative standard deviation of a squared sensitivity that is estimated by projections.

    sqrt(2 (d - m) / (m (d + 2))): m of d orthonormal directions capture a share of a squared norm that is distributed
    as Beta(m/2, (d - m)/2). The relative error of the sensitivity itself is about half of it.

    Args:
        width: d.
        count: m; m >= d is exact.

    Returns:
        >= 0.
    """
    count = min(count, width)
    return (2 * (width - count) / (count * (width + 2))) ** 0.5


def add_squared_derivatives(embed: Callable, inputs: tf.Tensor, directions: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
    """Add sum_k (d <v_k, phi(x_i)> / d x_ij)^2 to `total`.

    The backward passes run one after the other, so that memory does not grow with m.

    Args:
        embed: inputs -> float [b, d].
        inputs: float32 [b, ...].
        directions: float32 [d, m], columns v_k; m may be dynamic.
        total: float32 in the shape of `inputs`.

    Returns:
        float32 in the shape of `inputs`, with gradients stopped. Its square root is the sensitivity |d phi(x_i) / d
        x_ij|_2; with `random_directions` an estimate.

    Raises:
        ValueError: the embedding does not depend on the inputs by differentiable operations.

    Source:
        Kim et al. 2021, definition 2 (continuous inputs). The projections are those of Hutchinson (1990), here
        orthonormal.
    """
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(inputs)
        embedding = tf.cast(embed(inputs), tf.float32)

    def add(number, total):
        direction = tf.broadcast_to(directions[:, number], tf.shape(embedding))
        gradient = tape.gradient(embedding, inputs, output_gradients=direction)
        if gradient is None:
            raise InputError("The embedding does not depend on the inputs by differentiable operations.")
        return number + 1, total + tf.square(gradient)

    count = tf.shape(directions)[1]
    _, total = tf.while_loop(lambda number, _: number < count, add, (tf.constant(0), total))
    return tf.stop_gradient(total)


def concentration(maps: tf.Tensor) -> tf.Tensor:
    """Compute the Gini coefficient of each map: 0 if all values are equal, near 1 if one value holds everything.

    G = sum_k (2k - D - 1) v_(k) / (D sum_k v_k) with v_(1) <= ... <= v_(D); at most 1 - 1/D.

    Args:
        maps: float [b, ...], >= 0.

    Returns:
        float64 [b]; NaN for maps of zeros.

    Source:
        Gini 1912; as a measure of sparsity: Hurley and Rickard 2009, IEEE Trans. Information Theory 55(10).
    """
    values = tf.sort(_rows(maps), axis=1)
    count = tf.cast(tf.shape(values)[1], tf.float64)
    weights = 2 * tf.range(1, count + 1, dtype=tf.float64) - count - 1
    total = tf.reduce_sum(values, axis=1)
    spread = tf.reduce_sum(weights * values, axis=1) / (count * total)
    return tf.where(total > 0, spread, tf.constant(float("nan"), tf.float64))


def rank_correlation(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """Compute Spearman's rank correlation of two maps of each example: Pearson's of the ranks, ties averaged.

    Args:
        first: float [b, ...].
        second: float of the same shape.

    Returns:
        float64 [b] in [-1, 1]; NaN where one of the maps is constant.

    Source:
        Spearman 1904.
    """
    ranks = (average_ranks(_rows(maps)) for maps in (first, second))
    first, second = (row_ranks - tf.reduce_mean(row_ranks, axis=1, keepdims=True) for row_ranks in ranks)
    squares = tf.reduce_sum(first**2, axis=1) * tf.reduce_sum(second**2, axis=1)
    # Ranks are multiples of 1/2, so the deviations of a constant map are exactly 0.
    correlation = tf.clip_by_value(tf.reduce_sum(first * second, axis=1) / tf.sqrt(squares), -1.0, 1.0)
    return tf.where(squares > 0, correlation, tf.constant(float("nan"), tf.float64))


def average_ranks(values: tf.Tensor) -> tf.Tensor:
    """Return ranks 1 .. D within each row; equal values share the mean of their ranks.

    Args:
        values: float [b, D].

    Returns:
        float64 [b, D].
    """
    ordered = tf.sort(values, axis=1)
    below, upto = (tf.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    return tf.cast(below + upto + 1, tf.float64) / 2


def _rows(maps: tf.Tensor) -> tf.Tensor:
    maps = tf.cast(maps, tf.float64)
    return tf.reshape(maps, [tf.shape(maps)[0], -1])
