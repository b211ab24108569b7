"""Two walls around a process that calls a model of someone else: a hook of Python's, and a rule set of the kernel.

The hook sees what Python does: files, connections, other processes. It does not see what TensorFlow does in C++. Where
Linux has Landlock, the kernel refuses the same things to both.
"""

from __future__ import annotations

import ctypes
import os
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterable

# Events of Python that a model has no reason to cause, by their beginnings.
_REFUSED = (
    *("socket.", "ssl.", "urllib.", "http.", "ftplib.", "smtplib.", "imaplib.", "poplib.", "nntplib.", "telnetlib."),
    *(
        "subprocess.",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.spawn",
        "os.fork",
        "os.startfile",
        "pty.",
        "os.kill",
    ),
    *("pty.", "webbrowser.", "syslog.", "winreg.", "ctypes.seh", "sys.remote_exec"),
)
# Event -> positions of its paths that it changes.
_CHANGING = {
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime"), (0,)),
    **dict.fromkeys(("os.setxattr", "os.removexattr"), (0,)),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), (0, 1)),
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
# What the C library and TensorFlow read about the machine.
_MACHINE = ("/proc", "/sys", "/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo", "/usr/lib", "/lib", "/lib64")


class Refused(PermissionError):
    """A model did what no model needs."""


class Hook:
    """Audit hook that refuses connections, other processes, and files outside of some folders.

    Args:
        readable: files and folders that may be read.
        writable: folders that may be written to, and read.

    Attributes:
        refused: what was refused, one clause each. A library may catch the exception, so that its caller never sees it.
    """

    def __init__(self, readable: Iterable[str], writable: Iterable[str]):
        self._writable = tuple(map(os.path.realpath, writable))
        self._readable = (*map(os.path.realpath, readable), *self._writable, *map(os.path.realpath, _MACHINE))
        self.refused: list[str] = []
        self._inside = False

    def __call__(self, event: str, arguments: tuple) -> None:
        """Raise Refused for an event that no model needs."""
        if self._inside:  # os.path.realpath raises events of its own
            return
        self._inside = True
        try:
            fault = self._fault(event, arguments)
        finally:
            self._inside = False
        if fault:
            self.refused.append(fault)
            raise Refused(fault)

    def _fault(self, event: str, arguments: tuple) -> str:
        if event.startswith(_REFUSED):
            return f"it calls {event}"
        if event == "open":
            path, _, flags = arguments
            return self._file_fault(path, bool((flags or 0) & _WRITING))
        if event == "ctypes.dlopen" and arguments[0] and "/" in os.fsdecode(arguments[0]):
            return self._file_fault(arguments[0], False)
        faults = (self._file_fault(arguments[position], True) for position in _CHANGING.get(event, ()))
        return next(filter(None, faults), "")

    def _file_fault(self, path, writes: bool) -> str:
        if isinstance(path, int) or path is None:
            return ""  # it is open already
        target = os.path.realpath(os.fsdecode(path))
        if target in _DEVICES or within(target, self._writable if writes else self._readable):
            return ""
        return f"it {'writes to' if writes else 'reads'} {os.fsdecode(path)[-60:]}"


def within(path: str, folders: Iterable[str]) -> bool:
    """Return True if a real path is one of some real paths, or below one."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def installation() -> tuple[str, ...]:
    """Return the folders of Python and of the packages that this process can import."""
    packages = (*site.getsitepackages(), site.getusersitepackages(), *sysconfig.get_paths().values())
    imported = {os.path.dirname(os.path.dirname(__file__))}  # this package, which may lie in a checkout
    loaded = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    imported.update(os.path.dirname(path) for path in loaded if path)
    # AutoGraph writes the modules that it makes into the temporary folder itself, whose other files are not Python's.
    imported -= {"", tempfile.gettempdir(), os.path.realpath(tempfile.gettempdir())}
    return tuple(sorted({sys.prefix, sys.base_prefix, *packages, *imported}))


def raise_walls(model: str, temporary: str) -> Hook:
    """Let this process read its installation and a model only, and write to a temporary folder only, until it ends.

    Threads that exist already are bound by the hook, but not by the kernel.
    """
    readable = (model, *installation())
    _restrict(readable, (temporary,))
    hook = Hook(readable, (temporary,))
    sys.dont_write_bytecode = True
    sys.addaudithook(hook)
    return hook


# ------------------------------------------------------------------------------------------------- Linux's Landlock

# Numbers of linux/landlock.h and of the system calls, which are those of every processor.
_CREATE, _ADD, _RESTRICT, _NO_NEW_PRIVILEGES = 444, 445, 446, 38
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1, 2, 4, 8
# The number of rights by version; a right that the kernel does not know is an error.
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_TCP = 0b11  # bind, connect; from version 4 on
_VERSION_FLAG, _PATH_BENEATH = 1, 1


class _RuleSet(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; 0 without one."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, ctypes.CDLL(None).syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG)))


def _restrict(readable: Iterable[str], writable: Iterable[str]) -> bool:
    """Let the kernel restrict this thread and those it starts; return False without Landlock."""
    version = landlock_version()
    if not version:
        return False
    call, every = ctypes.CDLL(None).syscall, (1 << _RIGHTS[min(version, max(_RIGHTS))]) - 1
    rules = _RuleSet(every, _TCP if version >= 4 else 0)
    held = call(_CREATE, ctypes.byref(rules), ctypes.c_size_t(16 if version >= 4 else 8), ctypes.c_uint32(0))
    if held < 0:
        return False
    for paths, rights in (
        ((*readable, *_MACHINE), _READ_FILE | _READ_FOLDER),
        (_DEVICES, _READ_FILE | _WRITE_FILE),
        (writable, every & ~_EXECUTE),
    ):
        for path in filter(os.path.exists, paths):
            _allow(call, held, path, rights)
    ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    done = call(_RESTRICT, ctypes.c_int(held), ctypes.c_uint32(0)) == 0
    os.close(held)
    return done


def _allow(call, held: int, path: str, rights: int) -> None:
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    of_files = _EXECUTE | _WRITE_FILE | _READ_FILE
    rule = _PathBeneath(rights if os.path.isdir(path) else rights & of_files, opened)
    call(_ADD, ctypes.c_int(held), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0))
    os.close(opened)
