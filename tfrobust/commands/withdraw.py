"""The command `tfrobust withdraw`: take a published version out of service.

    python -m tfrobust withdraw exported/fashion
    python -m tfrobust withdraw exported/fashion/3

The version is renamed to `.withdrawn-3`, which servers, `compare`, `gate` and `share` pass over. The version below it
is then the newest, and TensorFlow Serving loads it within seconds. `tfrobust publish exported/fashion/3` takes that
back.
"""

import argparse
import pathlib
import sys

from tfrobust.commands import failures
from tfrobust.commands.flags import Parser
from tfrobust.commands.run import quiet_stderr
from tfrobust.common import files
from tfrobust.errors import InputError


def parser() -> Parser:
    """Return the command's flags."""
    flags = Parser("withdraw", "Take a published version out of service; `publish` takes that back.")
    help_text = "exported/NAME, of which the newest version is withdrawn, or exported/NAME/VERSION"
    flags.add_argument("export", metavar="DIR", type=pathlib.Path, help=help_text)
    return flags


def run(flags: argparse.Namespace) -> None:
    """Withdraw the version, and print which one is the newest now."""
    with quiet_stderr():  # TensorFlow writes to standard error during its import
        from tfrobust.runs import publication
        from tfrobust.serving.export import publish

    base, numbers = flags.export, publish.versions(flags.export)
    if not numbers and base.name.isdecimal():  # the name of a model may be a number, too
        base, numbers = base.parent, [int(base.name)]
    version = base / str(numbers[-1]) if numbers else base
    marks = (publish.PUBLISHER_FILE, files.SAVED_MODEL_FILE)  # else any folder of that name would be hidden
    if not numbers or version.is_dir() and not any((version / mark).is_file() for mark in marks):
        raise InputError(f"{flags.export} has no published version; name exported/NAME.")
    path = publish.withdraw(base, numbers[-1])
    print(f"withdrawn   {version}, now {path}")
    print(f"newest      {publication.newest_line(base) or f'none: {base} has no version left'}")
    print(f"to publish it again: python -m tfrobust publish {version}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return failures.main(parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
