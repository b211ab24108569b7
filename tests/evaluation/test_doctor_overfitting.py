"""The doctor's check of catastrophic overfitting: a planted flaw, networks trained with and without it, and limits."""

import types

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import linear_model
from tfrobust.data.sources.digits import Digits
from tfrobust.evaluation.doctor import overfitting as module
from tfrobust.evaluation.doctor.overfitting import check_overfitting
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.loading import from_keras
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.keras.attacks import FGSM, ThreatModel
from tfrobust.keras.methods import AdversarialTraining, FastAdversary
from tfrobust.keras.models import CNN, LinearHead
from tfrobust.ops import overfitting

PREDICT, IMAGES, LABELS, _, _ = linear_model.make(400)
IMAGES = np.round(IMAGES * 64) / np.float32(64)
SINGLE = {"norm": "linf", "epsilon": 0.03, "steps": 1}


def finding_of(predict, **trained):
    predictor = from_function(predict, image_shape=linear_model.SHAPE)
    setting = Setting(
        predictor=predictor, images=IMAGES, labels=LABELS, batch_size=100, training_attack=trained or None
    )
    return check_overfitting(setting)


def test_a_linear_model_has_not_overfitted_and_a_shielded_one_has():
    healthy, flawed = finding_of(PREDICT, **SINGLE), finding_of(lambda x: PREDICT(linear_model.shielded(x)), **SINGLE)
    assert healthy.verdict == "pass" and "within the ball is 1.00" in healthy.evidence and not healthy.remedy
    assert flawed.verdict == "fail" and "within the ball is -1.00" in flawed.evidence and "GradAlign" in flawed.remedy
    assert "linf 0.03" in flawed.evidence and "of 256 images" in flawed.evidence


@pytest.mark.parametrize(("several", "verdict"), [(90, "pass"), (20, "fail")])
def test_both_attacks_have_the_epsilon_of_the_training(several, verdict, monkeypatch):
    attacks = []

    def search(setting, attack, positions):
        attacks.append(attack)
        standing = 100 if attack.name == "fgsm" else several
        return types.SimpleNamespace(success=np.arange(len(positions)) >= standing * len(positions) / 100)

    monkeypatch.setattr(module, "search", search)
    monkeypatch.setattr(module, "_mean_cosine", lambda setting, threat, positions: 1.0)
    assert finding_of(PREDICT, norm="l2", epsilon=0.5, steps=1).verdict == verdict
    assert [(attack.name, attack.steps) for attack in attacks] == [("fgsm", 1), ("pgd", 10)]
    assert {(attack.threat.norm, attack.threat.epsilon) for attack in attacks} == {("l2", 0.5)}
    assert finding_of(PREDICT, norm="l2", epsilon=0.5, steps=1, per_frame=True).verdict == verdict
    assert [attack.threat.frame_settings for attack in attacks] == [{}, {}, *[{"per_frame": True}] * 2]


def test_it_is_asked_of_models_that_were_trained_by_single_steps():
    assert finding_of(PREDICT) is None
    assert finding_of(PREDICT, **{**SINGLE, "steps": 10}) is None


@pytest.mark.parametrize("single, several, cosine, count", stored.rows(globals(), "the_limits"))
def test_the_limits(single, several, cosine, count):
    assert len(overfitting.signs(single, several, cosine)) == count


@pytest.mark.rest
def test_a_model_without_any_gradient_has_no_cosine_to_judge():
    flat = finding_of(lambda x: PREDICT(tf.round(x * 0.0 + 0.5)) + 0.0 * PREDICT(x), **SINGLE)
    assert flat.verdict == "pass" and "within the ball is 1.00" in flat.evidence


def trained(epsilon: float, epochs: int) -> Setting:
    """A small network after training by FGSM on the digits."""
    keras.utils.set_random_seed(0)
    digits = Digits().load()
    adversary = FastAdversary(attack=FGSM(ThreatModel(epsilon=epsilon)), noise=0.0, step=1.0, mode="train")
    parts = CNN(((8,), (16,)), dense=(32,)), LinearHead(10)
    method = AdversarialTraining(*parts, adversary=adversary, term_weights={"ce": 0.0})
    method.compile(keras.optimizers.Adam(5e-3), jit_compile=False)
    method.fit(*digits.train.arrays(), batch_size=128, epochs=epochs, verbose=0)
    images, labels = digits.test.arrays()
    facts = {"norm": "linf", "epsilon": epsilon, "steps": 1}
    return Setting(predictor=from_keras(method), images=images, labels=labels, training_attack=facts)


@pytest.mark.rest
@pytest.mark.parametrize(("epsilon", "epochs", "verdict"), [(0.3, 24, "fail"), (0.1, 8, "pass")])
def test_large_single_steps_overfit_on_the_digits_and_small_ones_do_not(epsilon, epochs, verdict):
    finding = check_overfitting(trained(epsilon, epochs))
    assert finding.verdict == verdict, finding.evidence
