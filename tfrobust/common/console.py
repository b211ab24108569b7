"""Standard output and error: a live bar, in notebooks too, else a plain line from time to time; quiet C++ code."""

from __future__ import annotations

import contextlib
import html
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Protocol

# Seconds until a bar appears (shorter tasks show none), and between plain lines about one task.
PATIENCE, PLAIN_INTERVAL = 1.0, 60.0


class _Bar(Protocol):
    """The interface of a bar that `Live` shows: rich's, or that of a notebook."""

    def update(self, task, /, *, description: str, completed: int, total: int) -> None: ...

    def stop(self) -> None: ...


class Live:
    """A progress bar below the lines that `print` writes; use it in a `with` statement, or call `close`.

    Another text starts another bar only after `close`, which removes the bar.

    Args:
        interval: seconds between plain lines, without any bar, for use inside the output of others; None for a bar.
    """

    def __init__(self, interval: float | None = None):
        self._bar: _Bar | None = None
        self._task = None
        self._started: float | None = None
        self._interval = interval

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @property
    def seconds(self) -> float:
        """Seconds since the first `show` after the last `close`; 0.0 before it."""
        return 0.0 if self._started is None else time.monotonic() - self._started

    def show(self, text: str, done: int, total: int) -> None:
        """Show that `done` of `total` steps are done.

        Args:
            text: left of the bar, at most about 50 characters.
            done: 0 <= done <= total.
            total: >= 1.
        """
        now = time.monotonic()
        if self._started is None:
            self._started, self._due = now, now + (PATIENCE if self._draws() else self._pause)
        if self._bar is not None:
            self._bar.update(self._task, description=text, completed=done, total=total)
        elif now >= self._due and done < total:
            if self._draws():
                self._begin(text, done, total)
            else:
                self._due = now + self._pause
                print(f"{text}  {100 * done / total:.0f} % after {duration(self.seconds)}", flush=True)

    def close(self) -> None:
        """Remove the bar; the next `show` starts another one."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._started = None

    @property
    def _pause(self) -> float:
        return PLAIN_INTERVAL if self._interval is None else self._interval

    def _draws(self) -> bool:
        return self._interval is None and (_draws() or in_notebook())

    def _begin(self, text: str, done: int, total: int) -> None:
        if in_notebook():
            self._bar = _NotebookBar()
            self._bar.update(None, description=text, completed=done, total=total)
            return
        from rich import progress

        columns = (
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(20),
            progress.TaskProgressColumn(),
            progress.TimeRemainingColumn(),
        )
        # Transient: the bar leaves no line behind. Lines printed meanwhile appear above it.
        bar = progress.Progress(*columns, transient=True, refresh_per_second=4)
        self._task = bar.add_task(text, completed=done, total=total)
        bar.start()
        self._bar = bar


class _NotebookBar:
    """A bar in the output of a notebook's cell, with the interface of rich's, which needs widgets there."""

    def __init__(self):
        from IPython import display

        self._html, self._begun, self._due = display.HTML, time.monotonic(), 0.0
        self._handle = display.display(display.HTML(""), display_id=True)

    def update(self, _, *, description: str, completed: int, total: int) -> None:
        """Draw the bar, at most four times a second."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + 0.25
            seconds = (now - self._begun) * (total - completed) / max(completed, 1)
            rest = f", {duration(seconds)} left" if completed and seconds >= 1 else ""
            bar = f'<progress value="{completed}" max="{total}"></progress>'
            text = html.escape(f"{description}  {100 * completed / total:.0f} %{rest}")
            self._handle.update(self._html(f"{bar} <span>{text}</span>"))

    def stop(self) -> None:
        """Remove the bar."""
        self._handle.update(self._html(""))


def in_notebook() -> bool:
    """Return True if the code runs in a notebook: Jupyter, Colab, or that of an editor."""
    module = sys.modules.get("IPython")
    return module is not None and hasattr(module.get_ipython(), "kernel")


class Heartbeat:
    """Prints a line from time to time while a task reports nothing: "FeatureMap: 30 s so far".

    Use it in a `with` statement.

    Args:
        task: its name.
        interval: seconds of silence before each line; None prints nothing.
    """

    def __init__(self, task: str, interval: float | None = PLAIN_INTERVAL / 2):
        self._task, self._ended = task, threading.Event()
        self._thread = None
        if interval is not None:
            self._thread = threading.Thread(target=self._watch, args=(interval,), daemon=True)
        self._began = self._reported = time.monotonic()

    def __enter__(self) -> Heartbeat:
        self.begin(self._task)
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._ended.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()

    def begin(self, task: str) -> None:
        """Note that a task begins."""
        self._task, self._began = task, time.monotonic()
        self.reported()

    def reported(self) -> None:
        """Note that the task has reported something itself."""
        self._reported = time.monotonic()

    def _watch(self, interval: float) -> None:
        while not self._ended.wait(interval / 4):
            now = time.monotonic()
            if self._task and now - self._reported >= interval:
                print(f"{self._task}: {duration(now - self._began)} so far", flush=True)
                self._reported = now


def _draws() -> bool:
    """Return True if standard output is a terminal that shows the characters of a bar."""
    if sys.stdout is None:  # started without one
        return False
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return sys.stdout.isatty() and encoding == "utf8" and os.environ.get("TERM") not in ("dumb", "unknown")


def duration(seconds: float) -> str:
    """Format seconds for display: "0.42 s", "41 s", "2 min 5 s", "3 h 20 min"."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60} s"
    return f"{total // 3600} h {total % 3600 // 60} min"


@contextlib.contextmanager
def quiet_stderr(*, after_errors: bool = True) -> Iterator[None]:
    """Hold back what C++ code writes to standard error in the block.

    Args:
        after_errors: True to show it if the block raises.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        try:
            saved = os.dup(2)
        except OSError:  # started without a standard error
            yield
            return
        os.dup2(held.fileno(), 2)
        try:
            yield
        except Exception:
            os.dup2(saved, 2)
            held.seek(0)
            sys.stderr.write(held.read().decode(errors="replace") * after_errors)
            raise
        finally:
            os.dup2(saved, 2)
            os.close(saved)
