"""Access to `tf.distribute` within a step: number of replicas, own position, gathers and global sums."""

from __future__ import annotations

import tensorflow as tf


def replica() -> tuple[int, object]:
    """Return (number of replicas, this replica's position); (1, 0) outside a replica context."""
    context = tf.distribute.get_replica_context()
    if context is None:
        return 1, 0
    return context.num_replicas_in_sync, context.replica_id_in_sync_group


def global_rows(count) -> tf.Tensor:
    """Return this replica's rows of the global batch, int64 [count]."""
    _, position = replica()
    offset = tf.cast(position, tf.int64) * tf.cast(count, tf.int64)
    return offset + tf.range(tf.cast(count, tf.int64))


def gather(tensors):
    """Concatenate a nest of tensors [b, ...] over the replicas, in their order; gradients flow back.

    Call it at the top level of the step: collective operations cannot run inside a `tf.while_loop` or `tf.cond`.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return tensors
    return tf.nest.map_structure(lambda tensor: context.all_gather(tensor, axis=0), tensors)


def global_sum(value: tf.Tensor) -> tf.Tensor:
    """Return the sum of a tensor over all replicas, on each of them."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def checksum(tensors) -> tf.Tensor:
    """Return one float32 scalar that depends on every value of a nest, so that all of it must be computed."""
    return tf.add_n([tf.reduce_sum(tf.cast(tensor, tf.float32)) for tensor in tf.nest.flatten(tensors)])
