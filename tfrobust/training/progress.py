"""Progress bars of long work that is not training."""

from __future__ import annotations

import time

import keras

# Work that is done before this many seconds are over needs no bar.
PATIENCE = 1.0


class ConsoleProgress:
    """One Keras progress bar per task that takes a while, with the time left; called as (task, done, total)."""

    def __init__(self):
        self._task, self._started, self._bar = None, 0.0, None

    def __call__(self, task: str, done: int, total: int) -> None:
        if task != self._task:
            self._task, self._started, self._bar = task, time.monotonic(), None
        if self._bar is None and time.monotonic() - self._started >= PATIENCE:
            print(task)
            self._bar = keras.utils.Progbar(total, unit_name="step")
        if self._bar is not None:
            self._bar.update(min(done, total), finalize=done >= total)
        if done >= total:
            self._task = None
