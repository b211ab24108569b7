"""A setting decides once, from all clean images, what kind of answers a model gives."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from oracles import linear_model
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import baseline
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.keras import evaluate
from tfrobust.keras.attacks import FGSM, ThreatModel
from tfrobust.keras.evaluators import AttackAccuracy, CleanAccuracy
from tfrobust.ops.probabilities import kind_of_outputs
from tfrobust.report import protocol

PREDICT, IMAGES, LABELS, MARGINS, _ = linear_model.make(600)
# The surest last: no first batch holds a row that reaches from one end of [0, 1] to the other.
ORDER = np.argsort(np.abs(MARGINS))
IMAGES, LABELS = IMAGES[ORDER], LABELS[ORDER]
ATTACK = AttackAccuracy(attack=FGSM(threat=ThreatModel(epsilon=0.01)))


def _scores(images):
    score = 15 * PREDICT(images)[:, 1:]
    return tf.concat([-0.5 - score, score], axis=-1)  # of -score the sigmoids would be a softmax


def _sigmoids(images):
    return tf.sigmoid(_scores(images))


def _evaluated(predict, *more, count=600, batch_size=128):
    predictor = from_function(predict, image_shape=linear_model.SHAPE)
    setting = Setting(predictor=predictor, images=IMAGES[:count], labels=LABELS[:count], batch_size=batch_size)
    outcome = run_evaluation([CleanAccuracy(), *more], setting)
    return {
        measurement.id: measurement.value for measurement in outcome.measurements if measurement.id != "cost.evaluation"
    }, outcome.findings


def test_the_kind_of_answers_is_decided_once_from_all_images():
    answers = _sigmoids(IMAGES).numpy()
    assert [kind_of_outputs(answers[:count]) for count in (2, 128, 600)] == ["unclear", "unclear", "sigmoid"]
    values, findings = _evaluated(_sigmoids, ATTACK)
    alone = {"accuracy.clean": values["accuracy.clean"]}
    assert _evaluated(_sigmoids, batch_size=2) == (alone, findings) and _evaluated(_scores) == (alone, [])
    assert [(finding.check, finding.verdict) for finding in findings] == [("logits", "fail")]


def test_answers_that_may_be_probabilities_are_named_even_where_no_doctor_looks():
    _, findings = _evaluated(_sigmoids, count=20)
    assert [(finding.check, finding.verdict) for finding in findings] == [("logits", "warn")]
    assert _evaluated(_scores, count=20)[1] == []


def test_logits_that_end_at_0_and_1_are_judged_and_have_a_way_out():
    def hard(images):
        return tf.clip_by_value(_scores(images) / 6 + 0.5, 0.0, 1.0)

    values, findings = _evaluated(hard, ATTACK)
    assert [(finding.check, finding.verdict) for finding in findings] == [("logits", "fail")]
    moved, findings = _evaluated(lambda images: hard(images) - 1)
    assert findings == [] and moved["accuracy.clean"] == values["accuracy.clean"]


def test_one_hot_labels_may_have_columns_for_classes_that_the_model_lacks():
    predictor = from_function(PREDICT, image_shape=linear_model.SHAPE)
    setting = Setting(predictor=predictor, images=IMAGES[:9], labels=np.eye(12)[LABELS[:9]])
    np.testing.assert_array_equal(setting.labels, LABELS[:9])
    with pytest.raises(InputError, match="A label is 11, but function has the classes 0 to 1"):
        Setting(predictor=predictor, images=IMAGES[:2], labels=np.eye(12)[[0, 11]])


def test_a_model_and_its_conversion_to_an_integer_input_have_one_data_set():
    """The images of the conversion are rounded to what it can store, and its numbers are those of the same test set."""
    exact = from_function(PREDICT, image_shape=linear_model.SHAPE)
    predictors = (exact, dataclasses.replace(exact, grid=1 / 255))
    settings = [Setting(predictor=predictor, images=IMAGES, labels=LABELS) for predictor in predictors]
    assert np.any(settings[0].images != settings[1].images) and settings[0].data_sha256 == settings[1].data_sha256
    assert len({baseline.images_of(setting, np.arange(9))["images_sha256"] for setting in settings}) == 1
    reports = [
        evaluate(predictor, IMAGES, LABELS, epsilon=0.1, evaluators=(CleanAccuracy(),)) for predictor in predictors
    ]
    assert protocol.same_data([outcome.report for outcome in reports])


def test_groups_of_any_type_of_text_are_named():
    predictor, names = from_function(PREDICT, image_shape=linear_model.SHAPE), np.array(["a", "b"])[np.arange(600) % 2]
    setting = Setting(predictor=predictor, images=IMAGES, labels=LABELS, groups=names.astype(object))
    np.testing.assert_array_equal(setting.group_names, names)
