"""Random changes of valid files end with 0, or with 2 and one line; `python -m hostile.fuzz` runs more of them."""

import pytest
from hostile import fuzz


@pytest.mark.parametrize(
    "numbers",
    [pytest.param(range(50), marks=pytest.mark.first), pytest.param(range(100, 350), marks=pytest.mark.rest)],
    ids=["fifty", "two hundred and fifty"],
)
def test_no_input_is_too_much(tmp_path, numbers):
    results = fuzz.run(numbers, tmp_path)
    assert [(result.number, result.kind, result.fault) for result in results if result.fault] == []
    assert [result.number for result in results] == list(numbers)
