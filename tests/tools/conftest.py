import pathlib

import pytest
from faults import processes

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
FOLDERS = (TOOLS, TOOLS / "benchmarks", TOOLS / "benchmarks" / "accelerator", TOOLS / "golden")


def tool_file(name: str) -> pathlib.Path:
    """Return the file of a tool."""
    return next(path for folder in FOLDERS if (path := folder / f"{name}.py").is_file())


@pytest.fixture
def run_tool(tmp_path):
    """Runs a tool as a program in an empty folder: how it ended."""

    def run(name, *flags):
        path = str(tool_file(name))
        return processes.run("faults.processes:run_file", [path, list(map(str, flags))], cwd=tmp_path)

    return run
