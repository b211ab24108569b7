"""Check the cost estimate of a dry run: passes in closed form, time from executed steps."""

import dataclasses
import re
from types import SimpleNamespace

import pytest
import stored

from tfrobust.attacks import ensemble, gradient
from tfrobust.attacks.shared import threat
from tfrobust.commands import train
from tfrobust.keras.evaluators import AccuracyCurve, AttackAccuracy, CleanAccuracy, Union  # noqa: F401
from tfrobust.runs import budget, estimate
from tfrobust.runs.settings import EvaluationSettings

PGD = gradient.PGD(threat.ThreatModel(epsilon=0.2), steps=7, restarts=2)


def attack_passes(examples, *evaluators, count=None, **settings):
    dataset = SimpleNamespace(test=range(examples), class_count=10)
    return estimate.attack_passes(EvaluationSettings(evaluators=evaluators, **settings), dataset, count)


@pytest.mark.parametrize("evaluators, forward, backward", stored.rows(globals(), "passes_of_an_evaluation"))
def test_passes_of_an_evaluation(evaluators, forward, backward):
    passes = attack_passes(360, *evaluators)
    assert (passes.forward, passes.backward) == (forward, backward)
    assert passes.forward_equivalents == forward + 2 * backward
    assert passes.uncounted == (("CleanAccuracy",) if isinstance((*evaluators, None)[0], CleanAccuracy) else ())


def test_the_largest_parts_of_an_evaluation():
    square = AttackAccuracy(
        attack=ensemble.standard_member(threat.ThreatModel(epsilon=0.2), name="square")
    )  # forward only, a third of the cost
    targeted = AttackAccuracy(attack=ensemble.standard_member(threat.ThreatModel(epsilon=0.2), name="apgd_t"))
    passes = attack_passes(360, CleanAccuracy(), square, targeted, attacked_examples=100)
    shares = passes.shares
    assert passes.examples == 100 and passes.by_evaluator[0] == ({}, "")
    costs = [(*entries.values(), names) for entries, names in passes.by_evaluator[1:]]
    assert costs == [((500_300, 100), "Square"), ((271_900, 100), "APGD-T")]
    assert list(shares.items()) == [("Square", 5003 / 7722), ("APGD-T", 2719 / 7722)]
    assert passes.per_image == (5003 + 919, 900)
    assert attack_passes(360, CleanAccuracy()).shares == {}
    several = attack_passes(360, square, Union(members=(square.attack, square.attack.with_epsilon(0.1))))
    assert several.forward == 2 * 360 * 5003 and several.by_evaluator[1][1] == "Square"
    alone, union = (entries for entries, _ in several.by_evaluator)
    assert list(union.values()) == 2 * [(360 * 5003, 360)] and alone.items() < union.items()
    pair = ensemble.Ensemble((square.attack, targeted.attack))
    assert attack_passes(360, AttackAccuracy(attack=pair, label="apgd")).by_evaluator[0][1] == "APGD"
    assert attack_passes(60, square, count=10_000).forward == 50_030_000
    first = dataclasses.replace(square, first=50)
    assert attack_passes(360, first).examples == 50 and attack_passes(360, first, attacked_examples=20).examples == 20


@pytest.mark.parametrize("evaluators", [(), (CleanAccuracy(),)])
@pytest.mark.parametrize("per_pass, line", [(0.01, "5 s for training: 1 of 10 epochs"), (None, "unknown: no step")])
def test_a_budget_is_answered_without_attacks_too(evaluators, per_pass, line, capsys):
    dataset = SimpleNamespace(test=range(60), class_count=10)
    fitting = budget.Budget(5, lambda *changes: repr(changes))
    settings = EvaluationSettings(evaluators=evaluators)
    estimate.show_evaluation(settings, dataset, per_pass, fitting, training=30.0, epochs=10)
    assert f"budget      {line}" in capsys.readouterr().out


def dry_run_output(capsys, *flags):
    assert (
        train.main(["--gin_file=gin/adversarial_training.gin", "--gin_file=gin/eval/quick.gin", *flags, "--dry_run"])
        == 0
    )
    return capsys.readouterr().out


def test_a_dry_run_makes_a_few_steps_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("_LONGEST_STEP", "_LONGEST_MEASUREMENT"):  # however busy the machine is
        monkeypatch.setattr(estimate, name, 1e9)
    text = dry_run_output(capsys, "--gin_param=EPOCHS=1000", "--gin_param=STEPS=1")
    assert "steps       10000 (10 per epoch)" in text and "passes      3 forward" in text
    rests_on = r"the median of 5 after compilation"
    (line,) = re.findall(rf"time        about (.*) \((.*) per step: {rests_on}\)", text)
    assert re.search(r"evaluation  at most 25 forward and 21 backward passes per example, by 2 attacks on 360", text)
    assert re.search(r"\n            largest parts: PGD [0-9]+%, FGSM [0-9]+%\n", text)
    # Not for what the line before names besides.
    assert re.search(r"time        at most about .* for these attacks, at training's pace", text)
    assert re.search(r"\ncheaper     at most about .*: 200 of 360 examples, accuracies to within ± 6.9 points\n", text)
    assert text.splitlines()[-1].split() == [
        *("tfrobust train --gin_file=gin/adversarial_training.gin --gin_file=gin/eval/quick.gin".split()),
        *("--gin_param=EPOCHS=1000", "--gin_param=STEPS=1", "--gin_param=EVAL_EXAMPLES=200"),
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_step_that_would_take_too_long_is_not_made(monkeypatch, capsys):
    monkeypatch.setattr(estimate, "_LONGEST_STEP", 0.0)
    monkeypatch.setattr(estimate.Stage, "loop", None)
    text = dry_run_output(capsys, "--quiet")
    assert "estimated from one forward pass, because a step would take too long here" in text
    assert "images of 10 classes" not in text  # the summary of the data
