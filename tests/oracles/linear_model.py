"""A two-class linear model whose robust accuracy is known in closed form.

logits = (0, w.x + c). With y = +-1 an image x is right everywhere in the Linf ball, the box being far away,
exactly if y (w.x + c) > epsilon |w|_1 (dual norm; |w|_2 for L2).
"""

import math

import numpy as np
import tensorflow as tf

SHAPE = (3, 4, 1)


def make(count=40, seed=0):
    """(predict, images [n, 3, 4, 1] near 1/2, labels, signed margins y (w.x + c), w)."""
    generator = np.random.default_rng(seed)
    weights = generator.normal(size=12).astype(np.float32)
    images = generator.uniform(0.4, 0.6, (count, *SHAPE)).astype(np.float32)
    scores = images.reshape(count, -1).astype(np.float64) @ weights.astype(np.float64)
    bias = np.float32(-np.median(scores))
    labels = (scores + bias > 0).astype(np.int32)
    labels[:3] = 1 - labels[:3]
    margins = (2 * labels - 1) * (scores + bias)
    kernel = tf.constant(weights[:, None])

    def predict(pixels):
        score = tf.matmul(tf.reshape(pixels, [-1, 12]), kernel) + bias
        return tf.concat([tf.zeros_like(score), score], axis=-1)

    return predict, images, labels, margins, weights


def sparse(seed=0, quantile=0.5, count=20, shape=(4, 4, 1)):
    """Return a model of unequal weights, images of which a third of the values are 0, their labels, w, and c."""
    generator, size = np.random.default_rng(seed), math.prod(shape)
    weights = generator.standard_normal(size) * np.exp(0.5 * generator.standard_normal(size))
    is_zero = generator.random([count, size]) < 0.3
    pixels = np.where(is_zero, 0.0, generator.uniform(0, 1, [count, size])).astype(np.float32)
    bias = -np.quantile(pixels @ weights, quantile)

    def predict(images):
        score = tf.linalg.matvec(tf.reshape(images, [-1, size]), tf.constant(weights, tf.float32)) + bias
        return tf.stack([tf.zeros_like(score), score], axis=-1)

    return predict, pixels.reshape(count, *shape), (pixels @ weights + bias > 0).astype(np.int32), weights, bias


@tf.custom_gradient
def shielded(images):
    """Turn gradients around exactly at images on a grid of 1/64: a shield against single steps from them."""
    clean = tf.abs(images * 64 - tf.round(images * 64)) < 1e-3
    return tf.identity(images), lambda upstream: tf.where(clean, -upstream, upstream)
