"""Judging a model of text: what is measured, what is refused, and that a finding speaks of sentences."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from oracles.bag_of_words import BagOfWords
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import base, loading
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators.calibration import Calibration, brier_scores
from tfrobust.evaluation.runner import cache_key, run_evaluation
from tfrobust.keras import evaluate
from tfrobust.keras.attacks import FGSM, ThreatModel
from tfrobust.keras.evaluators import AttackAccuracy, CleanAccuracy, Doctor
from tfrobust.methods.supervised import Supervised
from tfrobust.models.heads.linear import LinearHead
from tfrobust.report.opening import opening
from tfrobust.report.schema import Report

GENERATOR = np.random.default_rng(0)
SIZES = GENERATOR.integers(1, 7, (60, 1))
TOKENS = np.where(np.arange(6) < SIZES, GENERATOR.integers(2, 9, (60, 6)), 0)
SCORES = np.linspace(-1, 1, 9, dtype=np.float32) * (np.arange(9) > 1)
LABELS = (SCORES[TOKENS].sum(1) > 0).astype(int)
WORDS = ("[PAD]", "[UNK]", *"abcdefg")


def predict(tokens):
    assert tokens.dtype == tf.int32
    total = tf.reduce_sum(tf.gather(tf.constant(SCORES), tokens), axis=1)
    return tf.stack([-3 * total, 3 * total], axis=1)


def _setting(tokens=TOKENS, labels=LABELS, **more):
    predictor = from_function(predict, image_shape=(6,), name="words")
    return base.Setting(predictor=predictor, images=tokens, labels=labels, vocabulary=WORDS, batch_size=16, **more)


def test_a_report_of_one_call_is_of_sentences():
    report = evaluate(from_function(predict, image_shape=(6,)), TOKENS, LABELS, evaluators=(CleanAccuracy(),)).report
    assert opening(Report.from_json(report.to_json())).answer.startswith("On unmodified sentences this model is wrong")
    assert report.threat.endswith("only unmodified test sentences.")
    assert not any("AutoAttack" in line for line in report.not_measured)


def test_accuracy_and_calibration_of_sentences():
    outcome = run_evaluation((CleanAccuracy(), Calibration()), _setting(labels=np.arange(60) % 2))
    measurements = {measurement.id: measurement for measurement in outcome.measurements}
    accuracy = np.mean((SCORES[TOKENS].sum(1) > 0) == np.arange(60) % 2)
    assert measurements["accuracy.clean"].value == pytest.approx(accuracy)
    logits = predict(tf.constant(TOKENS, tf.int32)).numpy()
    brier = brier_scores(logits, np.arange(60) % 2).mean()
    assert measurements["calibration.brier"].value == pytest.approx(brier, rel=1e-6)
    assert measurements["accuracy.clean"].settings["interval"] == "95 % over sentences, Wilson"
    assert "sentences" in measurements["calibration.nll"].settings["interval"] and not outcome.findings


def test_the_doctor_judges_what_text_has():
    training = {"selected_on": "last", "train_images": TOKENS[:20] * (TOKENS[:20] != 8), "train_labels": LABELS[:20]}
    findings = {finding.check: finding for finding in run_evaluation((Doctor(),), _setting(**training)).findings}
    checks = "logits deterministic batch_independent clean_accuracy test_size duplicates selection"
    assert set(findings) == set(checks.split())
    assert findings["deterministic"].evidence.startswith("Equal sentences")
    duplicates = np.sum([any(np.array_equal(row, other) for other in training["train_images"]) for row in TOKENS])
    assert 0 < duplicates < 60 and f"Of 60 test sentences {duplicates} (" in findings["duplicates"].evidence
    texts = " ".join(finding.evidence + finding.remedy for finding in findings.values())
    assert "image" not in texts and "pixel" not in texts


def test_what_makes_no_sense_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match="words takes text: Doctor.attack must be None"):
        run_evaluation((Doctor(attack=FGSM(ThreatModel(epsilon=0.2))),), _setting())
    images = np.zeros([4, 8, 8, 1]) + np.linspace(0, 1, 4)[:, None, None, None]
    predictor = from_function(lambda x: tf.reduce_sum(x, axis=(1, 2)) * [[1.0, 2.0]], image_shape=(8, 8, 1))
    with pytest.raises(ValueError, match="takes images: Doctor.attack must be a short attack"):
        run_evaluation((Doctor(),), base.Setting(predictor=predictor, images=images, labels=[0, 1, 1, 1]))
    with pytest.raises(ValueError, match=r"^AttackAccuracy do not support such data: these data are text"):
        run_evaluation((CleanAccuracy(), AttackAccuracy(attack=FGSM(ThreatModel(epsilon=0.2)))), _setting())
    with pytest.raises(ValueError, match="OfSentences do not support such data: these are images"):
        run_evaluation((OfSentences(),), base.Setting(predictor=predictor, images=np.ones([2, 8, 8, 1]), labels=[0, 1]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfSentences(base.Evaluator):
    kinds = ("text",)

    def run(self, setting):
        return base.Outcome()


def test_kept_outcomes_hang_on_the_strengths():
    strengths = np.where(TOKENS > 0, 0.5, np.nan).astype(np.float32)
    settings = [_setting(), _setting(strengths=strengths), _setting(strengths=strengths / 2)]
    assert len({cache_key(CleanAccuracy(), setting, {}) for setting in settings}) == 3


def test_a_method_and_a_functional_model_of_tokens_are_judged():
    method = Supervised(BagOfWords(9), LinearHead(2))
    method.build((None, 6))
    inputs = keras.Input((6,), dtype="int32")
    hidden = keras.layers.Flatten()(keras.layers.Embedding(9, 4)(inputs))
    functional = keras.Model(inputs, keras.layers.Dense(2)(hidden))
    for model in (method, functional):
        predictor = loading.from_keras(model)
        assert predictor.is_text and predictor.image_shape == (6,) and predictor.class_count == 2
        setting = base.Setting(predictor=predictor, images=TOKENS, labels=LABELS)
        assert not setting.predictor.differentiable and "tokens" in setting.predictor.no_gradient
        np.testing.assert_allclose(setting.clean_logits, model(TOKENS.astype(np.int32)), rtol=1e-5, atol=1e-6)
        assert setting.embed(TOKENS.astype(np.int32)).shape[0] == 60


def test_a_model_names_the_ids_of_its_vocabulary():
    tokens = keras.Input((4,), dtype="int32")
    table = keras.layers.Embedding(9, 3)(tokens) + keras.layers.Embedding(4, 3)(tf.range(4)[None])
    model = keras.Model(tokens, keras.layers.Dense(2)(keras.layers.Flatten()(table)))
    method = Supervised(keras.Model(tokens, keras.layers.Flatten()(table)), LinearHead(2))
    method.compile("sgd")
    method.build((None, 4))
    good = np.array([[1, 8, 0, 0], [2, 3, 4, 5]])
    for part in (model, method):
        assert len(base.Setting(predictor=loading.from_keras(part), images=good, labels=[0, 1]).images) == 2
        with pytest.raises(InputError, match="token 9 at position 1 of sentence 0 is not in the vocabulary of 9"):
            base.Setting(predictor=loading.from_keras(part), images=good + (good == 8), labels=[0, 1])
    for call in (method.fit, method.evaluate, lambda x, y, verbose: method.predict(x, verbose=verbose)):
        for x, message in (
            (good + 1, "0 to 8; one is 9"),
            (tf.RaggedTensor.from_tensor(good, padding=0), "pad tokens by 0"),
        ):
            with pytest.raises(InputError, match=message):
                call(x, np.array([0, 1]), verbose=0)
    stream = tf.data.Dataset.from_tensors((good - 1, [0, 1]))
    with pytest.raises(InputError, match="one is -1"):
        method.fit(stream, verbose=0)
