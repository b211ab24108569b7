"""Standard output and error: one live bar, or a plain line from time to time if it is no terminal; quiet C++ code."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator

# Seconds until a bar appears (shorter tasks show none), and between plain lines about one task.
PATIENCE, PLAIN_INTERVAL = 1.0, 60.0


class Live:
    """A progress bar below the lines that `print` writes; use it in a `with` statement, or call `close`.

    Another text starts another bar only after `close`, which removes the bar.
    """

    def __init__(self):
        self._bar, self._task, self._started = None, None, None

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
            self._started, self._due = now, now + (PATIENCE if _draws() else PLAIN_INTERVAL)
        if self._bar is not None:
            self._bar.update(self._task, description=text, completed=done, total=total)
        elif now >= self._due and done < total:
            if _draws():
                self._begin(text, done, total)
            else:
                self._due = now + PLAIN_INTERVAL
                print(f"{text}  {100 * done / total:.0f} % after {duration(self.seconds)}", flush=True)

    def close(self) -> None:
        """Remove the bar; the next `show` starts another one."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._started = None

    def _begin(self, text: str, done: int, total: int) -> None:
        from rich import progress

        columns = (
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(20),
            progress.TaskProgressColumn(),
            progress.TimeRemainingColumn(),
        )
        # Transient: the bar leaves no line behind. Lines printed meanwhile appear above it.
        self._bar = progress.Progress(*columns, transient=True, refresh_per_second=4)
        self._task = self._bar.add_task(text, completed=done, total=total)
        self._bar.start()


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
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


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
