"""What every test shares: a quiet TensorFlow, and the same start of Keras's random numbers."""

import collections
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest  # noqa: E402


@pytest.fixture(autouse=True)
def _seeded():
    # Most tests of the commands and of reports never import Keras; do not make them.
    import sys

    if "keras" in sys.modules:
        sys.modules["keras"].utils.set_random_seed(0)
    yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a test with many cases the fast suite takes the first two; the whole suite takes all."""
    cases = collections.Counter()
    for item in items:
        test = item.nodeid.partition("[")[0]
        cases[test] += 1
        if cases[test] > 2:
            item.add_marker(pytest.mark.slow)
