"""Input gradients: the single use of a gradient tape for attacks, penalties and sensitivities."""

import contextlib
import math
import threading
from collections.abc import Callable, Iterator

import tensorflow as tf

from tfrobust.errors import InputError


def input_gradient(objective: Callable, inputs, *, has_auxiliary: bool = False):
    """Compute an objective per example and its gradient with respect to the inputs.

    The gradient is that of sum_i objective(inputs)_i: a sum, never a mean, so that an example's gradient does not
    depend on the size of its batch.

    Args:
        objective: inputs -> float [b]; with `has_auxiliary`, inputs -> (float [b], anything).
        inputs: float32 [b, ...], or a nest of such (the objective gets the same nest).
        has_auxiliary: True: also return the second output of the objective, such as logits.

    Returns:
        (values float32 [b], gradient float32 in the structure of `inputs`), then the auxiliary output if requested.

    Raises:
        ValueError: the objective does not return one value per example, or does not depend on the inputs.
    """
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(inputs)
        outputs = objective(inputs)
        values, auxiliary = outputs if has_auxiliary else (outputs, None)
        values = tf.cast(values, tf.float32)
        if values.shape.rank not in (1, None):
            raise InputError(
                f"An objective returns one value per example, shape [b]; this one returned {values.shape}."
            )
        total = tf.reduce_sum(values)
    gradient = tape.gradient(total, inputs)
    if any(leaf is None for leaf in tf.nest.flatten(gradient)):
        raise InputError("The objective does not depend on the inputs by differentiable operations: no input gradient.")
    return (values, gradient, auxiliary) if has_auxiliary else (values, gradient)


def linearized(predict: Callable, inputs: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    """Return the outputs at the inputs, and a function that differentiates weighted sums of them, by a pass for each.

    Args:
        predict: inputs -> float [b, k].
        inputs: float32 [b, ...].

    Returns:
        (outputs [b, k], function of weights [b, k] -> the gradient of sum_k weights_k outputs_k, float32 [b, ...]).
    """
    # Persistent because outside of a graph a loop uses the tape once per iteration.
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(inputs)
        outputs = predict(inputs)
    return outputs, lambda weights: tape.gradient(outputs, inputs, weights)


@contextlib.contextmanager
def twice_differentiable() -> Iterator[None]:
    """Within it, `tf.nn.moments` has a right second derivative.

    TensorFlow's own stops the gradient of the mean inside the variance. The first derivative of that part is 0, the
    second one is not. Keras's batch, layer and group normalization use these moments, so whatever differentiates an
    input gradient by the weights is traced in this context.
    """
    _Moments.enter()
    try:
        yield
    finally:
        _Moments.leave()


class _Moments:
    """Replaces `tf.nn.moments` while any thread, such as that of a replica, is inside `twice_differentiable`."""

    original, depth, lock = staticmethod(tf.nn.moments), 0, threading.Lock()

    @classmethod
    def enter(cls) -> None:
        """Replace the function, if this is the first thread."""
        with cls.lock:
            cls.depth += 1
            tf.nn.moments = cls.exact

    @classmethod
    def leave(cls) -> None:
        """Put TensorFlow's function back after the last thread."""
        with cls.lock:
            cls.depth -= 1
            if not cls.depth:
                tf.nn.moments = cls.original

    @staticmethod
    def exact(x, axes, shift=None, keepdims=False, name=None):
        """Return mean and biased variance, as `tf.nn.moments` does."""
        y = tf.cast(x, tf.float32) if x.dtype == tf.float16 else x
        mean = tf.reduce_mean(y, axes, keepdims=True)
        variance = tf.reduce_mean(tf.math.squared_difference(y, mean), axes, keepdims=True)
        if not keepdims:
            mean, variance = (tf.squeeze(value, axes) for value in (mean, variance))
        return tf.cast(mean, x.dtype), tf.cast(variance, x.dtype)


def finite(gradient: tf.Tensor) -> tf.Tensor:
    """Replace NaN by 0 and infinity by +-1e30 in a gradient [b, ...], so that an overflowing model keeps its points."""
    # Without tf.cond: on a GPU, each branch makes the host wait for the device, once in every step of an attack.
    limited = tf.clip_by_value(gradient, -1e30, 1e30)
    return tf.where(tf.math.is_nan(gradient), tf.zeros_like(gradient), limited)


def directions(gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return rows in length 1, and whether a row is not 0.

    Args:
        gradient: float [b, n].

    Returns:
        (float [b, n], bool [b]); a row of 0 has some constant direction, without a gradient.
    """
    largest = tf.stop_gradient(tf.reduce_max(tf.abs(gradient), axis=1, keepdims=True))
    defined = largest > 0.0
    # Divided by the largest entry, so that no square underflows.
    scaled = tf.where(defined, gradient / tf.where(defined, largest, 1.0), 1.0)
    return scaled / tf.norm(scaled, axis=1, keepdims=True), defined[:, 0]


def cosines(objective: Callable, inputs: tf.Tensor, moved: tf.Tensor) -> tf.Tensor:
    """Compute the cosine between the gradients of an objective at two points, per example.

    Args:
        objective: inputs -> float [b].
        inputs: float32 [b, ...].
        moved: float32 [b, ...].

    Returns:
        float32 [b], NaN where either gradient is 0.
    """
    rows = [
        tf.reshape(input_gradient(objective, points)[1], [-1, math.prod(points.shape[1:])])
        for points in (inputs, moved)
    ]
    (first, defined), (second, also_defined) = map(directions, rows)
    values = tf.reduce_sum(first * second, axis=1)
    return tf.where(defined & also_defined, values, tf.fill(tf.shape(values), float("nan")))


@tf.custom_gradient
def straight_through(value: tf.Tensor, rounded: tf.Tensor) -> tf.Tensor:
    """Return `rounded`, whose gradient is that of `value`.

    Source:
        Bengio et al. 2013, https://arxiv.org/abs/1308.3432; as an attack, BPDA: Athalye et al. 2018,
        https://arxiv.org/abs/1802.00420.
    """
    return tf.identity(rounded), lambda upstream: (upstream, None)
