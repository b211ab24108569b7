"""Every name of the facade has an example in its docstring that runs as it stands, from an empty namespace."""

import doctest
import functools
import inspect

import pytest

from conformance import facade

# Sources and evaluators are parts of a gin file, and the guides show them there.
OFFERED = {
    path: item
    for path, item in facade.OFFERED.items()
    if not path.startswith(facade.IN_GIN) or "Example:" in inspect.getdoc(item)
}


@functools.cache
def outcome(item) -> tuple[int, str]:
    """Examples attempted, and what failed; once for an object with two paths."""
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(item) or "", {}, item.__name__, None, None)
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    result = runner.run(test, out=report.append)
    return result.attempted, "".join(report)


@pytest.mark.parametrize("path", OFFERED)
def test_an_example_runs_as_it_stands(path):
    attempted, report = outcome(OFFERED[path])
    assert attempted, f"tfrobust.keras.{path} has no example in its docstring"
    assert not report, report
