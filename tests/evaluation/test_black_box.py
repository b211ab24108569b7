"""Models without input gradients: found out, judged by what needs none, and the report says what was left out."""

import dataclasses

import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import linear_model
from tfrobust.evaluation.doctor.evaluator import Doctor
from tfrobust.evaluation.engine import base, loading
from tfrobust.evaluation.engine.chunks import Shard
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators.accuracy import CleanAccuracy
from tfrobust.evaluation.evaluators.adversarial import AccuracyCurve, AttackAccuracy
from tfrobust.evaluation.evaluators.calibration import Calibration
from tfrobust.evaluation.evaluators.examples import AdversarialExamples
from tfrobust.evaluation.evaluators.geometry import Divergence
from tfrobust.evaluation.evaluators.sensitivity import Sensitivity
from tfrobust.evaluation.runner import run_evaluation, run_shard, runnable
from tfrobust.keras.attacks import FGSM, PGD, AutoAttack, Ensemble, Square, ThreatModel
from tfrobust.report import not_measured, threat_statement
from tfrobust.security import rehearsal

PREDICT, IMAGES, LABELS, _, _ = linear_model.make(20)
THREAT = ThreatModel(epsilon=0.04)
SQUARE = Square(THREAT, steps=10)
WHITE = (
    AttackAccuracy(attack=FGSM(THREAT)),
    AccuracyCurve(attack=PGD(THREAT, steps=2)),
    Divergence(attack=PGD(THREAT, steps=2)),
    Sensitivity(),
    AdversarialExamples(attack=PGD(THREAT, steps=2)),
)


def _setting(predict, **changes):
    predictor = dataclasses.replace(from_function(predict, image_shape=linear_model.SHAPE), **changes)
    return base.Setting(predictor=predictor, images=IMAGES, labels=LABELS, batch_size=8)


def _coarse(images):
    """255 grey levels, as an 8-bit deployment has: the gradient ends at the rounding."""
    return PREDICT(tf.round(images * 255) / 255)


@pytest.mark.parametrize("predict", stored.rows(globals(), "missing_gradients_are_found_out"))
def test_missing_gradients_are_found_out(predict):
    predictor = _setting(predict).predictor
    assert not predictor.differentiable and predictor.no_gradient


@pytest.mark.parametrize("predict", [PREDICT, lambda images: tf.nn.softmax(PREDICT(images))])
def test_gradients_that_are_there_are_found_once(predict):
    calls = []

    def counted(images):
        if isinstance(images, tf.Tensor) and tf.executing_eagerly():
            calls.append(images.shape[0])
        return predict(images)

    setting = _setting(counted)
    before = len(calls)
    assert setting.predictor.differentiable and setting.predictor.no_gradient == ""
    again = dataclasses.replace(setting, seed=1)
    once_more = dataclasses.replace(again, seed=2)
    assert once_more.predictor is setting.predictor and len(calls) == before > 0


def test_a_saved_model_without_gradients_is_judged_by_black_box_attacks(tmp_path):
    class Frozen(tf.Module):
        @tf.function
        def __call__(self, images):
            return {"logits": tf.raw_ops.PreventGradient(input=PREDICT(images), message="frozen for serving")}

    module = Frozen()
    spec = tf.TensorSpec([None, *linear_model.SHAPE], name="images")
    tf.saved_model.save(
        module, str(tmp_path), signatures={"serving_default": module.__call__.get_concrete_function(spec)}
    )
    rehearsal.remember(tmp_path)
    setting = base.Setting(predictor=loading.load(str(tmp_path)), images=IMAGES, labels=LABELS)
    outcome = run_evaluation([CleanAccuracy(), AttackAccuracy(attack=PGD(THREAT, steps=2))], setting)
    assert [m.id for m in outcome.measurements] == ["accuracy.clean", "cost.evaluation"]
    (finding,) = outcome.findings
    assert (finding.check, finding.verdict) == ("white_box", "fail")
    assert "attack.pgd_linf_0.04.accuracy" in finding.evidence and "frozen for serving" in finding.evidence


