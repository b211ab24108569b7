import importlib.util
import pathlib
import sys
import types

import pytest
from faults import processes

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
FOLDERS = (TOOLS, TOOLS / "benchmarks", TOOLS / "benchmarks" / "accelerator", TOOLS / "golden")


def tool_file(name: str) -> pathlib.Path:
    """Return the file of a tool."""
    return next(path for folder in FOLDERS if (path := folder / f"{name}.py").is_file())


@pytest.fixture
def load(monkeypatch):
    """Tools by name, each before those that need it, as modules of one namespace."""

    def loaded(*names):
        for folder in FOLDERS:
            monkeypatch.syspath_prepend(str(folder))
        namespace = types.SimpleNamespace()
        for name in names:
            spec = importlib.util.spec_from_file_location(name, tool_file(name))
            module = importlib.util.module_from_spec(spec)
            monkeypatch.setitem(sys.modules, name, module)  # dataclasses, and the tools among each other, look it up
            spec.loader.exec_module(module)
            setattr(namespace, name, module)
        return namespace

    return loaded


@pytest.fixture
def run_tool(tmp_path):
    """Runs a tool as a program in an empty folder: how it ended."""

    def run(name, *flags):
        path = str(tool_file(name))
        return processes.run("faults.processes:run_file", [path, list(map(str, flags))], cwd=tmp_path)

    return run
