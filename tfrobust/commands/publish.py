"""The command `tfrobust publish`: publish the evaluated model of a workdir, or a withdrawn version again.

    python -m tfrobust publish runs/fashion
    python -m tfrobust publish exported/fashion/3

A training publishes its model itself if nothing is against it. If the model differs from the newest version in its
training configuration, or is significantly worse, it waits in its workdir for this command. Nothing is trained or
evaluated again, and no data are read.
"""

import argparse
import pathlib
import sys

from tfrobust.commands import failures
from tfrobust.commands.flags import Parser, PrintEnvironment, count
from tfrobust.commands.run import quiet_stderr
from tfrobust.common import files
from tfrobust.errors import InputError


def parser() -> Parser:
    """Return the command's flags."""
    flags = Parser("publish", "Publish the evaluated model of a workdir, or a withdrawn version again.")
    help_text = "workdir of a finished training, or exported/NAME/VERSION that was withdrawn"
    flags.add_argument("path", metavar="DIR", type=pathlib.Path, help=help_text)
    flags.add_argument("--export_dir", metavar="DIR", help="for a workdir; default: exported")
    help_text = "version to publish, the next one by default; without N: print versions and devices, for a bug report"
    flags.add_argument("--version", metavar="N", type=count, nargs="?", action=PrintEnvironment, help=help_text)
    return flags


def run(flags: argparse.Namespace) -> None:
    """Publish, and print the path and what was the newest version before."""
    with quiet_stderr():  # TensorFlow writes to standard error during its import
        from tfrobust import saving
        from tfrobust.runs import publication
        from tfrobust.serving.export import publish

    base, number = flags.path.parent, flags.path.name
    is_version = number.isdecimal() and (flags.path / files.SAVED_MODEL_FILE).is_file()  # not a workdir runs/2024
    if is_version or (number.isdecimal() and int(number) in publish.withdrawn(base)):
        if flags.export_dir or flags.version:
            raise InputError("a withdrawn version keeps its folder and number: leave out --export_dir and --version.")
        print(f"SavedModel  {publish.restore(base, int(number))}")
        print(f"newest      {publication.newest_line(base)}")
        return
    saving.import_all()  # registers the classes that a report may name
    print(publication.publish_workdir(str(flags.path), flags.export_dir or "exported", flags.version))


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return failures.main(parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
