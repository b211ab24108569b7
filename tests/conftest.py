"""Give every test a quiet TensorFlow, the same random numbers, and no state of the test before it."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest  # noqa: E402
import state  # noqa: E402

pytest_plugins = ["tiers", "children"]


@pytest.fixture(autouse=True)
def _shared_state():
    # Most tests of the commands and of reports never import Keras; do not make them.
    if "keras" in sys.modules:
        sys.modules["keras"].utils.set_random_seed(0)
    yield
    state.put_back()
