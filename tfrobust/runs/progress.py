"""Progress bars for long work other than training."""

from __future__ import annotations

import time

import keras

# Seconds until a bar appears; shorter tasks show none.
PATIENCE = 1.0


class ConsoleProgress:
    """One Keras progress bar, with the remaining time, per task that takes a while.

    Call it as (task, done, total).
    """

    def __init__(self):
        self._task, self._started, self._bar = None, 0.0, None

    def __call__(self, task: str, done: int, total: int) -> None:
        """Show `done` of `total` steps of a task; the bar ends at `total`."""
        if task != self._task:
            self._task, self._started, self._bar = task, time.monotonic(), None
        if self._bar is None and time.monotonic() - self._started >= PATIENCE:
            print(task)
            self._bar = keras.utils.Progbar(total, unit_name="step")
        if self._bar is not None:
            self._bar.update(min(done, total), finalize=done >= total)
        if done >= total:
            self._task = None
