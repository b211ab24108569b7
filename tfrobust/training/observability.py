"""Training speed: examples per second, and the time of each phase of a step."""

from __future__ import annotations

import statistics
import time

import keras
import tensorflow as tf

from tfrobust.ops import distribution


class Throughput(keras.callbacks.Callback):
    """A callback that writes `cost/examples_per_second` of every epoch for TensorBoard.

    The time ends with the last step, so that validation and other work at the end of an epoch do not count. The value
    is not added to the logs, because a history must not depend on when and where it was trained.

    Args:
        directory: folder of the event files.
        batch_size: size of the global batch.
    """

    def __init__(self, directory: str, batch_size: int):
        super().__init__()
        self.directory, self.batch_size = directory, batch_size
        self._writer = None

    def on_epoch_begin(self, epoch, logs=None):
        """Start the clock."""
        self._started = self._ended = time.monotonic()
        self._steps = 0

    def on_train_batch_end(self, batch, logs=None):
        """Count the step, and stop the clock."""
        self._steps += 1
        self._ended = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        """Write the epoch's examples per second."""
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self.directory)
        speed = self._steps * self.batch_size / max(self._ended - self._started, 1e-9)
        with self._writer.as_default():
            tf.summary.scalar("cost/examples_per_second", speed, step=epoch)
        self._writer.flush()

    def on_train_end(self, logs=None):
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def measure_phases(method, strategy: tf.distribute.Strategy, batch, step_seconds: float, rounds: int = 5) -> dict:
    """Measure the seconds of each phase of a training step.

    Views, and views with the forward pass, are run separately, with every assignment dropped, and subtracted.

    Args:
        method: built and compiled.
        strategy: the run's strategy.
        batch: one (distributed) batch.
        step_seconds: median time of a whole step.
        rounds: number of repetitions, of which the median is taken.

    Returns:
        `views` (adversaries and augmentations), `forward`, `backward_and_update`: seconds, none below 0.
    """

    def views_of(data):
        converted = method.as_batch(data)
        context = method.context(converted)
        return converted, context, tf.nest.map_structure(tf.stop_gradient, method.make_views(converted, context))

    def views(data):
        with keras.StatelessScope():
            return distribution.checksum(views_of(data)[2])

    def forward(data):
        with keras.StatelessScope():
            converted, context, inputs = views_of(data)
            return distribution.checksum(method.loss_terms(inputs, converted, context)[0])

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
    return statistics.median(taken[1:])  # the first call traces
