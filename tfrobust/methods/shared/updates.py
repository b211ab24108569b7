"""Updates of a method's weights: gradients that the optimizer accumulates over batches, and their clipping."""

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.ops import distribution, keras_private


def inner(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Return the optimizer that a loss scaling wraps, or the optimizer itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def batches_per_update(optimizer: keras.optimizers.Optimizer | None) -> int:
    """Return the number of batches whose gradients an optimizer averages for one update of the weights."""
    return getattr(inner(optimizer), "gradient_accumulation_steps", None) or 1


def check_accumulation(owner: str, optimizer: keras.optimizers.Optimizer, refusal: str) -> None:
    """Raise InputError if an optimizer accumulates gradients for a method that cannot be trained so.

    Args:
        owner: name of the method.
        optimizer: the compiled optimizer.
        refusal: what the method does in each batch, after its name; "" if it can be trained so.
    """
    if batches_per_update(optimizer) == 1:
        return
    name = f"{type(inner(optimizer)).__name__}.gradient_accumulation_steps"
    if refusal:
        raise InputError(f"{owner} {refusal}: leave {name} out, and use smaller batches.")
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
        raise InputError(f"{name} is for one replica: with several, give each a smaller part of the batch.")


def completes_update(optimizer: keras.optimizers.Optimizer) -> tf.Tensor:
    """Return whether the next application of gradients updates the weights; bool scalar."""
    batches = batches_per_update(optimizer)
    if batches == 1:
        return tf.constant(True)
    count = tf.cast(tf.convert_to_tensor(keras_private.batches_seen(inner(optimizer))), tf.int64)
    return tf.equal((count + 1) % batches, 0)


def after(method, updated: tf.Tensor) -> None:
    """Call `method.after_update` if the step has updated the weights; `updated` is of `completes_update`, before it."""

    def follow():
        method.after_update()  # for its effects: a branch of tf.cond returns nothing

    if batches_per_update(method.optimizer) == 1:
        follow()
    else:
        tf.cond(updated, follow, lambda: None)


def clipped_gradients(method, gradients: list) -> list:
    """Return gradients with which the update takes the clipped ones, after the reduction over replicas and batches.

    Args:
        method: has `trainable_variables`, `optimizer`, `clip_norm`, `clip_each` and `clipped_apart`.
        gradients: of this replica, scaled for the optimizer; None where there is none.
    """
    replicas, _ = distribution.replica()
    # Keras would clip the gradient of each replica. The norm to clip by is that of the reduced gradient.
    gradients = [None if gradient is None else distribution.global_sum(gradient) for gradient in gradients]
    count = batches_per_update(method.optimizer)
    if count == 1:
        return [None if gradient is None else gradient / replicas for gradient in _by_norm(method, gradients)]
    # Keras averages the gradients of `count` batches. The last one is chosen so that the average is the clipped one.
    pairs = list(zip(gradients, _accumulated_gradients(method.trainable_variables, method.optimizer), strict=True))
    means = [None if gradient is None else (gradient + earlier) / count for gradient, earlier in pairs]
    last = completes_update(method.optimizer)
    return [
        None if gradient is None else tf.where(last, count * mean - earlier, gradient)
        for (gradient, earlier), mean in zip(pairs, _by_norm(method, means), strict=True)
    ]


def _by_norm(method, gradients: list) -> list:
    """Return reduced gradients, clipped by the norm of all, of each, or of each part that is clipped apart."""
    gradients, scale = list(gradients), method.optimizer.scale_loss(tf.constant(1.0))
    alone = {id(variable) for variable in method.clipped_apart}
    apart = [id(variable) in alone for variable in method.trainable_variables]
    apart = range(len(gradients)) if method.clip_each else apart
    for group in set(apart):
        indices = [index for index, part in enumerate(apart) if part == group and gradients[index] is not None]
        if not indices:
            continue
        scaled, _ = tf.clip_by_global_norm([gradients[index] for index in indices], method.clip_norm * scale)
        for index, gradient in zip(indices, scaled, strict=True):
            gradients[index] = gradient
    return gradients


def _accumulated_gradients(variables: list, optimizer: keras.optimizers.Optimizer) -> list[tf.Tensor]:
    """Return the sums of the gradients since the last update, scaled like the gradients."""
    if not optimizer.built:
        with tf.init_scope():
            optimizer.build(variables)
    scale, innermost = optimizer.scale_loss(tf.constant(1.0)), inner(optimizer)
    sums = keras_private.accumulated_gradients(innermost, variables)
    return [scale * tf.convert_to_tensor(total) for total in sums]
