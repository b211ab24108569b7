r"""The command `tfrobust gate`: refuse a model whose robustness report misses a requirement.

    python -m tfrobust gate exported/ascl_leaked --require "attack.pgd_linf_0.2.accuracy >= 0.6" \
        --require "no doctor fail"

It is for the continuous integration of any project: it needs no data and runs no model. It reads the report of an
export (of the newest version, if the folder holds versions), of a workdir, or a JSON file. The requirements are lines
of `tfrobust.report.gate.Gate`, which a training run checks before it publishes. Exit code 3 if one is missed.
"""

import argparse
import sys

from tfrobust.commands import failures
from tfrobust.commands.flags import Parser
from tfrobust.commands.run import quiet_stderr
from tfrobust.errors import InputError, RefusedByGate


def parser() -> Parser:
    """Return the command's flags."""
    flags = Parser("gate", "Refuse a model whose robustness report misses a requirement (exit code 3).")
    flags.add_argument("path", metavar="PATH", help="an export, a workdir or a report file")
    help_text = 'a requirement, such as "accuracy.clean >= 0.9"; may be repeated'
    flags.add_argument("--require", metavar="LINE", action="append", required=True, help=help_text)
    return flags


def run(flags: argparse.Namespace) -> None:
    """Check the report and print a line for each requirement; raise RefusedByGate if one is missed."""
    with quiet_stderr():  # TensorFlow writes to standard error during its import
        from tfrobust.report.comparison.reports import load_reports
        from tfrobust.report.gate import Gate

    gates = [Gate(require=(line,)) for line in flags.require]
    reports = load_reports([flags.path])
    if not reports:
        raise InputError(f"there is no robustness report at {flags.path}.")
    missed = [gate.failures(reports[0][1]) for gate in gates]
    for line, faults in zip(flags.require, missed, strict=True):
        print("\n".join(f"missed  {fault}" for fault in faults) or f"kept    {line}")
    if any(missed):
        raise RefusedByGate(f"{sum(map(bool, missed))} of {len(missed)} requirements are missed")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return failures.main(parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
