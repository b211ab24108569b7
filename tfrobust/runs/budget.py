"""Budgets of time: fewer examples, fewer attacks, and the command that asks for them."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence

from tfrobust.common.console import duration
from tfrobust.evaluation.engine import statistics

# Fewer examples than these make intervals too wide: then the costliest attack is left out first.
_LEAST_EXAMPLES = 200
# Share of a budget that the evaluation gets at least: then there are fewer epochs.
_SHARE = 0.25


@dataclasses.dataclass(frozen=True)
class Budget:
    """The time that a run may take, and how a command is written that keeps within it.

    Attributes:
        seconds: the time; None to suggest fewer examples only.
        command: returns the command of the run with these evaluators (their positions; None: all), at most so many
            examples under attack (None: all), and so many epochs (None: as configured).
    """

    seconds: float | None
    command: Callable[[Sequence[int] | None, int | None, int | None], str]


@dataclasses.dataclass(frozen=True)
class Costs:
    """The largest cost of a run.

    Attributes:
        training: seconds of the last stage of the training; 0 for an evaluation.
        epochs: its number of epochs; 0 for an evaluation.
        searches: searches of each evaluator, with the seconds of each and the number of examples that it attacks, fewer
            for an evaluator with a limit. Evaluators that share a search take it once.
        names: display name of each evaluator's attacks.
        first_stage: seconds of a stage before, whose epochs are another setting.
    """

    training: float
    epochs: int
    searches: tuple[Mapping[Hashable, tuple[float, int]], ...]
    names: tuple[str, ...]
    first_stage: float = 0.0

    @property
    def examples(self) -> int:
        """The largest number of examples that an evaluator attacks."""
        return max((attacked for searches in self.searches for _, attacked in searches.values()), default=0)

    def evaluation(self, members: Sequence[int], examples: int) -> float:
        """Return the seconds of the attacks of some evaluators, by position, on at most so many examples."""
        searches = {search: cost for position in members for search, cost in self.searches[position].items()}
        parts = [(seconds, attacked) for seconds, attacked in searches.values() if seconds]
        return sum(seconds * min(1.0, examples / attacked) for seconds, attacked in parts)


def lines(costs: Costs, budget: Budget) -> list[str]:
    """Return the last lines of a dry run: the command that fits, and what it leaves out.

    Args:
        costs: of the run as configured.
        budget: the time, or None in it for a suggestion.
    """
    total = costs.evaluation(range(len(costs.searches)), costs.examples)
    if budget.seconds is None:
        if costs.examples <= _LEAST_EXAMPLES or not total:
            return []
        seconds = costs.evaluation(range(len(costs.searches)), _LEAST_EXAMPLES)
        return _written(costs, budget, None, _LEAST_EXAMPLES, None, f"cheaper     at most about {duration(seconds)}")
    training = costs.first_stage + costs.training
    counted = " and ".join(["training"] * bool(training) + ["the attacks"] * bool(total))
    if not counted:
        return ["budget      unknown: the time of attacks is counted, and there are none"]
    if training + total <= budget.seconds:
        return [f"budget      {duration(budget.seconds)} suffice for {counted}"]
    if costs.first_stage >= (1 - _SHARE) * budget.seconds:
        return [
            f"budget      {duration(budget.seconds)} do not suffice: the first stage of the training takes "
            f"{duration(costs.first_stage)}, and has its own epochs"
        ]
    rest, epochs = budget.seconds - training, None
    if rest < _SHARE * budget.seconds and training:
        rest = max(rest, _SHARE * budget.seconds)
        epochs = max(1, math.floor(costs.epochs * (budget.seconds - costs.first_stage - rest) / costs.training))
        epochs = None if epochs >= costs.epochs else epochs
    members, examples = chosen(costs, rest)
    taken = costs.first_stage + costs.training * (epochs or costs.epochs) / max(1, costs.epochs)
    attacking = range(len(costs.searches)) if members is None else members
    taken += costs.evaluation(attacking, costs.examples if examples is None else examples)
    heading = f"budget      {duration(budget.seconds)} for {counted}"
    if taken > budget.seconds * (1 + 1e-6):  # a single epoch or example takes longer
        heading = f"budget      {duration(budget.seconds)} do not suffice for {counted}, about {duration(taken)} do"
    return _written(costs, budget, members, examples, epochs, heading)


def chosen(costs: Costs, seconds: float) -> tuple[list[int] | None, int | None]:
    """Return which evaluators and how many examples fit: the costliest attacks go first, and one attack stays.

    Returns:
        (positions of the evaluators, None for all; number of examples, None for all).
    """
    members, least = list(range(len(costs.searches))), min(_LEAST_EXAMPLES, costs.examples)
    while True:
        exceeds = functools.partial(_exceeds, costs, members, seconds)
        examples = bisect.bisect_left(range(1, costs.examples + 1), True, key=exceeds)
        seconds_alone = {position: costs.evaluation([position], costs.examples) for position in members}
        attacking = [position for position in members if seconds_alone[position]]
        if examples >= least or len(attacking) <= 1:
            break
        members.remove(max(attacking, key=seconds_alone.__getitem__))
    digits = 10 ** max(0, len(str(examples)) - 2)
    rounded = max(1, examples // digits * digits)
    everything = len(members) == len(costs.searches)
    return None if everything else members, None if examples >= costs.examples else rounded


def _exceeds(costs: Costs, members: Sequence[int], seconds: float, examples: int) -> bool:
    return costs.evaluation(members, examples) > seconds


def _written(costs: Costs, budget: Budget, members, examples, epochs, heading: str) -> list[str]:
    left_out = [] if members is None else [costs.names[i] for i in range(len(costs.names)) if i not in members]
    changes = [
        f"{epochs} of {costs.epochs} epochs" if epochs else "",
        f"{examples:,} of {costs.examples:,} examples, accuracies to within {_points(examples)}" if examples else "",
        f"without {', '.join(left_out)}" if left_out else "",
    ]
    return [
        ": ".join(filter(None, [heading, "; ".join(filter(None, changes))])),
        f"            {budget.command(members, examples, epochs)}",
    ]


def _points(examples: int) -> str:
    """Return the largest half width of a 95 % interval over so many examples, in points."""
    return f"± {100 * statistics.Z * 0.5 / math.sqrt(examples):.1f} points"
