"""Random changes of valid files end with 0, or with 2 and one line; `python -m hostile.fuzz` runs more of them."""

import pytest
from hostile import fuzz


def _faults(numbers, folder) -> list[str]:
    return [f"{result.number} ({result.kind}): {result.fault}" for result in fuzz.run(numbers, folder) if result.fault]


@pytest.mark.first
def test_fifty_inputs(tmp_path):
    assert _faults(range(50), tmp_path) == []


@pytest.mark.rest
def test_five_hundred_inputs(tmp_path):
    assert _faults(range(100, 600), tmp_path) == []
