"""Which radius and norm the evaluation of a converted model takes from the report."""

import pytest

from tfrobust.commands.export import _evaluation_knobs


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ("EPSILON = 0.2\nEVAL_EPSILON = %EPSILON\nSEED = 3\n", ["EPSILON=0.2", "EVAL_EPSILON=%EPSILON", "SEED=3"]),
        ("EPSILON = 0.2\nEVAL_EPSILON = 0.03\nNORM = 'l2'\n", ["EVAL_EPSILON=0.03", "NORM='l2'"]),
        ("NORM = 'l2'\nEVAL_NORM = 'linf'\n", ["EVAL_NORM='linf'"]),
        ("train.epochs = 2\n", []),
    ],
)
def test_a_radius_that_no_evaluation_reads_is_left_out(configuration, expected):
    assert _evaluation_knobs(configuration) == expected
