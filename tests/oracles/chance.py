"""A stochastic model whose errors do not depend on its images, and a deterministic one of the same images."""

import numpy as np
import tensorflow as tf

COUNT = 600
IMAGES = np.random.default_rng(0).uniform(0.3, 0.7, [COUNT, 2, 2, 1]).astype(np.float32)
LABELS = np.zeros(COUNT, np.int32)


def wrong_by_chance(images):
    """Misclassified with probability 0.3, whatever the image; the gradient is 0, so that attacks stay at the image."""
    wrong = tf.cast(tf.random.uniform([tf.shape(images)[0]]) < 0.3, tf.float32)
    return tf.stack([tf.fill(tf.shape(wrong), 0.5), wrong], axis=-1) * 9 + 0.0 * tf.reduce_sum(images)


def fixed(images):
    """The brighter of two pixels."""
    return tf.stack([images[:, 0, 0, 0], images[:, 1, 1, 0]], axis=-1) * 9


def deviation(share):
    """Four standard deviations of the share of COUNT draws, and of its rounding."""
    return 4 * np.sqrt(share * (1 - share) / COUNT) + 1e-3
