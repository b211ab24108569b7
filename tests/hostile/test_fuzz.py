"""Random changes of valid files end with 0, or with 2 and one line; `python -m hostile.fuzz` runs more of them."""

import pytest
import stored
from hostile import fuzz


@pytest.mark.parametrize("numbers", stored.rows(globals(), "no_input_is_too_much"))
def test_no_input_is_too_much(tmp_path, numbers):
    results = fuzz.run(numbers, tmp_path)
    assert [(result.number, result.kind, result.fault) for result in results if result.fault] == []
    assert [result.number for result in results] == list(numbers)
