"""Every flaw planted in a model is caught by its own finding; no sound model fails."""

import pytest
import stored

from oracles import flawed_models
from tfrobust.evaluation import doctor
from tfrobust.evaluation.doctor.evaluator import Doctor
from tfrobust.evaluation.doctor.full import FullDoctor, enlarged, stronger
from tfrobust.evaluation.engine.searching import search
from tfrobust.keras.attacks import PGD, Square

LIMIT = 64


def standing(setting, attack):
    return ~search(setting, attack, setting.subset(LIMIT)).success


def large(setting, attack):
    attack = enlarged(attack, setting)
    return doctor.full.check_large(setting, attack, setting.subset(LIMIT), standing(setting, attack))


def effort(setting, attack):
    attacks = [attack, stronger(attack, 4)]
    return doctor.full.check_effort(attacks, *(standing(setting, variant) for variant in attacks))


def black_box(setting, attack):
    square = Square(threat=attack.threat, steps=300)
    return doctor.full.check_black_box(square, standing(setting, attack), standing(setting, square))


def transfer(setting, attack):
    white = standing(setting, attack)
    return doctor.full.check_transfer(setting, attack, setting.subset(LIMIT), white, surrogate_steps=100)


CHECKS = stored.table(globals(), "checks")


def described(findings):
    return [(finding.check, finding.verdict, finding.evidence) for finding in findings if finding.verdict != "pass"]


@pytest.mark.parametrize("flaw", flawed_models.FLAWS, ids=lambda flaw: flaw.name)
def test_a_planted_flaw_is_caught_by_its_finding(flaw):
    caught = CHECKS[flaw.check](flaw.make(), flaw.attack)
    assert (caught.check, caught.verdict) == (flaw.check, flaw.verdict), caught
    assert any(digit in caught.evidence for digit in "0123456789") or flaw.check == "gradients"
    assert caught.remedy


@pytest.mark.parametrize("name", ["infinite slope", "gradient of another network", "adversaries between grey levels"])
def test_the_whole_doctor_reports_it_too(name):
    (flaw,) = [flaw for flaw in flawed_models.FLAWS if flaw.name == name]
    findings = Doctor(attack=flaw.attack, factors=(1.0, 2.0), limit=LIMIT).run(flaw.make()).findings
    verdicts = {finding.check: finding.verdict for finding in findings}
    assert len(verdicts) == len(findings) and verdicts[flaw.check] == flaw.verdict
    assert all(finding.remedy for finding in findings if finding.verdict != "pass")


@pytest.mark.parametrize("name", flawed_models.HEALTHY)
def test_a_sound_model_does_not_fail(name):
    setting, attack = flawed_models.HEALTHY[name]()
    findings = described(Doctor(attack=attack, factors=(1.0, 2.0), limit=100).run(setting).findings)
    # 150 test images are few: the only thing there is to say, and too few for a hundred classes.
    expected = {("test_size", "warn")} | ({("classes", "warn")} if name == "a hundred classes" else set())
    assert {(check, verdict) for check, verdict, _ in findings} <= expected, findings


@pytest.mark.parametrize("name", flawed_models.FULLY_EXAMINED)
def test_nor_does_it_under_the_full_doctor(name):
    setting, attack = flawed_models.HEALTHY[name]()
    attack, square = PGD(threat=attack.threat, steps=30), Square(threat=attack.threat, steps=300)
    examined = FullDoctor(attack=attack, black_box=square, limit=LIMIT, surrogate_steps=100)
    findings = examined.run(setting).findings
    assert {finding.check for finding in findings} == {"large_epsilon", "more_effort", "black_box", "transfer"}
    assert not [description for description in described(findings) if description[1] == "fail"]
