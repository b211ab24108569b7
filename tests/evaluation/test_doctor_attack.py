"""What the doctor says of attacks: lies are found out, and a search shorter than the training's."""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf

from oracles import linear_model
from tfrobust.attacks.gradient import FGSM, PGD
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.attacks.square import Square
from tfrobust.evaluation.doctor import attack as doctor_attack
from tfrobust.evaluation.engine import searching
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.chunks import Found
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.structs import AttackResult

ATTACK = PGD(threat=ThreatModel(epsilon=0.02), steps=3)
PREDICT, IMAGES, LABELS, _, WEIGHTS = linear_model.make(40)


def _setting(**more):
    predictor = from_function(PREDICT, image_shape=linear_model.SHAPE)
    return Setting(predictor=predictor, images=IMAGES, labels=LABELS, batch_size=16, **more)


def _attack_by(monkeypatch, run):
    def compiled(attack, predict, **_):
        return types.SimpleNamespace(run=functools.partial(run, attack, predict))

    monkeypatch.setattr(searching.runner, "compile_attack", compiled)


def test_an_accuracy_that_rises_with_epsilon_fails(monkeypatch):
    # An attack that overshoots: it finds the small ball's points and loses the large one's.
    def success(attack):
        return np.arange(40) < (25 if attack.threat.epsilon < 0.015 else 8)

    def attacked(attack, predict, images, labels, **_):
        return AttackResult(images, success(attack), np.zeros(len(images), np.float32))

    _attack_by(monkeypatch, attacked)
    monkeypatch.setattr(doctor_attack, "search", lambda setting, attack, positions: Found(success(attack), None))
    finding = doctor_attack.check_monotone(_setting(), ATTACK, (0.5, 1.0, 2.0), 1000)
    assert finding.verdict == "fail" and "0.01: 37.5%, 0.02: 80.0%, 0.04: 80.0%" in finding.evidence


@pytest.mark.parametrize("lie", ["success", "outside"])
def test_saved_images_are_predicted_again(monkeypatch, lie):
    def lying(attack, predict, images, labels, **_):
        adversarial_images = np.array(images) + (0.1 if lie == "outside" else 0.0)
        wrong = np.asarray(predict(tf.constant(adversarial_images, tf.float32))).argmax(-1) != labels
        return AttackResult(adversarial_images, wrong ^ (lie == "success"), np.zeros(len(images), np.float32))

    _attack_by(monkeypatch, lying)
    finding = doctor_attack.check_repredict(_setting(), ATTACK, 1000)
    assert finding.verdict == "fail" and "40 " in finding.evidence


@pytest.mark.parametrize("moved", [0.0, 0.3])
def test_rounding_counts_whom_the_attack_made_wrong(monkeypatch, moved):
    right = PREDICT(IMAGES).numpy().argmax(-1) == LABELS

    def moving(attack, predict, images, labels, **_):
        towards = -np.sign(WEIGHTS).reshape(1, 3, 4, 1) * (2 * np.asarray(labels) - 1)[:, None, None, None]
        adversarial = np.float32(np.asarray(images) + moved * towards)
        return AttackResult(adversarial, None, np.zeros(len(images), np.float32))

    _attack_by(monkeypatch, moving)
    finding = doctor_attack.check_rounding(_setting(), ATTACK, 1000)
    said = f"Of {right.sum()} images that were made to fool the model 100.0% still do" if moved else "made no image"
    assert finding.verdict == "pass" and said in finding.evidence


def _pgd(steps, epsilon=0.02, norm="linf"):
    return PGD(threat=ThreatModel(norm=norm, epsilon=epsilon), steps=steps)


@pytest.mark.parametrize(
    ("trained", "attacks", "verdict", "said"),
    [
        (None, (_pgd(100), FGSM(threat=ThreatModel(epsilon=0.02))), "pass", "100 steps"),
        (None, (_pgd(3),), "warn", "3 steps"),
        (None, (Square(threat=ThreatModel(epsilon=0.02)),), "warn", "0 steps"),
        (("linf", 0.02, 10), (_pgd(10),), "pass", "up to 10 steps"),
        (("linf", 0.02, 10), (_pgd(9), _pgd(40, norm="l2")), "fail", "up to 9 steps"),
        (("linf", 0.02, 10), (_pgd(40, epsilon=0.015),), "warn", "0.015 at most"),
        (("linf", 0.02, 10), (_pgd(40, epsilon=0.005),), "fail", "0.005 at most"),
        (("linf", 0.02, 10), (_pgd(40, norm="l2"),), "warn", "no search along gradients"),
        (("linf", 0.02, 1), (_pgd(3),), "warn", "up to 3 steps"),
    ],
)
def test_strength(trained, attacks, verdict, said):
    known = trained and dict(zip(("norm", "epsilon", "steps"), trained, strict=True))
    setting = _setting(training_attack=known, evaluation_attacks=attacks)
    finding = doctor_attack.check_strength(setting, ATTACK)
    assert finding.verdict == verdict and said in finding.evidence
    assert bool(finding.remedy) == (verdict != "pass")


def test_alone_the_doctor_judges_his_own_attack():
    assert "3 steps" in doctor_attack.check_strength(_setting(), ATTACK).evidence
