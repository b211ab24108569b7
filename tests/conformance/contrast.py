"""NT-Xent of a contrastive method on projections given by hand."""

import numpy as np
import tensorflow as tf

from conformance import methods as battery
from tfrobust.models.heads.linear import LinearHead
from tfrobust.ops import randomness
from tfrobust.structs import Batch, Context

COUNT = 7
LABELS = np.array([0, 1, 1, 2, 0, 1, 3], np.int32)  # 2 and 3 have no other image of their class


def projections(seed=0, views=2):
    return np.random.default_rng(seed).normal(size=(views, COUNT, 5)).astype(np.float32)


def contrast(cls, vectors, *, labels=LABELS, features=None, **keywords):
    method = cls(battery.encoder(), LinearHead(4), **keywords)
    rows = tf.range(COUNT, dtype=tf.int64)
    batch = Batch(tf.zeros([COUNT, *battery.IMAGE_SHAPE]), None if labels is None else tf.constant(labels), rows, {})
    context = Context(randomness.make_key(0), tf.constant(0, tf.int64), rows)
    return method.contrast([tf.constant(z) for z in vectors], context, batch, features=features)
