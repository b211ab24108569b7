"""What every test shares: a quiet TensorFlow, and the same start of Keras's random numbers."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest  # noqa: E402

pytest_plugins = ["tiers", "children"]


@pytest.fixture(autouse=True)
def _seeded():
    # Most tests of the commands and of reports never import Keras; do not make them.
    import sys

    if "keras" in sys.modules:
        sys.modules["keras"].utils.set_random_seed(0)
    yield
