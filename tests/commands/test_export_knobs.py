"""Which radius and norm the evaluation of a converted model takes from the report."""

import pytest
import stored

from tfrobust.commands.export import _evaluation_knobs


@pytest.mark.parametrize("configuration, expected", stored.rows(globals(), "a_radius_that_no_evaluation_reads_is"))
def test_a_radius_that_no_evaluation_reads_is_left_out(configuration, expected):
    assert _evaluation_knobs(configuration) == expected
