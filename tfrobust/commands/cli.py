"""Shared parts of the commands: flags, the gin configuration, and errors as one line with the right exit code.

Exit codes: 0 done; 2 wrong usage, configuration or input; 3 refused by a gate; 75 stopped on request, run again to
resume; 141 the reader of standard output has closed it, as `| head` does; 1 anything else, with a traceback. TensorFlow
is imported after the flags and the gin files have been read, so that `--help` and most errors appear at once.
"""

import argparse
import contextlib
import errno
import importlib
import os
import re
import select
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from types import TracebackType

from tfrobust.commands.configuration import binding as checks
from tfrobust.commands.configuration import completion, files, registry
from tfrobust.errors import InputError, RefusedByGate, StopRequested

DONE, FAILED, WRONG_INPUT, REFUSED, STOPPED, UNREAD = 0, 1, 2, 3, 75, 128 + 13
KNOBS_FILE = "base/knobs.gin"
_LONGEST_LINE = 300
_DISK_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_FILE_ERRORS = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)
_FILE_NUMBERS = (errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO)

# Failures that are no bugs: one line says what to do, and a traceback would hide it.
_ONE_LINE_FAILURES = (
    ("tfrobust.training.loop", "TrainingDiverged"),
    ("tfrobust.training.cluster", "WorkerLost"),
    ("tfrobust.training.checkpoint", "CheckpointNotWritten"),
    ("tfrobust.serving.client.transport", "ServerUnavailable"),
)

_registry: registry.Registry | None = None


# --------------------------------------------------------------------------------------------------- flags


class PrintEnvironment(argparse.Action):
    """The action of `--version`: print the environment on one line and exit, or store a value if one is given."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Store the value, or print the environment and exit."""
        if values:
            setattr(namespace, self.dest, values)
            return
        from tfrobust.common import environment

        with quiet_stderr():
            line = environment.line()
        print(line)
        parser.exit()


class PrintCompletion(argparse.Action):
    """The action of `--completion=SHELL`: print the script for the shell and exit."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Print the script and exit."""
        print(completion.script(parser, values), end="")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations, whose errors are one line with the nearest flag."""

    def __init__(self, command: str, description: str):
        super().__init__(prog=f"python -m tfrobust.{command}", description=description, allow_abbrev=False)

    def parse_args(self, args=None, namespace=None):
        """Parse the flags, with `--version` and `--completion` added."""
        known, absent = self._option_string_actions, {"default": argparse.SUPPRESS}
        if "--version" not in known:
            what = "print versions, machine and devices on one line, for a bug report"
            self.add_argument("--version", action=PrintEnvironment, nargs=0, help=what, **absent)
        if "--completion" not in known:
            what = 'print shell completion: eval "$(... --completion=bash)"'
            self.add_argument("--completion", action=PrintCompletion, choices=completion.SHELLS, help=what, **absent)
        for argument in sys.argv[1:] if args is None else args:
            # TensorFlow accepts only UTF-8 paths, and fails on others with an unclear error.
            if not argument.isascii() and argument != argument.encode(errors="replace").decode():
                raise InputError(f"the argument {ascii(argument)[:100]} is not UTF-8")
        return self.parse_intermixed_args(args, namespace)  # paths may precede and follow flags

    def error(self, message: str):
        """Raise InputError with the message of argparse, for an unknown flag with the nearest one."""
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown:
            flag = unknown.group(1).partition("=")[0]
            known = [option for action in self._actions for option in action.option_strings]
            near = files.nearest(flag, known, count=1) or ", ".join(known)
            message = f"there is no flag {files.shown(flag)}; nearest: {near}"
        raise InputError(message)

    def add_gin_flags(self, example: str) -> None:
        """Add --gin_file, --gin_param and --gin_import, each of which may be repeated."""
        self.add_argument(
            "--gin_file",
            action="append",
            required=True,
            metavar="FILE",
            help=f"gin file, such as {example}; later files override earlier ones",
        )
        self.add_argument(
            "--gin_param",
            action="append",
            default=[],
            metavar="'NAME=VALUE'",
            help='one value, overrides the files, such as --gin_param="EPSILON=0.1"',
        )
        self.add_gin_import()

    def add_gin_import(self) -> None:
        """Add --gin_import, which may be repeated."""
        self.add_argument(
            "--gin_import",
            action="append",
            default=[],
            metavar="PKG.MOD",
            help="a module of your own whose classes and functions the gin files may name",
        )


def count(text: str) -> int:
    """Parse a flag's value as an integer of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text[:18]) < 1:
        raise argparse.ArgumentTypeError(f"{files.shown(text, 40)} is not a whole number of at least 1")
    return int(text[:18])


# ----------------------------------------------------------------------------------------------------- gin


def prepare(flags: argparse.Namespace) -> str | None:
    """Read, check and bind the gin configuration that the flags name.

    Args:
        flags: with `gin_file`, `gin_param`, `gin_import`.

    Returns:
        As `configure`.

    Raises:
        InputError: any mistake in it.
    """
    return configure(flags.gin_file, flags.gin_param, flags.gin_import)


