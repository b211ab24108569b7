"""Progress of an evaluation on standard output: one line per attack, and a bar on a terminal or in a notebook."""

from __future__ import annotations

from tfrobust.attacks.ensemble import Ensemble
from tfrobust.attacks.shared.attack import Attack
from tfrobust.common.console import PLAIN_INTERVAL, Heartbeat, Live, duration
from tfrobust.evaluation.engine.searching import AttackTask
from tfrobust.report.catalog.spelling import attack_name


class ConsoleProgress:
    """The progress callback of an evaluation, called as (task, done, total); use it in a `with` statement.

    Args:
        verbose: 0 prints nothing, 1 a line per attack of the evaluation, 2 a line per task.
        lines: False to show only the bar, which leaves nothing behind.
    """

    def __init__(self, verbose: int = 1, lines: bool = True):
        self._verbose, self._lines, self._live = verbose, lines, Live()
        self._task, self._printed = None, set()
        self._heartbeat = Heartbeat("", PLAIN_INTERVAL / 2 if verbose and lines else None)

    def __enter__(self) -> ConsoleProgress:
        self._heartbeat.__enter__()
        return self

    def __exit__(self, *_) -> None:
        self._heartbeat.__exit__()
        self._live.close()

    def __call__(self, task: str | AttackTask, done: int, total: int) -> None:
        """Show `done` of `total` steps of a task; the task ends at `total`, or when another one begins.

        An evaluator whose tasks report nothing for half a minute is named: the task "evaluation: NAME" begins it.
        """
        first, _, evaluator = task.partition(": ") if isinstance(task, str) else ("", "", "")
        if first == "evaluation" and evaluator:
            self._heartbeat.begin(evaluator)
        if not self._verbose or first == "evaluation":  # the count of evaluators, in between their tasks
            return
        self._heartbeat.reported()
        name = (task.number, task.attack.name) if isinstance(task, AttackTask) else task
        if name != self._task:
            self._live.close()
            self._task = name
        self._live.show(_text(task), done, total)
        if done >= total:
            seconds = self._live.seconds
            self._live.close()
            self._task = None
            self._print(task, seconds)

    def _print(self, task: str | AttackTask, seconds: float) -> None:
        number = task.number if isinstance(task, AttackTask) else 0
        if self._lines and (number or self._verbose > 1) and number not in self._printed:
            self._printed |= {number} - {0}  # a search that several evaluators use ends more than once
            print(f"{_text(task)}  {duration(seconds)}", flush=True)


def attack_title(attack: Attack) -> tuple[str, str]:
    """Return the display names of an attack and its budget: "PGD-100" and "Linf 0.2"."""
    steps = attack.steps if attack.name.endswith("pgd") else ""
    names = [member.name for member in attack.members] if attack.name == Ensemble.name else [f"{attack.name}{steps}"]
    threats = getattr(attack, "threats", (attack.threat,))
    return " + ".join(map(attack_name, names)), ", ".join(threat.budget.capitalize() for threat in threats)


def _text(task: str | AttackTask) -> str:
    """Return a task's line without its time: "attack 3 of 9  PGD-100  Linf 0.2  62 of 120 images left"."""
    if not isinstance(task, AttackTask):
        return task
    position = f"attack {task.number:{len(str(task.count))}} of {task.count}  " if task.number else ""
    member = f"  {attack_name(task.member)}" if task.member else ""
    remaining = f"{task.remaining} of {task.images} {task.examples} left"
    return f"{position}{'  '.join(attack_title(task.attack))}{member}  {remaining}"
