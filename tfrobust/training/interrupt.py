"""Stopping on request: a signal ends training after the current step, with everything saved."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class StopFlag:
    """A flag that a signal sets and the training loop reads between steps; `requested` is the signal's name."""

    def __init__(self):
        self.requested: str | None = None


@contextlib.contextmanager
def heard_between_steps() -> Iterator[StopFlag]:
    """Make SIGTERM and SIGINT set the yielded flag instead of ending the process, until the context exits."""
    flag = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag  # Python delivers signals to the main thread only.
        return

    def remember(number, _frame):
        flag.requested = signal.Signals(number).name

    before = {number: signal.signal(number, remember) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
