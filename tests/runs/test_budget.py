"""The parts of a run that fit a budget of time."""

import pytest

from tfrobust.commands import train
from tfrobust.runs import budget

# An hour of training, then 1,000 examples: clean, PGD, APGD, AutoAttack.
COSTS = budget.Costs(3600.0, 60, (0.0, 100.0, 900.0, 2000.0), ("", "PGD", "APGD", "AutoAttack"), 1000)


def lines(seconds, costs=COSTS):
    return budget.lines(costs, budget.Budget(seconds, lambda *changes: repr(changes)))


@pytest.mark.parametrize(
    ("seconds", "changes", "part"),
    [
        (
            None,
            (None, 200, None),
            "cheaper     at most about 10 min 0 s: 200 of 1,000 examples, accuracies to within ± 6.9",
        ),
        (3 * 3600, None, "3 h 0 min suffice for training and the attacks"),
        (3600 + 3001, None, "suffice"),
        (3600 + 4000 - 1600, (None, 800, None), "800 of 1,000 examples, accuracies to within ± 3.5 points"),
        # A quarter of the time is the evaluation's, and AutoAttack would leave too few examples.
        (
            1000,
            ([0, 1, 2], 250, 12),
            "12 of 60 epochs; 250 of 1,000 examples, accuracies to within ± 6.2 points; without AutoA",
        ),
        (
            20,
            ([0, 1], 50, 1),
            "1 of 60 epochs; 50 of 1,000 examples, accuracies to within ± 13.9 points; without APGD, AutoA",
        ),
    ],
)
def test_what_fits(seconds, changes, part):
    first, *command = lines(seconds)
    assert part in first
    assert command == ([f"            {changes}"] if changes else [])


def test_few_examples_and_no_attacks_need_no_advice():
    for costs in ((0.0,), ("",), 1000), ((100.0,), ("PGD",), 200):
        assert lines(None, budget.Costs(0.0, 0, *costs)) == []


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--budget=10"], "argument --budget: '10' is not a time, such as 90s, 10min or 2h"),
        (["--budget=10min"], "--budget needs --dry_run, which prints the command that fits the time."),
    ],
)
def test_a_budget_is_a_time_of_a_dry_run(flags, part, capsys):
    assert train.main(["--gin_file=gin/supervised.gin", *flags]) == 2
    assert part in capsys.readouterr().err
