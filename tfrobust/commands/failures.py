"""The end of a command: errors as one line, with the right exit code.

Exit codes: 0 done; 2 wrong usage, configuration or input; 3 refused by a gate, or not published without a decision; 75
stopped on request, run again to resume; 141 the reader of standard output has closed it, as `| head` does; 1 anything
else, with a traceback.
"""

import argparse
import contextlib
import errno
import io
import os
import re
import select
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable

from tfrobust.errors import Failure, InputError, RefusedByGate, StopRequested, cut

DONE, FAILED, WRONG_INPUT, REFUSED, STOPPED, UNREAD = 0, 1, 2, 3, 75, 128 + 13
_DISK_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_FILE_ERRORS = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)
_FILE_NUMBERS = (errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO)

Command = Callable[[argparse.Namespace], None]


def main(parser: argparse.ArgumentParser, run: Command, arguments: list[str] | None = None) -> int:
    """Parse the flags, run the command, and report how it ended."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if isinstance(sys.stdout, io.TextIOWrapper):  # as standard error does: a name must not end a run
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _ran(parser, run, arguments)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a failure can still be handled
    except BrokenPipeError:
        code = _unread()
    return _code_or_exit(code)


def _ran(parser: argparse.ArgumentParser, run: Command, arguments: list[str] | None) -> int:
    try:
        with _terminable():
            run(parser.parse_args(arguments))
    except SystemExit as error:  # --help
        return error.code if isinstance(error.code, int) else DONE
    except BaseException as error:
        if isinstance(error, BrokenPipeError) and _reader_gone(sys.stdout):
            raise
        return _ended_by(error)
    return DONE


def _unread() -> int:
    """Redirect closed output streams to /dev/null, so that the interpreter's flush at exit does not fail."""
    for stream in (sys.stdout, sys.stderr):
        if _reader_gone(stream):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    return UNREAD


def _reader_gone(stream) -> bool:
    try:
        waiting = select.poll()
        waiting.register(stream.fileno(), select.POLLOUT)
    except (AttributeError, OSError, ValueError):  # no such stream, or no file descriptor
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in waiting.poll(0))


def _code_or_exit(code: int) -> int:
    """Return the code, or end a cluster's worker here: TensorFlow's shutdown would wait for others, forever if gone."""
    cluster = sys.modules.get("tfrobust.training.cluster")
    if cluster is not None and cluster.has_joined():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


@contextlib.contextmanager
def _terminable():
    """Make SIGTERM end the command as Ctrl-C does; the training loop handles both itself while it runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _ended_by(error: BaseException) -> int:
    if isinstance(error, (KeyboardInterrupt, StopRequested)):
        _say(one_line(error) or "stopped on request; run the same command again to resume")
        return STOPPED
    if isinstance(error, RefusedByGate):
        _say(f"refused: {one_line(error)}")
        return REFUSED
    if _is_input_error(error):
        _say(f"error: {one_line(error)}")
        return WRONG_INPUT
    full = next((text for text in _DISK_FULL if text in str(error)), None)  # in messages of Python and of TensorFlow
    if full is not None and not isinstance(error, Failure):
        _say(f"error: {_of_disk(error, full)}")
        return FAILED
    if isinstance(error, Failure):
        _say(f"error: {one_line(error)}")
        return FAILED
    traceback.print_exception(error)
    return FAILED


def _of_disk(error: BaseException, reason: str) -> str:
    """Return a line about a full disk: the file if the error names one, the reason, and what to do."""
    error = _unwrapped(error)
    if isinstance(error, shutil.Error):  # a list of (source, target, reason)
        files = [str(entry[1]) for entry in error.args[0] if isinstance(entry, tuple)]
        file = files[0] if files else ""
    else:
        named = re.search(r"(/\S+?)[;,:]? " + re.escape(reason), str(error))  # as TensorFlow writes it
        file = getattr(error, "filename", None) or (named[1] if named else "")
    after = "; free some space, and run the same command again"
    return f"{f'{str(file)[-180:]}: ' if file else ''}{reason}{after}"


def _say(line: str) -> None:
    # A file's name or text may hold control characters that a terminal interprets.
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    print(cut(line), file=sys.stderr, flush=True)


def _is_input_error(error: BaseException) -> bool:
    """Return True for an InputError, and for a folder or file that cannot be read or written; others may be bugs."""
    error = _unwrapped(error)
    if isinstance(error, OSError):
        return isinstance(error, _FILE_ERRORS) or error.errno in _FILE_NUMBERS
    return isinstance(error, InputError)


def _unwrapped(error: BaseException) -> BaseException:
    """Return the original exception if gin raised a copy with a longer message, which has no errno or file name."""
    while "ExceptionProxy" in type(error).__init__.__qualname__ and error.__context__ is not None:
        error = error.__context__
    return error


def one_line(error: BaseException) -> str:
    """Return an error's message on one line, without the text that gin, Keras and TensorFlow add to it."""
    error = _unwrapped(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    text = text.split("\n  In call to configurable")[0].split("\n  No values supplied by Gin")[0]
    text = re.split(r"\n\s*\n\s*Arguments received by", text, maxsplit=1)[0]
    text = re.sub(r"^Exception encountered when calling .*?\n\n", "", text, flags=re.DOTALL)
    if text.startswith("in user code:"):
        text = re.sub(r"^\w+: ", "", text.rstrip().splitlines()[-1].strip())
    return cut(" ".join(text.split()))
