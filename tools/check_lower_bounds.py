"""Run the tests with the oldest releases that pyproject.toml allows.

    python tools/check_lower_bounds.py                    # the first tier, in a new environment
    python tools/check_lower_bounds.py tests/report -x    # with other arguments of pytest
    python tools/check_lower_bounds.py --environment=DIR  # make it there and keep it, or use it again

uv chooses the lowest release of each requirement of pyproject.toml, core and extras, and the newest of what these need
in turn. The interpreter is the one that runs this tool. A bound below what the other requirements allow is an error,
because no test ran with it.
"""

import argparse
import itertools
import pathlib
import subprocess
import sys
import tempfile
import tomllib
import venv

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main(arguments=None) -> int:
    """Make the environment, check the bounds and run pytest; return its exit code, or 1 for a bound out of reach."""
    flags = parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tfrobust-bounds-") as scratch:
        folder = flags.environment or pathlib.Path(scratch, "environment")
        python = folder.resolve() / "bin" / "python"
        if not python.exists():
            install(folder, pathlib.Path(scratch, "uv"))
        wrong = unreached_bounds(requirements(), installed_versions(python))
        if wrong:
            print("\n".join(wrong), file=sys.stderr)
            return 1
        return subprocess.run([python, "-m", "pytest", *(flags.tests or ["-n", "2"])], cwd=ROOT).returncode


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--environment", type=pathlib.Path, help="folder of the environment, which stays")
    flags.add_argument("tests", nargs=argparse.REMAINDER, help="arguments of pytest; -n 2 by default")
    return flags


def requirements() -> list[Requirement]:
    """Return the requirements of pyproject.toml, those of the extras included, each once."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = itertools.chain(project["dependencies"], *project["optional-dependencies"].values())
    declared = map(Requirement, dict.fromkeys(lines))
    return [requirement for requirement in declared if requirement.name != project["name"]]  # "test" names the extras


def lowest(requirement: Requirement) -> Version:
    """Return the lower bound of a requirement, or its only version; raise ValueError if it has neither."""
    bounds = [Version(part.version) for part in requirement.specifier if part.operator in (">=", "==")]
    if len(bounds) != 1:
        raise ValueError(f"pyproject.toml: {requirement} has no lower bound; write {requirement.name}>=VERSION")
    return bounds[0]


def install(folder: pathlib.Path, tool: pathlib.Path) -> None:
    """Make an environment with the lowest releases and this checkout, by a uv of its own."""
    venv.create(tool, with_pip=True)
    subprocess.run([tool / "bin" / "pip", "install", "-q", "uv"], check=True)
    uv = tool / "bin" / "uv"
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, folder], check=True)
    command = [uv, "pip", "install", "-q", "--python", folder / "bin" / "python"]
    subprocess.run([*command, "--resolution", "lowest-direct", *map(str, requirements())], check=True)
    subprocess.run([*command, "--no-deps", "-e", ROOT], check=True)


def installed_versions(python: pathlib.Path) -> dict[str, str]:
    """Return the versions in an environment by the name of the distribution, in lower case and with hyphens."""
    code = "from importlib import metadata\nfor part in metadata.distributions(): print(part.name, part.version)"
    lines = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    return {plain(name): version for name, version in map(str.split, lines)}


def plain(name: str) -> str:
    """Return the name of a distribution in lower case and with hyphens."""
    return name.lower().replace("_", "-")


def unreached_bounds(declared: list[Requirement], versions: dict[str, str]) -> list[str]:
    """Return a sentence for each requirement whose bound is not the release in the environment."""
    wrong = []
    for requirement in declared:
        bound, version = lowest(requirement).release, versions[plain(requirement.name)]
        if Version(version).release[: len(bound)] != bound:
            wrong.append(f"pyproject.toml: {requirement} was not run: the environment has {version}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
