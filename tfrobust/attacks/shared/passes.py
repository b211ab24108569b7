"""Count the forward and backward passes of a model while an attack runs, where they are computed: inside the graphs."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf


class PassCounter:
    """Counter of the rows that a model's forward and backward passes compute, in any graph that calls it.

    A forward pass is counted where the model is called, a backward pass where a gradient reaches its input: per class,
    if a tape is used once per class. So the count follows what was computed, also in loops and branches.
    """

    def __init__(self):
        with tf.device("CPU"):
            self._rows = [tf.Variable(0, trainable=False, dtype=tf.int64) for _ in range(2)]
        self._read = np.zeros(2, np.int64)

    def counted(self, predict: Callable) -> Callable:
        """Return the same function of inputs [b, ...], whose passes are counted."""
        forward, backward = self._rows

        @tf.custom_gradient
        def enter(points):
            rows = tf.shape(points, tf.int64)[0]
            forward.assign_add(rows)

            def gradient(upstream):
                backward.assign_add(rows)
                return upstream

            return tf.identity(points), gradient

        return lambda points: predict(enter(points))

    def new(self) -> np.ndarray:
        """Return the rows since the last call: int64 [2], forward and backward."""
        before, self._read = self._read, np.array([rows.numpy() for rows in self._rows])
        return self._read - before
