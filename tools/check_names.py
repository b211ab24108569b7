#!/usr/bin/env python3
"""Count the bound names that say nothing of their value, such as `found`; at most 0.3 % of a folder's may.

Bound are assigned variables and attributes, parameters, loop variables, functions, classes and what an import or a
pattern names. A name is on the list as a whole, after its leading underscores. A folder is one below tfrobust/ or
tests/, all of tools/, or the files that lie directly in one of them.
Usage: tools/check_names.py [--files=5] [ROOT]; prints the share of each folder and its worst files, and exits with 1
if a share is above its limit.
"""

import argparse
import ast
import collections
import pathlib
import sys

VAGUE = frozenset(
    ("found", "place", "one", "each", "own", "what", "known", "others", "wanted", "given", "said", "right", "kept")
    + ("left", "made", "same", "whole")
)
# The largest percentage of a folder's names that may be vague.
LIMIT = 0.3


def bound_names(source: str) -> list[str]:
    """Return every name that the text of a module binds, as often as it binds it."""
    names = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.append(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.append(name)
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                names.append(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                names.append(name)
    return names


def is_vague(name: str) -> bool:
    """Return True if the name, apart from leading underscores, is on the list."""
    return name.lstrip("_").lower() in VAGUE


def folder(path: pathlib.PurePath) -> str:
    """Return the folder that a file below the root is counted in."""
    depth = 1 if path.parts[0] == "tools" else 2
    return "/".join(path.parent.parts[:depth])


def count(root: pathlib.Path) -> dict[str, dict[str, tuple[int, int]]]:
    """Return for each folder the numbers of vague names and of all names in each of its files."""
    counts: dict[str, dict[str, tuple[int, int]]] = collections.defaultdict(dict)
    for top in ("tfrobust", "tools", "tests"):
        for file in sorted((root / top).rglob("*.py")):
            names = bound_names(file.read_text(encoding="utf-8"))
            path = file.relative_to(root)
            counts[folder(path)][path.as_posix()] = sum(map(is_vague, names)), len(names)
    return counts


def share(files: dict[str, tuple[int, int]]) -> float:
    """Return the percentage of vague names among all names of the files."""
    vague, names = (sum(column) for column in zip(*files.values(), strict=True))
    return 100 * vague / max(names, 1)


def main(arguments: list[str] | None = None) -> int:
    """Print the share of each folder and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    parser.add_argument("--files", type=int, default=3, help="how many of the worst files of a folder are named")
    options = parser.parse_args(arguments)
    above = 0
    for name, files in count(options.root).items():
        percent = share(files)
        above += percent > LIMIT
        print(f"{'above' if percent > LIMIT else 'ok':5} {name}: {percent:.2f} %, limit {LIMIT} %")
        worst = sorted((path for path in files if files[path][0]), key=lambda path: -files[path][0])
        for path in worst[: options.files]:
            print(f"        {path}: {files[path][0]} of {files[path][1]}")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
