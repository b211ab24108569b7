"""Give every test a quiet TensorFlow, the same random numbers, and no state of the test before it."""

import logging
import os
import pathlib
import re
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest  # noqa: E402
import state  # noqa: E402

pytest_plugins = ["tiers", "children", "covered"]


@pytest.fixture(autouse=True)
def _shared_state():
    # Most tests of the commands and of reports never import Keras; do not make them.
    if "keras" in sys.modules:
        sys.modules["keras"].utils.set_random_seed(0)
    yield
    state.put_back()


@pytest.fixture
def caplog(caplog):
    """The records of tfrobust alone: TensorFlow logs functions that are traced again, in whichever test it happens."""
    with caplog.filtering(logging.Filter("tfrobust")):
        yield caplog


def _bfloat16_is_hidden() -> bool:
    """Return True if oneDNN is held below AVX-512 on a processor that has it, which TensorFlow does not notice."""
    flags = pathlib.Path("/proc/cpuinfo")
    held = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in ("SSE41", "AVX", "AVX2", "AVX2_VNNI")
    return held and flags.exists() and " avx512f " in flags.read_text()


BFLOAT16_IS_HIDDEN = _bfloat16_is_hidden()


def pytest_runtest_setup(item):
    if BFLOAT16_IS_HIDDEN and re.search("(?i)bfloat16|mixed_?precision|half_precision|16_bits", item.nodeid):
        pytest.skip("ONEDNN_MAX_CPU_ISA takes the bfloat16 kernels that TensorFlow calls on this processor")
