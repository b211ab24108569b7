"""The flags of the commands: a parser whose errors are one line, and the flags that several commands have."""

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence

from tfrobust.commands import run
from tfrobust.commands.configuration.knobs import KNOBS
from tfrobust.commands.configuration.statements import shown
from tfrobust.common.nearest import nearest
from tfrobust.errors import InputError


class PrintEnvironment(argparse.Action):
    """The action of `--version`: print the environment on one line and exit, or store a value if one is given."""

    def __call__(self, parser, namespace, values, option_string=None):
        """Store the value, or print the environment and exit."""
        if values:
            setattr(namespace, self.dest, values)
            return
        from tfrobust.common import environment

        with run.quiet_stderr():
            line = environment.line()
        print(line)
        parser.exit()


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations, whose errors are one line with the nearest flag."""

    def __init__(self, command: str, description: str):
        names = {"prog": f"tfrobust {command}", "description": description}
        # A command may have a --version of its own.
        super().__init__(**names, allow_abbrev=False, conflict_handler="resolve")
        help_text = "print versions, machine and devices on one line, for a bug report"
        self.add_argument("--version", action=PrintEnvironment, nargs=0, default=argparse.SUPPRESS, help=help_text)

    def parse_args(self, args=None, namespace=None):
        """Parse the flags; paths may precede and follow them."""
        args = [_with_home(argument) for argument in (sys.argv[1:] if args is None else args)]
        for argument in args:
            if argument.startswith("--") and argument.endswith("=") and argument.count("=") == 1:
                raise InputError(f"{shown(argument, quote=False)} has no value; leave the flag out for its default")
            # TensorFlow accepts only UTF-8 paths, and fails on others with an unclear error.
            if not argument.isascii() and argument != argument.encode(errors="replace").decode():
                raise InputError(f"the argument {ascii(argument)[:100]} is not UTF-8")
        return self.parse_intermixed_args(args, namespace)

    def error(self, message: str):
        """Raise InputError with the message of argparse, for an unknown flag with the nearest one."""
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown:
            flag = unknown.group(1).partition("=")[0]
            options = [option for action in self._actions for option in action.option_strings]
            near = ", ".join(nearest(flag, options, count=1))
            hint = f"nearest: {near}" if near else f"{self.prog} --help lists them"
            message = f"there is no flag {shown(flag)}; {hint}"
            name, _, value = unknown.group(1).lstrip("-").partition("=")
            if "--gin_param" in options and (name.upper() in KNOBS or "." in name):
                name = name if "." in name else name.upper()
                message = f'there is no flag {shown(flag)}: write --gin_param="{name}={value or "..."}"'
            if "--gin_file" in options and unknown.group(1).endswith(".gin"):
                message = f"write --gin_file={unknown.group(1)}"
        if "required: --gin_file" in message:
            message += "; a file follows its flag: --gin_file=my_run.gin"
        raise InputError(message)

    def command_line(self, flags: argparse.Namespace, without: Sequence[str] = ()) -> list[str]:
        """Return the arguments from which these flags were parsed, without some of them."""
        arguments = []
        for action in self._actions:
            value = getattr(flags, action.dest, action.default)
            if action.dest in without or value == action.default:
                continue
            if action.nargs == 0 and value != action.const:  # --quiet, where --verbose was given
                continue
            option = action.option_strings[-1]
            arguments += [
                option if action.nargs == 0 else f"{option}={_as_text(item)}"
                for item in (value if isinstance(value, list) else [value])
            ]
        return arguments

    def add_budget(self) -> None:
        """Add --budget."""
        help_text = "with --dry_run: print the command that fits this time, such as 10min, and what it leaves out"
        self.add_argument("--budget", metavar="TIME", type=_time, help=help_text)

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
        self.add_allow_downloads()

    def add_allow_downloads(self) -> None:
        """Add --allow_downloads."""
        help_text = "allow the data, weights and presets that the configuration names to be downloaded"
        self.add_argument("--allow_downloads", action="store_true", help=help_text)

    def add_verbosity(self) -> None:
        """Add --quiet and --verbose, which exclude each other, as `verbose`: 0, 1 (without them) or 2."""
        group = self.add_mutually_exclusive_group()
        help_text = "print results and errors only"
        group.add_argument("--quiet", dest="verbose", action="store_const", const=0, default=1, help=help_text)
        help_text = "print all loss terms of every epoch, and every task of the evaluation"
        group.add_argument("--verbose", dest="verbose", action="store_const", const=2, default=1, help=help_text)

    def add_gin_import(self) -> None:
        """Add --gin_import, which may be repeated."""
        self.add_argument(
            "--gin_import",
            action="append",
            default=[],
            metavar="PKG.MOD",
            help="a module of your own whose classes and functions the gin files may name",
        )


def _with_home(argument: str) -> str:
    """Expand `~` in a flag such as --workdir=~/run, where a shell does not."""
    flag, equals, value = argument.partition("=")
    return flag + equals + os.path.expanduser(value) if flag.startswith("--") else argument


def budget(parser: Parser, flags: argparse.Namespace, command: str):
    """Return the `runs.budget.Budget` of a command's flags; None without --dry_run.

    Raises:
        InputError: --budget is given without --dry_run.
    """
    if not flags.dry_run:
        if flags.budget:
            raise InputError("--budget needs --dry_run, which prints the command that fits the time.")
        return None
    from tfrobust.runs.budget import Budget  # imports TensorFlow, which --help does not need

    arguments = parser.command_line(flags, without=("dry_run", "budget", "replicas"))

    def written(members: Sequence[int] | None, examples: int | None, epochs: int | None) -> str:
        params = [f"EVALUATORS={run.evaluators_text(members)}"] if members is not None else []
        params += [f"EVAL_EXAMPLES={examples}"] if examples else []
        params += [f"EPOCHS={epochs}"] if epochs else []
        return shlex.join(["tfrobust", command, *arguments, *(f"--gin_param={param}" for param in params)])

    return Budget(flags.budget and seconds(flags.budget), written)


def seconds(text: str) -> int:
    """Return the seconds of a duration such as 90s, 10min, 2h or 1h30min; 0 for any other text."""
    match = re.fullmatch(r"(?:(\d{1,4})h)?(?:(\d{1,5})min)?(?:(\d{1,6})s)?", text)
    hours, minutes, rest = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    return 3600 * hours + 60 * minutes + rest


def _time(text: str) -> str:
    if not seconds(text):
        raise argparse.ArgumentTypeError(f"{shown(text, 40)} is not a time, such as 90s, 10min or 2h")
    return text


def _as_text(value) -> str:
    return ",".join(map(str, value)) if type(value) is tuple else str(value)  # a share has its own text


def count(text: str) -> int:
    """Parse a flag's value as an integer of at least 1."""
    number = int(text[:19]) if text.isascii() and text.isdigit() else 0
    if not 1 <= number < 10**18:
        raise argparse.ArgumentTypeError(f"{shown(text, 40)} is not a whole number of at least 1 and below 10**18")
    return number


def counts(text: str) -> tuple[int, ...]:
    """Parse a flag's value as integers of at least 1, separated by commas."""
    return tuple(count(part) for part in text.split(","))
