#!/usr/bin/env python3
"""Check that every gin file parses and resolves: names, parameters, types, macros, scopes. Build nothing.

A file directly in gin/, in gin/finetune/ and every base in gin/papers/ is complete and is checked alone, as are the
files of gin/eval/; gin/finetune/ramp.gin is checked after a method's file.
Data and models are checked after a method's file, as users add them. Files for one of two stages are checked after a
method in two stages, and files in gin/base/ as a part. The methods of gin/papers/ are checked in the rows that use
them, and the other files there as a part.

Usage: tools/check_gin.py [FILE ...]; without files, all of gin/. Prints each fault and exits with 1, or exits with 0.
"""

import argparse
import os
import pathlib
import sys

import make_recipe_tables as tables

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_HOSTS = dict.fromkeys(("data", "models"), "gin/supervised.gin") | {"finetune/ramp.gin": "gin/trades.gin"}
_HOSTS |= dict.fromkeys(("stage_two", "optimizers"), "gin/simclr.gin")


def faults(path: pathlib.Path) -> list[str]:
    """Return the faults of one file, one for each configuration that it is checked in."""
    path = path if path.exists() else ROOT / path
    inside = path.resolve().relative_to(ROOT / "gin")
    if inside.parts[0] == "papers":
        paper, *rest = inside.parts[1:]
        rows = [row for row in tables.rows(paper) if inside.as_posix() in row.files]
        if rest[0] != "methods":
            return _fault(path, [str(path)], partial=path.stem not in tables.bases(paper))
        if not rows:
            return [f"{path}: no row of rows.toml uses it"]
        return [fault for row in rows for fault in _fault(path, [f"gin/{file}" for file in row.files], row.all_params)]
    host = _HOSTS.get(inside.as_posix(), _HOSTS.get(inside.parts[0]))
    # Data of users' own have no default for EPSILON.
    params = ["EPSILON=0.1"] if inside.parts[0] == "data" else ()
    return _fault(path, [host, str(path)] if host else [str(path)], params, partial=inside.parts[0] == "base")


def _fault(path: pathlib.Path, paths: list[str], params=(), partial: bool = False) -> list[str]:
    from tfrobust.commands.run import configure
    from tfrobust.errors import InputError

    command = "" if partial else "evaluate" if paths[0].endswith(f"/eval/{path.name}") else "train"
    try:
        configure(paths, params, partial=partial, command=command)
    except InputError as error:
        return [f"{path}: {error}"]
    return []


def main(arguments: list[str] | None = None) -> int:
    """Check the files; return the exit code."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("files", metavar="FILE", nargs="*", type=pathlib.Path, help="default: all below gin/")
    paths = flags.parse_args(arguments).files or sorted((ROOT / "gin").rglob("*.gin"))
    texts = [text for path in paths for text in faults(path)]
    print("\n".join(texts), end="\n" if texts else "")
    return 1 if texts else 0


if __name__ == "__main__":
    sys.exit(main())
