"""Every planted flaw is caught by its own finding; no sound model fails. The table of both is what this prints."""

import collections

import pytest

from oracles import flawed_models
from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.square import Square
from tfrobust.evaluation.doctor import Doctor
from tfrobust.evaluation.doctor_full import FullDoctor


def findings_of(setting, attack, full=False):
    if full:
        square = Square(threat=attack.threat, steps=300)
        doctor = FullDoctor(attack=attack, black_box=square, limit=64, surrogate_steps=100)
    else:
        doctor = Doctor(attack=attack, factors=(1.0, 2.0), limit=100)
    return doctor.run(setting).findings


def described(findings):
    return [(finding.check, finding.verdict, finding.evidence) for finding in findings if finding.verdict != "pass"]


@pytest.mark.parametrize("flaw", flawed_models.FLAWS, ids=lambda flaw: flaw.name)
def test_a_planted_flaw_is_caught_by_its_finding(flaw):
    findings = findings_of(flaw.make(), flaw.attack, flaw.full)
    verdicts = {finding.check: finding for finding in findings}
    assert len(verdicts) == len(findings)
    caught = verdicts[flaw.check]
    assert caught.verdict == flaw.verdict, (caught, described(findings))
    assert any(digit in caught.evidence for digit in "0123456789") or flaw.check in ("selection", "gradients")
    assert all(finding.remedy for finding in findings if finding.verdict != "pass")


@pytest.mark.parametrize("name", flawed_models.HEALTHY)
def test_a_sound_model_does_not_fail(name):
    setting, attack = flawed_models.HEALTHY[name]()
    findings = findings_of(setting, attack)
    assert not [found for found in described(findings) if found[1] == "fail"]
    # 150 test images are few: the only thing there is to say of most.
    warned = {found[0] for found in described(findings)} - {"test_size"}
    assert warned <= flawed_models.WARNED.get(name, set()), described(findings)


@pytest.mark.parametrize("name", flawed_models.FULLY_EXAMINED)
def test_nor_does_it_under_the_full_doctor(name):
    setting, attack = flawed_models.HEALTHY[name]()
    findings = findings_of(setting, PGD(threat=attack.threat, steps=30), full=True)
    assert {finding.check for finding in findings} == {"large_epsilon", "more_effort", "black_box", "transfer"}
    assert not [found for found in described(findings) if found[1] == "fail"]


def test_the_zoo_is_large_enough():
    kinds = collections.Counter(flaw.check for flaw in flawed_models.FLAWS)
    assert len(flawed_models.FLAWS) >= 15 and len(kinds) >= 12
    assert len(flawed_models.HEALTHY) >= 15
