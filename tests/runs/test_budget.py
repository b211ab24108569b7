"""The parts of a run that fit a budget of time."""

import pytest
import stored

from tfrobust.commands import run, train
from tfrobust.runs import budget


def costs_of(training, epochs, attacks, names, attacked, **more):
    """Return the costs of evaluators that share no search."""
    entries = enumerate(zip(attacks, attacked, strict=True))
    return budget.Costs(training, epochs, tuple({key: cost} if cost[0] else {} for key, cost in entries), names, **more)


# An hour of training, then 1,000 examples: clean, PGD, APGD, AutoAttack.
COSTS = costs_of(3600.0, 60, (0.0, 100.0, 900.0, 2000.0), ("", "PGD", "APGD", "AutoAttack"), (0, 1000, 1000, 1000))


def lines(seconds, costs=COSTS):
    return budget.lines(costs, budget.Budget(seconds, lambda *changes: repr(changes)))


@pytest.mark.parametrize("seconds, changes, part", stored.rows(globals(), "what_fits"))
def test_what_fits(seconds, changes, part):
    first, *command = lines(seconds)
    assert part in first
    assert command == ([f"            {changes}"] if changes else [])


def test_an_attack_with_a_limit_keeps_its_cost_until_fewer_examples_are_left():
    """FGSM on 10,000 images for 100 s, and a curve on 1,000 for 380: 4,700 images cost 47 + 380 s."""
    costs = costs_of(0.0, 0, (100.0, 380.0), ("FGSM", "PGD"), (10_000, 1000))
    assert lines(400.0, costs)[1].strip() == "(None, 2000, None)"  # 20 + 380 s
    assert lines(100.0, costs)[1].strip() == "(None, 250, None)"  # 2.5 + 95 s; 256 would be 2.6 + 97.3
    assert "at most about 1 min 18 s" in lines(None, costs)[0]


def test_a_search_costs_as_long_as_one_of_its_evaluators_is_there():
    """Two accuracies, and the union of both, which has no search besides: it goes first, for nothing."""
    searches = {"linf": (900.0, 1000)}, {"l2": (100.0, 1000)}
    costs = budget.Costs(0.0, 0, (*searches, searches[0] | searches[1]), ("linf", "l2", "both"))
    assert lines(1000.0, costs) == ["budget      16 min 40 s suffice for the attacks"]
    assert lines(200.0, costs)[1].strip() == "(None, 200, None)"
    assert lines(100.0, costs)[1].strip() == "([1], None, None)"


def test_the_text_of_evaluators_passes_over_the_reference(monkeypatch):
    """A run appends its reference to EVALUATORS."""
    monkeypatch.setattr(run, "_configuration", None)  # restored at the end
    run.configure(["gin/eval/quick.gin"], partial=True, command="evaluate")
    (evaluators,) = (item.value for item in run._configuration.bindings if item.macro == "EVALUATORS")
    assert run.evaluators_text([0, len(evaluators)]) == run.evaluators_text([0]) == "[@CleanAccuracy()]"


def test_epochs_shorten_the_last_stage_alone():
    costs = costs_of(100.0, 20, (50.0,), ("PGD",), (360,), first_stage=300.0)
    assert lines(460.0, costs) == ["budget      7 min 40 s suffice for training and the attacks"]
    assert lines(420.0, costs)[1].strip() == "(None, None, 3)"  # 300 + 15 + 50 s
    assert "do not suffice: the first stage of the training takes 5 min 0 s" in lines(390.0, costs)[0]


def test_a_budget_holds_for_a_training_without_attacks():
    costs = costs_of(100.0, 20, (0.0,), ("",), (0,))
    assert lines(200.0, costs) == ["budget      3 min 20 s suffice for training"]
    assert lines(40.0, costs) == ["budget      40 s for training: 6 of 20 epochs", "            (None, None, 6)"]
    single = lines(10.0, costs_of(100.0, 1, (0.0,), ("",), (0,)))
    assert single[0] == "budget      10 s do not suffice for training, about 1 min 40 s do"
    (line,) = lines(40.0, costs_of(0.0, 0, (0.0,), ("",), (0,)))
    assert "unknown" in line


def test_few_examples_and_no_attacks_need_no_advice():
    for costs in ((0.0,), ("",), (0,)), ((100.0,), ("PGD",), (200,)):
        assert lines(None, costs_of(0.0, 0, *costs)) == []


@pytest.mark.parametrize("flags, part", stored.rows(globals(), "a_budget_is_a_time_of_a_dry_run"))
def test_a_budget_is_a_time_of_a_dry_run(flags, part, capsys):
    assert train.main(["--gin_file=gin/supervised.gin", *flags]) == 2
    assert part in capsys.readouterr().err
