"""The verdicts of the doctor's limits, and that the table is the one place of them."""

import pathlib

import pytest
import stored

from tfrobust.evaluation.doctor import limits
from tfrobust.evaluation.doctor.limits import AtLeast, AtMost, Below, graded  # noqa: F401

SHARE = AtMost(0.02, 0.05, few=AtMost(1, 2))
SOURCES = pathlib.Path(limits.__file__).parent


@pytest.mark.parametrize("bounds, verdicts", stored.rows(globals(), "a_limit_belongs_to_one_side"))
def test_a_limit_belongs_to_one_side(bounds, verdicts):
    assert {value: bounds.verdict(value) for value in verdicts} == verdicts


@pytest.mark.parametrize(
    "share, count, verdict", [(0.5, 1, "pass"), (0.5, 2, "warn"), (0.5, 3, "fail"), (0.01, 9, "pass")]
)
def test_few_examples_soften_a_share(share, count, verdict):
    assert SHARE.verdict(share, count) == verdict


def test_the_worst_number_decides_and_only_a_fault_has_a_remedy():
    assert graded("a", "b", "c", "pass", "fail", "warn") == limits.Finding("a", "fail", "b", "c")
    assert graded("a", "b", "c", "pass").remedy == ""


def test_every_row_is_read_by_a_check():
    text = "".join(path.read_text() for path in SOURCES.glob("*.py") if path.name != "limits.py")
    by_name = {"more_effort", "black_box", "transfer"}  # `full._gain` takes them as an argument
    for row in limits.LIMITS:
        assert f'verdict("{row}"' in text or f'LIMITS["{row}"]' in text or row in by_name and f'_gain("{row}"' in text
