#!/usr/bin/env python3
"""Count the errors that mypy reports in each package; none may have more than its budget in pyproject.toml.

A package is a folder below tfrobust/, or the files that lie directly in it. The table [tool.tfrobust.type_errors] has
the budget of each package that still has errors; it is 0 for all others. Budgets only fall: a package with fewer errors
is named, so that its budget is lowered in the same change. [tool.mypy] has the settings; what other libraries return
is unknown to mypy, so that the counts do not depend on which versions are installed.
Usage: tools/check_types.py [ROOT]; prints the errors of packages above their budgets, and exits with 1 for them.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tomllib

ERROR = re.compile(r"^(?P<path>[^:\n]+\.py):\d+: error: .*$", re.MULTILINE)


def package(path: str) -> str:
    """Return the package that a file below the root is counted in."""
    folders = pathlib.PurePath(path).parts[:-1]
    return "/".join(folders[:2])


def errors(root: pathlib.Path) -> dict[str, list[str]]:
    """Return the lines of mypy's errors by package; raise SystemExit if mypy cannot check."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context"]
    process = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if process.returncode not in (0, 1) or process.stderr:
        raise SystemExit(f"mypy failed:\n{process.stdout}{process.stderr}")
    lines: dict[str, list[str]] = collections.defaultdict(list)
    for match in ERROR.finditer(process.stdout):
        lines[package(match["path"])].append(match[0])
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Compare the counts with the budgets and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    root = parser.parse_args(arguments).root
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    budgets: dict[str, int] = settings["tool"]["tfrobust"]["type_errors"]
    lines, status = errors(root), 0
    for name in sorted({*lines, *budgets}):
        count, budget = len(lines[name]), budgets.get(name, 0)
        if count > budget:
            status = 1
            print(*lines[name], f"above {name}: {count} errors, budget {budget}", sep="\n")
        elif count < budget:
            print(f"lower {name}: {count} errors, budget {budget}; lower it in pyproject.toml")
    return status


if __name__ == "__main__":
    sys.exit(main())