def configure(paths: list[str], params=(), imports=(), *, partial: bool = False, defaults: bool = True) -> str | None:
    """Read, check and bind the gin configuration of lists of files and parameters.

    NAME is by default the stems of the files, joined by `_`.

    Args:
        paths: the values of --gin_file.
        params: the values of --gin_param.
        imports: the values of --gin_import.
        partial: True if the files are only a part of a configuration: they are checked, not bound, and what they lack
            may come from others.
        defaults: True to read the knobs' defaults first.

    Returns:
        NAME if no file sets it, else None.

    Raises:
        InputError: any mistake in it.
    """
    global _registry
    bindings = files.read(paths, params, KNOBS_FILE if defaults else None)
    name = checks.unnamed(bindings, paths)
    bindings += [name] if name else []
    macros = checks.check_macros(bindings, partial)
    with quiet_stderr():
        importlib.import_module("keras")
        # Makes TensorFlow log a missing GPU here, where it is held back.
        importlib.import_module("tensorflow").config.list_physical_devices()
    _registry = registry.collect(imports)
    resolved = checks.check_objects(bindings, macros, _registry, partial)
    if not partial:
        checks.bind(resolved, _registry)
    return name.value if name else None


def call(name: str, **runtime):
    """Call `tfrobust.runs.experiment.<name>` with its gin bindings and the flags' arguments.

    Args:
        name: function of `tfrobust.runs.experiment`.
        **runtime: arguments that come from flags; a gin file cannot set them.

    Raises:
        InputError: an argument is missing, or gin sets one that belongs to a flag.
    """
    import gin

    complete = f"tfrobust.runs.experiment.{name}"
    checks.register(complete, _registry)
    bound = set(gin.get_bindings(complete, resolve_references=False))
    for argument in sorted(bound & set(runtime)):
        raise InputError(f"experiment.{name}.{argument} is not set in gin but by the command's flags.")
    checks.missing_arguments(complete, bound | set(runtime), _registry)
    return gin.get_configurable(complete)(**runtime)


def operative_text() -> str:
    """Return the arguments that the objects built so far received, including defaults, as gin text."""
    import gin

    return gin.operative_config_str(max_line_length=100)


@contextlib.contextmanager
def quiet_stderr():
    """Hold back what TensorFlow's C++ code writes to standard error during its import; show it if the import fails."""
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
            sys.stderr.write(held.read().decode(errors="replace"))
            raise
        finally:
            os.dup2(saved, 2)
            os.close(saved)


# -------------------------------------------------------------------------------------------------- errors


def main(parser: Parser, run: Callable[[argparse.Namespace], None], arguments: list[str] | None = None) -> int:
    """Parse the flags, run the command, and report how it ended.

    Args:
        parser: the command's flags.
        run: the command.
        arguments: instead of sys.argv[1:].

    Returns:
        The exit code.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        code = _ran(parser, run, arguments)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a failure can still be handled
    except BrokenPipeError:
        code = _unread()
    return _left(code)


def _ran(parser: Parser, run: Callable[[argparse.Namespace], None], arguments: list[str] | None) -> int:
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


def _left(code: int) -> int:
    """Return the code, or end a cluster's worker here: TensorFlow's shutdown would wait for others, forever if gone."""
    cluster = sys.modules.get("tfrobust.training.cluster")
    if cluster is not None and cluster.joined():
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
    if is_input_error(error):
        _say(f"error: {one_line(error)}")
        return WRONG_INPUT
    disk_full = any(text in str(error) for text in _DISK_FULL)  # in messages of Python and of TensorFlow
    if disk_full or any(_is(error, *failure) for failure in _ONE_LINE_FAILURES):
        _say(f"error: {one_line(error)}")
        return FAILED
    traceback.print_exception(error)
    return FAILED


def _is(error: BaseException, module: str, name: str) -> bool:
    """Return isinstance(error, the class), False while its module has not been imported."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(error, kind)


def _say(line: str) -> None:
    # A file's name or text may hold control characters that a terminal interprets.
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    print(line[:_LONGEST_LINE], file=sys.stderr, flush=True)


def is_input_error(error: BaseException) -> bool:
    """Return True if the user can correct the error, so that it is reported in one line without a traceback.

    That is an InputError, a folder or file that cannot be read or written, or an error that a constructor raised for
    the arguments that gin passed. Any other ValueError is a bug and must not look like a mistake in the input.
    """
    error = _unwrapped(error)
    if isinstance(error, InputError):
        return True
    if isinstance(error, OSError):
        return isinstance(error, _FILE_ERRORS) or error.errno in _FILE_NUMBERS
    return isinstance(error, (ValueError, TypeError)) and _while_building(error.__traceback__)


def _unwrapped(error: BaseException) -> BaseException:
    """Return the original exception if gin raised a copy with a longer message, which has no errno or file name."""
    while "ExceptionProxy" in type(error).__init__.__qualname__ and error.__context__ is not None:
        error = error.__context__
    return error


def _while_building(trace: TracebackType | None) -> bool:
    built = None
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "gin_wrapper":
            built = trace.tb_frame.f_locals.get("fn_or_cls")
        trace = trace.tb_next
    return isinstance(built, type)


def one_line(error: BaseException) -> str:
    """Return an error's message on one line, without the text that gin, Keras and TensorFlow add to it."""
    error = _unwrapped(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    text = text.split("\n  In call to configurable")[0].split("\n  No values supplied by Gin")[0]
    text = text.split("\n\nArguments received by")[0]
    text = re.sub(r"^Exception encountered when calling .*?\n\n", "", text, flags=re.DOTALL)
    if text.startswith("in user code:"):
        text = re.sub(r"^\w+: ", "", text.rstrip().splitlines()[-1].strip())
    return " ".join(text.split())[:_LONGEST_LINE]
