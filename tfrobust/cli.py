"""What the commands share: flags, the gin configuration, and errors as one clear line with the right exit code.

Exit codes: 0 done; 2 wrong usage, configuration or input; 3 refused by a gate; 75 stopped on request, run
again to resume; 141 nobody reads on, as behind `| head`; 1 anything else, with a traceback. TensorFlow is
imported after the flags and the gin files have been read, so that `--help` and most mistakes answer at once.
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

from tfrobust.configuration import checks, completion, files, registry
from tfrobust.errors import InputError, RefusedByGate, StopRequested

DONE, FAILED, WRONG_INPUT, REFUSED, STOPPED, UNREAD = 0, 1, 2, 3, 75, 128 + 13
KNOBS_FILE = "base/knobs.gin"
_LONGEST_LINE = 300
_DISK_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_FILE_ERRORS = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)
_FILE_NUMBERS = (errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO)

# Nobody's mistake, and a traceback would only hide what to do.
_ONE_LINE_FAILURES = (
    ("tfrobust.training.loop", "TrainingDiverged"),
    ("tfrobust.training.cluster", "WorkerLost"),
    ("tfrobust.training.checkpoint", "CheckpointNotWritten"),
    ("tfrobust.serving.transport", "ServerUnavailable"),
)

_registry: registry.Registry | None = None


# --------------------------------------------------------------------------------------------------- flags


class PrintEnvironment(argparse.Action):
    """`--version`: prints the environment on one line and ends. Given a value, where one is taken, it keeps that."""

    def __call__(self, parser, namespace, values, option_string=None):
        if values:
            setattr(namespace, self.dest, values)
            return
        from tfrobust.ops import environment

        with quiet_stderr():
            line = environment.line()
        print(line)
        parser.exit()


class PrintCompletion(argparse.Action):
    """`--completion=SHELL`: prints what the shell reads, and ends."""

    def __call__(self, parser, namespace, values, option_string=None):
        print(completion.script(parser, values), end="")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations, whose errors are one line with the nearest flag."""

    def __init__(self, command: str, description: str):
        super().__init__(prog=f"python -m tfrobust.{command}", description=description, allow_abbrev=False)

    def parse_args(self, args=None, namespace=None):
        known, absent = self._option_string_actions, {"default": argparse.SUPPRESS}
        if "--version" not in known:
            what = "print versions, machine and devices on one line, for a bug report"
            self.add_argument("--version", action=PrintEnvironment, nargs=0, help=what, **absent)
        if "--completion" not in known:
            what = 'print shell completion: eval "$(... --completion=bash)"'
            self.add_argument("--completion", action=PrintCompletion, choices=completion.SHELLS, help=what, **absent)
        for argument in sys.argv[1:] if args is None else args:
            # TensorFlow takes no other paths, and says so from its depths.
            if not argument.isascii() and argument != argument.encode(errors="replace").decode():
                raise InputError(f"the argument {ascii(argument)[:100]} is not UTF-8")
        return self.parse_intermixed_args(args, namespace)  # paths may stand before and behind flags

    def error(self, message: str):
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown:
            flag = unknown.group(1).partition("=")[0]
            known = [option for action in self._actions for option in action.option_strings]
            near = files.nearest(flag, known, count=1) or ", ".join(known)
            message = f"there is no flag {files.shown(flag)}; nearest: {near}"
        raise InputError(message)

    def add_gin_flags(self, example: str) -> None:
        """Adds --gin_file, --gin_param and --gin_import, each of which may be repeated."""
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
        """Adds --gin_import, which may be repeated."""
        self.add_argument(
            "--gin_import",
            action="append",
            default=[],
            metavar="PKG.MOD",
            help="a module of your own whose classes and functions the gin files may name",
        )


