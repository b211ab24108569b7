"""Continue a command in a process of its own, so that a crash of TensorFlow ends in one line.

A model of someone else is rehearsed before it is loaded (`security.rehearsal`), but other examples may still crash it.
"""

import ctypes
import os
import signal
import sys
import threading

from tfrobust.errors import InputError

# How a crash ends a process.
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
_WATCHED = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)
_DIES_WITH_PARENT = 1  # of Linux's prctl
# A copy of a process lacks the threads that these packages start.
_WITH_THREADS = ("tensorflow", "numpy")


def continue_in_child(model: str) -> None:
    """Return in a copy of this process; this one waits for it, and ends as it ends.

    Nothing is copied where that could fail: not on Linux, or with threads.

    Raises:
        InputError: in this process, if the copy crashed.
        SystemExit: in this process, with the exit code of the copy.
    """
    threads = threading.active_count() > 1 or threading.current_thread() is not threading.main_thread()
    if sys.platform != "linux" or threads or any(name in sys.modules for name in _WITH_THREADS):
        return
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    parent, blocked = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)  # or a terminal's Ctrl-C would reach both, and this process twice
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before that
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        return
    try:
        code = _waited(child)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    _end_as(code, model)


def _waited(child: int) -> int:
    """Wait for a process, and pass signals on to it; return its exit code, or the negative number of a signal."""
    while True:
        number = signal.sigwait(_WATCHED)
        if number == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
        elif number == signal.SIGTSTP:
            os.kill(child, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(child, signal.SIGCONT)
        else:
            os.kill(child, number)


def _end_as(code: int, model: str) -> None:
    if code >= 0:
        raise SystemExit(code)
    name = signal.Signals(-code)
    if name not in _CRASHES:
        os.kill(os.getpid(), name)  # such as for a lack of memory
    fault = f"{model[-100:]} crashes TensorFlow when it is called ({name.name})"
    raise InputError(f"{fault}. Export it again, or get an unchanged copy.")
