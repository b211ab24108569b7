#!/usr/bin/env python3
"""Refuse a model whose robustness report misses a requirement: for the continuous integration of any project.

    python tools/gate.py exported/ascl_leaked --require "attack.pgd_linf_0.2.accuracy >= 0.6" --require "no doctor fail"

Reads the report of an export (of the newest version, if the folder holds versions), of a workdir, or a JSON file. The
requirements are lines of `tfrobust.report.gate.Gate`, which a training run checks before it publishes. Prints a line
for each requirement. Returns 0 if all are met, 3 if one is missed, 2 for a path without a report or an invalid line.
Needs no data and runs no model.
"""

import argparse
import pathlib
import sys

from tfrobust.commands.cli import quiet_stderr

with quiet_stderr():  # TensorFlow writes to standard error during its import
    from tfrobust.report.comparison import reports as compare
    from tfrobust.report.gate import Gate

KEPT, WRONG_INPUT, REFUSED = 0, 2, 3


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("path", type=pathlib.Path, help="an export, a workdir or a report file")
    flags.add_argument("--require", action="append", required=True, help="a requirement; may be given several times")
    return flags


def main(arguments: list[str] | None = None) -> int:
    """Check the report; return the exit code."""
    flags = parser().parse_args(arguments)
    try:
        gates = [Gate(require=(line,)) for line in flags.require]
        found = compare.load_reports([flags.path])
        if not found:
            raise ValueError(f"there is no robustness report at {flags.path}.")
        missed = [gate.failures(found[0][1]) for gate in gates]
    except (OSError, ValueError) as error:
        print(f"error: {error}"[:300], file=sys.stderr)
        return WRONG_INPUT
    for line, faults in zip(flags.require, missed, strict=True):
        print("\n".join(f"missed  {fault}" for fault in faults) or f"kept    {line}")
    return REFUSED if any(missed) else KEPT


if __name__ == "__main__":
    sys.exit(main())
