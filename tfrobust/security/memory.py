"""Limits on the memory of this process, relative to what it uses already."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

try:
    import resource
except ImportError:  # Windows
    resource = None

# Of the memory that is free, what a model may take.
_SHARE = 0.9
_CONTROL_GROUP = pathlib.Path("/sys/fs/cgroup")
# The kernel counts these entries of memory.stat as used, and frees them when a process needs memory.
_RECLAIMABLE = ("inactive_file", "active_file", "slab_reclaimable")


def used_bytes() -> int:
    """Return the bytes of this process that count for RLIMIT_DATA; 0 if the system does not tell.

    RLIMIT_AS would be no limit of memory: TensorFlow reserves addresses that it never uses.
    """
    return _number("/proc/self/status", "VmData")


def available() -> int | None:
    """Return the bytes that this machine, or its container, can still give; None if the system does not tell."""
    free = [_number("/proc/meminfo", "MemAvailable") or None, _of_container()]
    return min((amount for amount in free if amount is not None), default=None)


def bounded(growth: int) -> int:
    """Return a number of bytes, or the share of the free memory that a model may take if that is less."""
    free = available()
    return growth if free is None else min(growth, int(_SHARE * free))


def limit(growth: int) -> None:
    """Limit the memory that this process may write to: to what it uses now, and `growth` more bytes."""
    if resource is None or not used_bytes():
        return
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    bound = used_bytes() + growth
    resource.setrlimit(resource.RLIMIT_DATA, (bound if most == resource.RLIM_INFINITY else min(bound, most), most))


@contextlib.contextmanager
def limited(growth: int) -> Iterator[None]:
    """Limit the memory of this process as `limit` does, while a model of someone else is evaluated."""
    if resource is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit(growth)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _number(path: str, name: str) -> int:
    return int(_entries(pathlib.Path(path)).get(f"{name}:", 0)) * 1024


def _entries(path: pathlib.Path) -> dict[str, str]:
    """Return the first two words of each line of a file; {} if it cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {words[0]: words[1] for line in lines if len(words := line.split()) > 1}


def _of_container() -> int | None:
    """Return the bytes left in the control group of this process; None if it has no limit."""
    try:
        most, now = ((_CONTROL_GROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        entries = _entries(_CONTROL_GROUP / "memory.stat")
        used = int(now) - sum(int(entries.get(name, 0)) for name in _RECLAIMABLE)
        return max(0, int(most) - max(0, used))
    except (OSError, ValueError):  # another version, or "max"
        return None
