import importlib.util
import pathlib
import sys
import types

import pytest
from faults import processes

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def load(monkeypatch):
    """Tools by name, each before those that need it, as modules of one namespace."""

    def loaded(*names):
        monkeypatch.syspath_prepend(str(TOOLS))
        found = types.SimpleNamespace()
        for name in names:
            spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
            module = importlib.util.module_from_spec(spec)
            monkeypatch.setitem(sys.modules, name, module)  # dataclasses, and the tools among each other, look it up
            spec.loader.exec_module(module)
            setattr(found, name, module)
        return found

    return loaded


@pytest.fixture
def run_tool(tmp_path):
    """Runs a tool as a program in an empty folder: how it ended."""

    def run(name, *flags):
        path = str(TOOLS / f"{name}.py")
        return processes.run("faults.processes:run_file", [path, list(map(str, flags))], cwd=tmp_path)

    return run
