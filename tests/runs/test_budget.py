"""The parts of a run that fit a budget of time."""

import pytest
import stored

from tfrobust.commands import train
from tfrobust.runs import budget

# An hour of training, then 1,000 examples: clean, PGD, APGD, AutoAttack.
COSTS = budget.Costs(3600.0, 60, (0.0, 100.0, 900.0, 2000.0), ("", "PGD", "APGD", "AutoAttack"), 1000)


def lines(seconds, costs=COSTS):
    return budget.lines(costs, budget.Budget(seconds, lambda *changes: repr(changes)))


@pytest.mark.parametrize("seconds, changes, part", stored.rows(globals(), "what_fits"))
def test_what_fits(seconds, changes, part):
    first, *command = lines(seconds)
    assert part in first
    assert command == ([f"            {changes}"] if changes else [])


def test_few_examples_and_no_attacks_need_no_advice():
    for costs in ((0.0,), ("",), 1000), ((100.0,), ("PGD",), 200):
        assert lines(None, budget.Costs(0.0, 0, *costs)) == []


@pytest.mark.parametrize("flags, part", stored.rows(globals(), "a_budget_is_a_time_of_a_dry_run"))
def test_a_budget_is_a_time_of_a_dry_run(flags, part, capsys):
    assert train.main(["--gin_file=gin/supervised.gin", *flags]) == 2
    assert part in capsys.readouterr().err
