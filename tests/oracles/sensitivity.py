"""Utility and sensitivity maps by the whole Jacobian, where the library takes projections chunk by chunk."""

import tensorflow as tf


def sensitivity(embed, images):
    """|d phi(x_i) / d x_ij|_2 of each input value; images float32 [b, h, w, c]."""
    with tf.GradientTape() as tape:
        tape.watch(images)
        features = embed(images)
    return tf.norm(tape.batch_jacobian(features, images), axis=1)


def utility(predict, images, labels):
    """|d CE(x_i, y_i) / d x_ij| of each input value."""
    with tf.GradientTape() as tape:
        tape.watch(images)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, predict(images))
    return tf.abs(tape.gradient(loss, images))
