"""Every name of the facade has an example in its docstring that runs as it stands, from an empty namespace."""

import doctest
import functools
import inspect
import time
import types

import pytest

from tfrobust import keras as robust


def offered() -> dict:
    """Path below `tfrobust.keras` -> object, submodules' members included; a module that is re-exported too."""
    found = {}
    for name in robust.__all__:
        item = getattr(robust, name)
        if isinstance(item, types.ModuleType):
            found.update({f"{name}.{inner}": getattr(item, inner) for inner in item.__all__})
        else:
            found[name] = item
    functions = vars(robust.attacks.objectives).items()
    for name, item in functions:
        if inspect.isfunction(item) and not name.startswith("_") and not name.endswith("_of"):
            found[f"attacks.objectives.{name}"] = item
    return {
        path: item
        for path, item in found.items()
        if not isinstance(item, types.ModuleType) and path not in _PLAIN_TUPLES
    }


# Two masks under one name; every loss that takes it shows it.
_PLAIN_TUPLES = ("losses.PairMasks",)
OFFERED = offered()


@functools.cache
def outcome(item) -> tuple[int, str, float]:
    """Examples attempted, what failed, seconds; once for an object with two paths."""
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(item) or "", {}, item.__name__, None, None)
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    started = time.monotonic()
    result = runner.run(test, out=report.append)
    return result.attempted, "".join(report), time.monotonic() - started


@pytest.mark.parametrize("path", OFFERED)
def test_an_example_runs_as_it_stands(path):
    attempted, report, _ = outcome(OFFERED[path])
    assert attempted, f"tfrobust.keras.{path} has no example in its docstring"
    assert not report, report


@pytest.mark.parametrize("path", OFFERED)
def test_an_example_uses_the_name_it_explains(path):
    text = inspect.getdoc(OFFERED[path])
    assert f"robust.{path.split('.')[0]}" in text or path.split(".")[0] in ("layers", "models"), path
    assert path.rpartition(".")[2] in text[text.index(">>>") :], path
