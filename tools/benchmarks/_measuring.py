"""Shared parts of the benchmarks: what they print, and their clocks. Any side can import it: it needs no library."""

import os
import shlex
import sys
import time

WARM_UP = 2


def announce(tool: str, arguments: list[str] | None, processors: str = "") -> None:
    """Print the command line of a tool and, with the processors that it uses, the load of the machine."""
    print(shlex.join(["python", f"tools/benchmarks/{tool}.py", *(sys.argv[1:] if arguments is None else arguments)]))
    if processors:
        load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
        print(f"{processors}, load average {load} before the start")


def clocks() -> tuple[float, float]:
    """Return wall time, and processor time of all threads, which other processes disturb less."""
    return time.perf_counter(), time.process_time()


def since(began: tuple[float, float]) -> tuple[float, float]:
    """Return the time passed on both clocks."""
    return tuple(now - then for now, then in zip(clocks(), began, strict=True))


def table(rows: list[tuple[str, ...]]) -> str:
    """Align rows of text: the first column to the left, numbers to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for first, *numbers in rows:
        cells = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(numbers, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def progress(text: str) -> None:
    """Show the progress on one line of a terminal, which is overwritten."""
    if sys.stderr.isatty():
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
