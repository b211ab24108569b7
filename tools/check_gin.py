#!/usr/bin/env python3
"""Check that every gin file parses and resolves: names, parameters, types, macros, scopes. Build nothing.

A file directly in gin/ and every recipe in gin/papers/ is complete and is checked alone, as are the files of gin/eval/.
Data and models are checked after a method's file, as users add them. Files for one of two stages are checked after a
method in two stages, and files in gin/base/ as a part.

Usage: tools/check_gin.py [FILE ...]; without files, all of gin/. Prints each fault and exits with 1, or exits with 0.
"""

import argparse
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_HOSTS = dict.fromkeys(("data", "models"), "gin/supervised.gin")
_HOSTS |= dict.fromkeys(("stage_two", "optimizers"), "gin/simclr.gin")


def fault(path: pathlib.Path) -> str | None:
    """Return the fault of one file, or None."""
    from tfrobust import cli
    from tfrobust.errors import InputError

    path = path if path.exists() else ROOT / path
    inside = path.resolve().relative_to(ROOT / "gin").parts
    try:
        host = _HOSTS.get(inside[0])
        cli.configure([host, str(path)] if host else [str(path)], partial=inside[0] == "base")
    except InputError as error:
        return f"{path}: {error}"
    return None


def main(arguments: list[str] | None = None) -> int:
    """Check the files; return the exit code."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("files", metavar="FILE", nargs="*", type=pathlib.Path, help="default: all below gin/")
    paths = flags.parse_args(arguments).files or sorted((ROOT / "gin").rglob("*.gin"))
    found = [text for text in map(fault, paths) if text]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
