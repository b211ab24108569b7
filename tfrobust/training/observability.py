"""Where a step's time goes: examples per second, and the share of each phase."""

from __future__ import annotations

import statistics
import time

import keras
import tensorflow as tf

from tfrobust.ops import distribution


class Throughput(keras.callbacks.Callback):
    """Writes `cost/examples_per_second` of every epoch for TensorBoard.

    It stays out of the logs: a history must be the same whenever and wherever it was trained.

    Args:
        directory: of the event files.
        batch_size: of the global batch.
    """

    def __init__(self, directory: str, batch_size: int):
        super().__init__()
        self.directory, self.batch_size = directory, batch_size
        self._writer = None

    def on_epoch_begin(self, epoch, logs=None):
        self._started, self._steps = time.monotonic(), 0

    def on_train_batch_end(self, batch, logs=None):
        self._steps += 1

    def on_epoch_end(self, epoch, logs=None):
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self.directory)
        speed = self._steps * self.batch_size / max(time.monotonic() - self._started, 1e-9)
        with self._writer.as_default():
            tf.summary.scalar("cost/examples_per_second", speed, step=epoch)
        self._writer.flush()

    def on_train_end(self, logs=None):
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def measure_phases(method, strategy: tf.distribute.Strategy, batch, step_seconds: float, rounds: int = 5) -> dict:
    """Seconds of each phase of a training step.

    Views, and views with the forward pass, are run on their own, with every assignment dropped, and subtracted.

    Args:
        method: built and compiled.
        strategy: the run's.
        batch: one (distributed) batch.
        step_seconds: of a whole step, the median of some.
        rounds: repetitions; medians count.

    Returns:
        `views` (adversaries and augmentations), `forward`, `backward_and_update`: seconds, none below 0.
    """

    def views_of(data):
        made = method.as_batch(data)
        context = method.context(made)
        return made, context, tf.nest.map_structure(tf.stop_gradient, method.make_views(made, context))

    def views(data):
        with keras.StatelessScope():
            return distribution.checksum(views_of(data)[2])

    def forward(data):
        with keras.StatelessScope():
            made, context, found = views_of(data)
            return distribution.checksum(method.loss_terms(found, made, context)[0])

    seconds = [_median(strategy, function, batch, rounds) for function in (views, forward)]
    return {
        "views": seconds[0],
        "forward": max(seconds[1] - seconds[0], 0.0),
        "backward_and_update": max(step_seconds - seconds[1], 0.0),
    }


def _median(strategy, function, batch, rounds: int) -> float:
    compiled = tf.function(lambda data: strategy.run(function, args=(data,)), autograph=False)
    taken = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        tf.nest.map_structure(lambda value: value, strategy.experimental_local_results(compiled(batch)))[0].numpy()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[1:])  # the first one traced
