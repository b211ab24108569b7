"""The flags of the commands: a parser whose errors are one line, and the flags that several commands have."""

import argparse
import re
import sys

from tfrobust.commands import run
from tfrobust.commands.configuration import binding, files
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
        what = "print versions, machine and devices on one line, for a bug report"
        self.add_argument("--version", action=PrintEnvironment, nargs=0, default=argparse.SUPPRESS, help=what)

    def parse_args(self, args=None, namespace=None):
        """Parse the flags; paths may precede and follow them."""
        for argument in sys.argv[1:] if args is None else args:
            # TensorFlow accepts only UTF-8 paths, and fails on others with an unclear error.
            if not argument.isascii() and argument != argument.encode(errors="replace").decode():
                raise InputError(f"the argument {ascii(argument)[:100]} is not UTF-8")
        return self.parse_intermixed_args(args, namespace)

    def error(self, message: str):
        """Raise InputError with the message of argparse, for an unknown flag with the nearest one."""
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown:
            flag = unknown.group(1).partition("=")[0]
            known = [option for action in self._actions for option in action.option_strings]
            near = files.nearest(flag, known, count=1) or ", ".join(known)
            message = f"there is no flag {files.shown(flag)}; nearest: {near}"
            name, _, value = unknown.group(1).lstrip("-").partition("=")
            if "--gin_param" in known and (name.upper() in binding.KNOBS or "." in name):
                name = name if "." in name else name.upper()
                message = f'there is no flag {files.shown(flag)}: write --gin_param="{name}={value or "..."}"'
            if "--gin_file" in known and unknown.group(1).endswith(".gin"):
                message = f"write --gin_file={unknown.group(1)}"
        if "required: --gin_file" in message:
            message += "; a file follows its flag: --gin_file=my_run.gin"
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
        self.add_allow_downloads()

    def add_allow_downloads(self) -> None:
        """Add --allow_downloads."""
        what = "allow the data, weights and presets that the configuration names to be downloaded"
        self.add_argument("--allow_downloads", action="store_true", help=what)

    def add_verbosity(self) -> None:
        """Add --quiet and --verbose, which exclude each other, as `verbose`: 0, 1 (without them) or 2."""
        group = self.add_mutually_exclusive_group()
        what = "print results and errors only"
        group.add_argument("--quiet", dest="verbose", action="store_const", const=0, default=1, help=what)
        what = "print all loss terms of every epoch, and every task of the evaluation"
        group.add_argument("--verbose", dest="verbose", action="store_const", const=2, default=1, help=what)

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


def counts(text: str) -> tuple[int, ...]:
    """Parse a flag's value as integers of at least 1, separated by commas."""
    return tuple(count(part) for part in text.split(","))