def count(text: str) -> int:
    """A flag's value as a whole number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text[:18]) < 1:
        raise argparse.ArgumentTypeError(f"{files.shown(text, 40)} is not a whole number of at least 1")
    return int(text[:18])


# ----------------------------------------------------------------------------------------------------- gin


def prepare(flags: argparse.Namespace) -> None:
    """Reads, checks and binds the gin configuration that the flags name.

    Args:
        flags: with `gin_file`, `gin_param`, `gin_import`.

    Raises:
        InputError: any mistake in it.
    """
    configure(flags.gin_file, flags.gin_param, flags.gin_import)


def configure(paths: list[str], params=(), imports=(), *, partial: bool = False, defaults: bool = True) -> None:
    """As `prepare`, from lists.

    Args:
        paths, params, imports: the values of --gin_file, --gin_param, --gin_import.
        partial: the files are a part that is added to others, so that what it lacks may come from them.
        defaults: whether the knobs' defaults are read first.
    """
    global _registry
    bindings = files.read(paths, params, KNOBS_FILE if defaults else None)
    macros = checks.check_macros(bindings, partial)
    with quiet_stderr():
        importlib.import_module("keras")
        importlib.import_module("tensorflow").config.list_physical_devices()  # says that there is no GPU
    _registry = registry.collect(imports)
    resolved = checks.check_objects(bindings, macros, _registry, partial)
    if not partial:
        checks.bind(resolved, _registry)


def call(name: str, **runtime):
    """Calls `tfrobust.experiment.<name>` with what gin holds for it, and with the flags' arguments.

    Args:
        name: function of `tfrobust.experiment`.
        **runtime: arguments that come from flags; a gin file cannot set them.

    Raises:
        InputError: an argument is missing, or gin sets one that belongs to a flag.
    """
    import gin

    complete = f"tfrobust.experiment.{name}"
    checks.register(complete, _registry)
    bound = set(gin.get_bindings(complete, resolve_references=False))
    for argument in sorted(bound & set(runtime)):
        raise InputError(f"experiment.{name}.{argument} is not set in gin but by the command's flags.")
    checks.missing_arguments(complete, bound | set(runtime), _registry)
    return gin.get_configurable(complete)(**runtime)


def operative_text() -> str:
    """What the objects built so far were really given, defaults included, as gin text."""
    import gin

    return gin.operative_config_str(max_line_length=100)


@contextlib.contextmanager
def quiet_stderr():
    """Holds back what TensorFlow's C++ side writes while it is imported; shows it if the import fails."""
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
    """Parses the flags, runs the command, and says how it ended.

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
            sys.stdout.flush()  # while it can still be told
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
    """Whoever read what is printed has gone, as `| head` does: nothing more is said, nor tried again at the end."""
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
    except (AttributeError, OSError, ValueError):  # no such stream, or none of the system's
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in waiting.poll(0))


def _left(code: int) -> int:
    """Ends a worker of a cluster here: TensorFlow's shutdown would wait for the others, for ever if they are gone."""
    cluster = sys.modules.get("tfrobust.training.cluster")
    if cluster is not None and cluster.joined():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


@contextlib.contextmanager
def _terminable():
    """SIGTERM ends the command as Ctrl-C does; the training loop hears both by itself while it runs."""
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
    disk_full = any(text in str(error) for text in _DISK_FULL)  # Python's words, and TensorFlow's
    if disk_full or any(_is(error, *failure) for failure in _ONE_LINE_FAILURES):
        _say(f"error: {one_line(error)}")
        return FAILED
    traceback.print_exception(error)
    return FAILED


def _is(error: BaseException, module: str, name: str) -> bool:
    """isinstance for a class of a module that may not have been imported."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(error, kind)


def _say(line: str) -> None:
    # A file's name, or its text, may hold what a terminal obeys.
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    print(line[:_LONGEST_LINE], file=sys.stderr, flush=True)


def is_input_error(error: BaseException) -> bool:
    """Return True if the user can put it right: then it is one line, and no traceback.

    That is an InputError, a folder or file that cannot be read or written, or what a constructor said of the arguments
    that gin gave it. Any other ValueError is a bug and must not look like a mistake in the input.
    """
    error = _unwrapped(error)
    if isinstance(error, InputError):
        return True
    if isinstance(error, OSError):
        return isinstance(error, _FILE_ERRORS) or error.errno in _FILE_NUMBERS
    return isinstance(error, (ValueError, TypeError)) and _while_building(error.__traceback__)


def _unwrapped(error: BaseException) -> BaseException:
    """Return the exception itself where gin raises a copy with a longer message, which has no errno or file name."""
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
    """The message of an error without what gin, Keras and TensorFlow wrap around it, on one line."""
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
