"""The command `python -m tfrobust.export`: publish the model of a finished run from its workdir."""

import argparse
import pathlib
import sys

from tfrobust.commands import failures
from tfrobust.commands.flags import Parser
from tfrobust.commands.run import call, configure, operative_text
from tfrobust.errors import InputError


def parser() -> Parser:
    """Return the command's flags."""
    flags = Parser("export", "Publish the trained model of a workdir as a SavedModel, evaluated first if needed.")
    flags.add_argument("--workdir", metavar="DIR", required=True, help="workdir of a finished training run")
    flags.add_argument("--export_dir", metavar="DIR", default="exported", help="default: exported")
    flags.add_gin_import()
    return flags


def run(flags: argparse.Namespace) -> None:
    """Configure from the gin file in the workdir, and publish."""
    configuration = pathlib.Path(flags.workdir, "config.gin")
    if not configuration.is_file():
        raise InputError(f"{flags.workdir} has no training run: {configuration.name} is missing.")
    configure([str(configuration)], imports=flags.gin_import, defaults=False)
    call(
        "train",
        workdir=flags.workdir,
        export_dir=flags.export_dir,
        training_must_be_done=True,
        configuration=operative_text,
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return failures.main(parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