def test_what_needs_gradients_is_left_out_and_named():
    evaluators = [CleanAccuracy(), *WHITE, AttackAccuracy(attack=SQUARE), Calibration(), Doctor(attack=FGSM(THREAT))]
    outcome = run_evaluation(evaluators, _setting(_coarse))
    ids = [measured.id for measured in outcome.measurements]
    assert "accuracy.clean" in ids and "attack.square_linf_0.04.accuracy" in ids and "calibration.ece" in ids
    assert not any(word in identity for identity in ids for word in ("fgsm", "pgd", "geometry", "sensitivity"))
    kinds = {series.id.split(".")[0] for series in outcome.series}
    attacked = [series.id for series in outcome.series if "attack." in series.id]
    assert kinds == {"accuracy", "attack", "calibration", "outcomes"} and all("square" in name for name in attacked)
    finding = outcome.findings[0]
    assert (finding.check, finding.verdict) == ("white_box", "fail") and finding.remedy
    for evaluator in WHITE:
        assert evaluator.ids()[0] in finding.evidence
    assert "square" not in finding.evidence and len({f.check for f in outcome.findings}) == len(outcome.findings)
    # The doctor leaves out by itself what needs gradients, and what it says of them is said once.
    checks = {f.check for f in outcome.findings}
    assert "deterministic" in checks and not checks & {"gradients", "ascent"}
    assert "White-box attacks" in not_measured(outcome.measurements, outcome.findings)[0]
    assert "provides no input gradients" in threat_statement(outcome.measurements, outcome.findings)
    assert "White-box attacks" not in not_measured(outcome.measurements)[0]


def test_only_black_box_attacks_asked_for_is_a_warning():
    setting = _setting(_coarse)
    outcome = run_evaluation([AttackAccuracy(attack=SQUARE)], setting)
    assert [finding.verdict for finding in outcome.findings if finding.check == "white_box"] == ["warn"]
    black = Ensemble((SQUARE, another("other")))
    evaluators, findings = runnable([AttackAccuracy(attack=black)], setting)
    assert evaluators == [AttackAccuracy(attack=black)] and findings[0].verdict == "warn"


def another(name):
    """A second black-box attack of another name."""
    return type("Other", (Square,), {"name": name})(THREAT, steps=10)


def test_what_is_left_of_autoattack_is_not_called_autoattack():
    setting = _setting(_coarse)
    evaluators, (finding,) = runnable(
        [AttackAccuracy(attack=AutoAttack(THREAT), seconds=60.0), CleanAccuracy()], setting
    )
    assert [type(evaluator) for evaluator in evaluators] == [AttackAccuracy, CleanAccuracy]
    assert evaluators[0].ids()[0] == "attack.square_linf_0.04.accuracy" and evaluators[0].seconds == 60.0
    assert "attack.autoattack_linf_0.04.accuracy" in finding.evidence and finding.verdict == "fail"
    # Asked for by itself too, Square runs once, as it was asked for.
    for order in (1, -1):
        asked = [AttackAccuracy(attack=AutoAttack(THREAT)), AttackAccuracy(attack=SQUARE)][::order]
        assert runnable(asked, setting)[0] == [AttackAccuracy(attack=SQUARE)]
    twice = [AttackAccuracy(attack=AutoAttack(THREAT)), AttackAccuracy(attack=AutoAttack(THREAT), label="again")]
    assert len(runnable(twice, setting)[0]) == 1


def test_nothing_is_left_out_of_a_model_with_gradients():
    evaluators = [AttackAccuracy(attack=AutoAttack(THREAT)), *WHITE]
    assert runnable(evaluators, _setting(PREDICT)) == (evaluators, [])


def test_nothing_left_to_run_is_refused():
    for evaluators in (WHITE, [AttackAccuracy(attack=AutoAttack(THREAT, version="rand"))]):
        with pytest.raises(ValueError, match="no input gradients.*square.gin") as caught:
            run_evaluation(evaluators, _setting(_coarse))
        assert len(str(caught.value)) <= 300 and "\n" not in str(caught.value)


def test_shards_make_the_same_choice(tmp_path):
    evaluators = [CleanAccuracy(), *WHITE, AttackAccuracy(attack=SQUARE)]
    setting = _setting(_coarse, weights_sha256="w")
    assert run_shard(evaluators, setting, Shard(1, 1), cache_directory=tmp_path) == 20
    sharded = run_evaluation(evaluators, setting, cache_directory=tmp_path)
    unsharded = run_evaluation(evaluators, setting)
    assert [m for m in sharded.measurements if "cost" not in m.id] == [
        m for m in unsharded.measurements if "cost" not in m.id
    ]
    assert sharded.findings == unsharded.findings
    assert 0 < unsharded.measurements[1].value < np.mean(PREDICT(IMAGES).numpy().argmax(-1) == LABELS)
