"""Planted flaws are caught, a healthy model passes."""

import numpy as np
import pytest
import tensorflow as tf

from oracles import linear_model
from tfrobust.attacks import objectives
from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.threat import ThreatModel
from tfrobust.evaluation import adversarial, doctor
from tfrobust.evaluation.base import Setting
from tfrobust.evaluation.predictor import from_function
from tfrobust.structs import AttackResult

ATTACK = PGD(threat=ThreatModel(epsilon=0.02), steps=3)
PREDICT, IMAGES, LABELS, _, _ = linear_model.make(40)


def _setting(predict, **more):
    predictor = from_function(predict, image_shape=linear_model.SHAPE)
    return Setting(predictor=predictor, images=IMAGES, labels=LABELS, batch_size=16, **more)


def _verdicts(predict, **more):
    findings = doctor.Doctor(attack=ATTACK).run(_setting(predict, **more)).findings
    for finding in findings:
        assert finding.evidence and (finding.remedy or finding.verdict == "pass")
    return {finding.check: finding.verdict for finding in findings}


def test_a_healthy_model_passes():
    verdicts = _verdicts(PREDICT, selected_on="validation")
    names = "logits deterministic batch_independent gradients monotone repredict selection"
    assert verdicts == dict.fromkeys(names.split(), "pass")


def test_softmax_output_warns_and_saturated_softmax_fails():
    assert _verdicts(lambda x: tf.nn.softmax(PREDICT(x)))["logits"] == "warn"
    verdicts = _verdicts(lambda x: tf.nn.softmax(1000 * PREDICT(x)))
    assert verdicts["logits"] == "fail" and verdicts["gradients"] == "fail"


def test_random_output_fails():
    assert _verdicts(lambda x: PREDICT(x) + tf.random.normal([tf.shape(x)[0], 2]))["deterministic"] == "fail"


def test_random_output_drawn_in_python_fails():
    generator = np.random.default_rng(0)
    verdicts = _verdicts(lambda x: PREDICT(x) + generator.normal(size=2).astype(np.float32))
    assert verdicts["deterministic"] == "fail"


def test_batch_statistics_fail():
    verdicts = _verdicts(lambda x: PREDICT(x) - tf.reduce_mean(PREDICT(x), axis=0))
    assert verdicts["batch_independent"] == "fail" and verdicts["deterministic"] == "pass"


@pytest.mark.parametrize(
    "predict",
    [
        lambda x: PREDICT(tf.round(x * 50) / 50),
        lambda x: PREDICT(tf.stop_gradient(x)),
        lambda x: PREDICT(x) + tf.sqrt(x[:, 0, 0] * 0.0) * tf.constant([0.0, 1.0]),
    ],
    ids=["rounded input", "stopped", "infinite slope"],
)
def test_masked_gradients_fail(predict):
    assert doctor.check_gradients(_setting(predict)).verdict == "fail"


def test_an_accuracy_that_rises_with_epsilon_fails(monkeypatch):
    # An attack that overshoots: it finds the small ball's points and loses the large one's.
    def broken(attack, predict, images, labels, **_):
        success = np.zeros(len(images), bool)
        success[: 25 if attack.threat.epsilon < 0.015 else 8] = True
        return AttackResult(images, success, np.zeros(len(images), np.float32))

    monkeypatch.setattr(adversarial.runner, "run_attack", broken)
    finding = doctor.check_monotone(_setting(PREDICT), ATTACK, (0.5, 1.0, 2.0), 1000)
    assert finding.verdict == "fail" and "80.0%" in finding.evidence


@pytest.mark.parametrize("lie", ["success", "outside"])
def test_saved_images_are_predicted_again(monkeypatch, lie):
    def lying(attack, predict, images, labels, **_):
        adversarial_images = np.array(images) + (0.1 if lie == "outside" else 0.0)
        wrong = np.asarray(predict(tf.constant(adversarial_images, tf.float32))).argmax(-1) != labels
        return AttackResult(adversarial_images, wrong ^ (lie == "success"), np.zeros(len(images), np.float32))

    monkeypatch.setattr(adversarial.runner, "run_attack", lying)
    assert doctor.check_repredict(_setting(PREDICT), ATTACK, 1000).verdict == "fail"


@pytest.mark.parametrize(
    ("split", "verdict"), [("test", "fail"), ("validation", "pass"), ("last", "pass"), ("", "warn")]
)
def test_selection(split, verdict):
    assert doctor.check_selection(_setting(PREDICT, selected_on=split)).verdict == verdict


def test_the_doctor_runs_each_of_its_attacks_once(monkeypatch):
    setting, calls, real = _setting(PREDICT), [], adversarial.runner.Engine
    monkeypatch.setattr(
        adversarial.runner, "Engine", lambda attack, *a, **k: calls.append(attack) or real(attack, *a, **k)
    )
    doctor.Doctor(attack=PGD(threat=ThreatModel(epsilon=0.02), steps=3)).run(setting)
    made = len(calls)
    doctor.Doctor(attack=PGD(threat=ThreatModel(epsilon=0.02), steps=3)).run(setting)
    assert made == len(calls) == len(doctor.Doctor(attack=ATTACK).factors)


def test_gradient_check_looks_at_the_loss_the_attacks_climb():
    found = doctor._input_gradient(PREDICT, IMAGES[:4], LABELS[:4])
    images = tf.constant(IMAGES[:4])
    with tf.GradientTape() as tape:
        tape.watch(images)
        loss = objectives.cross_entropy(PREDICT, tf.constant(LABELS[:4]))(images)
    np.testing.assert_allclose(found, tape.gradient(loss, images))


def test_bad_arguments():
    with pytest.raises(ValueError, match="factors"):
        doctor.Doctor(attack=ATTACK, factors=(1.0,))
    with pytest.raises(ValueError, match="limit"):
        doctor.Doctor(attack=ATTACK, limit=0)
