"""The lines of an evaluation."""

import pytest
import stored

from tfrobust.attacks import apgd, ensemble, gradient  # noqa: F401
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.evaluation import progress
from tfrobust.evaluation.engine.searching import AttackTask

PGD = gradient.PGD(ThreatModel(epsilon=0.2), steps=100)


@pytest.fixture
def lines_of(monkeypatch, capsys):
    """Return the lines that calls with a verbosity print."""
    monkeypatch.setattr(progress.Live, "seconds", 12.0)

    def of(verbose, *calls):
        with progress.ConsoleProgress(verbose) as show:
            for call in calls:
                show(*call)
        return capsys.readouterr().out.splitlines()

    return of


def test_one_line_per_attack(lines_of):
    begun, ended = (AttackTask(PGD, 120, images_left, 3, 9) for images_left in (120, 62))
    calls = [("clean predictions", 9, 9), (begun, 0, 50), (ended, 50, 50), (ended, 1, 1), ("evaluation", 1, 3)]
    line = "attack 3 of 9  PGD-100  Linf 0.2  62 of 120 images left  12 s"
    assert lines_of(1, *calls) == [line], "once, though two evaluators use the search"
    assert lines_of(2, *calls) == ["clean predictions  12 s", line]
    assert lines_of(0, *calls) == []


def test_the_line_names_the_examples_and_other_attacks_are_shown_on_request(lines_of):
    task = AttackTask(PGD, 120, 62, 3, 9, examples="clips")
    assert lines_of(1, (task, 1, 1)) == ["attack 3 of 9  PGD-100  Linf 0.2  62 of 120 clips left  12 s"]
    task = AttackTask(PGD, 120, 62)
    assert lines_of(1, (task, 1, 1)) == [] and lines_of(2, (task, 1, 1)) == [
        "PGD-100  Linf 0.2  62 of 120 images left  12 s"
    ]


@pytest.mark.parametrize("attack, name", stored.rows(globals(), "names"))
def test_names(attack, name):
    assert progress.attack_title(attack) == (name, "Linf 0.2")
    task = AttackTask(attack, 1000, 100, 10, 12)
    assert len(progress._text(task)) <= 80 - len("  12 s")
