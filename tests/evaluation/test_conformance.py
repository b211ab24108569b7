"""Check every evaluator: configuration, ids, stored outcomes, limits, and independence of the batch size."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import stored

from conformance.attacks import ATTACKS
from oracles import linear_model
from tfrobust.augment.noise import AddGaussian
from tfrobust.evaluation.engine.loading import from_keras
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.keras import evaluators
from tfrobust.keras.attacks import FGSM, ThreatModel
from tfrobust.report import catalog

ATTACK = FGSM(threat=ThreatModel(epsilon=0.03))
EVALUATORS = (
    evaluators.CleanAccuracy(per_class=True),
    evaluators.AttackAccuracy(attack=ATTACK, label="x"),
    evaluators.AccuracyCurve(attack=ATTACK, epsilons=(0.0, 0.03)),
    evaluators.ExpectedRobustness(attack=ATTACK, epsilons=(0.01,)),
    evaluators.Union(members=(ATTACK, FGSM(threat=ThreatModel(norm="l2", epsilon=0.1)))),
    evaluators.AdversarialExamples(attack=ATTACK, misclassified=1),
    evaluators.Calibration(attack=ATTACK, bins=7, rms_bin_size=5, label="x"),
    evaluators.CorruptionAccuracy(names=("gaussian_noise", "fog"), severities=(1,)),
    evaluators.Stability(names=("gaussian_noise",)),
    evaluators.ReplacedPixels(share=0.3),
    evaluators.Sensitivity(projections=3),
    evaluators.EmbeddingGeometry(views=AddGaussian(deviation=0.1)),
    evaluators.Divergence(attack=ATTACK, epsilons=(0.03,)),
    evaluators.FeatureMap(natural=10),
    evaluators.CertifiedAccuracy(threat=ThreatModel(epsilon=0.03), method="crown_ibp"),
    evaluators.Smoothing(sigma=0.5, noise="uniform", radii=(0.1,), selection=9, draws=70, alpha=0.01, copies=32),
    evaluators.PredictionSets(attack=ATTACK, level=0.8, scores=("aps",)),
    evaluators.OutOfDistribution(names=("fog", "contrast"), severity=3, temperature=2.0),
    evaluators.ReferenceAccuracies(
        model="plain, version 1",
        accuracies={"accuracy.clean": {"value": 0.5, "n": 2, "low": 0.1, "high": 0.9, "settings": {"seed": 0}}},
    ),
)
# Evaluators whose batches differ from those of `Setting.predict`.
_BY_BATCHES = tuple(stored.table(globals(), "by_batches"))


def for_each(members):
    return pytest.mark.parametrize("evaluator", members, ids=lambda evaluator: type(evaluator).__name__)


@for_each(EVALUATORS)
def test_configuration_ids_and_outcome_survive(evaluator, setting, tmp_path, monkeypatch):
    again = type(evaluator).from_config(json.loads(json.dumps(evaluator.get_config())))
    assert again.get_config() == evaluator.get_config()
    identified = dataclasses.replace(setting, predictor=dataclasses.replace(setting.predictor, weights_sha256="w"))
    first = run_evaluation([evaluator], identified, cache_directory=tmp_path)
    produced = [item.id for item in (*first.measurements, *first.series)]
    assert len(produced) == len(set(produced))
    missing = {"noise.non_uniform.accuracy", "noise.replacement"}  # wants training images
    assert set(evaluator.ids()) - set(produced) <= missing
    # The catalogue has a record of each number, and the settings say which.
    names = {m.id: m.id.removeprefix(catalog.REFERENCE) for m in first.measurements}
    read = [m.id for m in first.measurements if any(r.read(names[m.id], m.settings) for r in catalog.records())]
    assert read == list(names)
    monkeypatch.delattr(type(evaluator), "run")
    assert run_evaluation([again], identified, cache_directory=tmp_path) == first


@for_each([evaluator for evaluator in EVALUATORS if isinstance(evaluator, _BY_BATCHES)])
def test_batches_make_no_difference(evaluator, setting):
    by_thirty, by_two = (evaluator.run(dataclasses.replace(setting, batch_size=size)).measurements for size in (30, 2))
    assert [m.id for m in by_thirty] == [m.id for m in by_two]
    for first, second in zip(by_thirty, by_two, strict=True):
        assert second.n == first.n and second.value == pytest.approx(first.value, rel=1e-4, abs=1e-6)


@for_each(
    [
        evaluator
        for evaluator in EVALUATORS
        if hasattr(evaluator, "limit") and not isinstance(evaluator, evaluators.AdversarialExamples)
    ]
)
def test_a_limit_is_kept(evaluator, setting):
    outcome = dataclasses.replace(evaluator, limit=9).run(setting)
    counts = [item.n for item in outcome.measurements] + [
        n for item in outcome.series for n in item.columns.get("n", ())
    ]
    assert counts and max(counts) <= 9


@for_each([evaluator for evaluator in EVALUATORS if evaluator.uses_embedding])
def test_without_an_embedding_what_needs_it_is_left_out_and_said(evaluator, setting):
    bare = from_function(setting.predictor.logits, image_shape=linear_model.SHAPE)
    outcome = evaluator.run(dataclasses.replace(setting, predictor=bare))
    assert [m.id for m in outcome.measurements if "utility" not in m.id] == []
    assert not any("geometry" in series.id or "sensitivity" in series.columns for series in outcome.series)
    assert [(finding.check, finding.verdict) for finding in outcome.findings] == [("embedding", "warn")]


def _predictor(scale: float):
    """Return the predictor of a linear Keras model that takes pixels in [0, scale], with a surrogate of its kind."""
    predict, *_ = linear_model.make(30)
    layers = [keras.Input(linear_model.SHAPE), keras.layers.Rescaling(1 / scale), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(2)])
    bias = predict(np.zeros((1, *linear_model.SHAPE), np.float32)).numpy()[0]
    kernel = predict(np.eye(12, dtype=np.float32).reshape(12, *linear_model.SHAPE)).numpy() - bias
    model.layers[-1].set_weights([kernel, bias])
    return from_keras(model).with_surrogate(from_keras(model))


def _values(outcome):
    rows = [(measurement.id, measurement.value, measurement.n) for measurement in outcome.measurements]
    return rows, [series.columns for series in outcome.series]


@for_each([evaluator for evaluator in EVALUATORS if not isinstance(evaluator, evaluators.AdversarialExamples)])
def test_the_range_of_the_pixels_makes_no_difference(evaluator, setting):
    # 256 only moves exponents, so that the arithmetic of both is equal to the last bit.
    unit, levels = _predictor(1.0), _predictor(256.0).on_unit_pixels(0.0, 256.0)
    of_unit, of_levels = (
        _values(evaluator.run(dataclasses.replace(setting, predictor=predictor))) for predictor in (unit, levels)
    )
    assert of_unit[0] or of_unit[1]
    np.testing.assert_equal(of_levels, of_unit)


@pytest.mark.rest
@pytest.mark.parametrize("row", ATTACKS, ids=lambda row: row.label)
def test_the_range_of_the_pixels_makes_no_difference_to_an_attack(row, setting):
    norm = row.kinds[0]
    unit, levels = _predictor(1.0), _predictor(256.0).on_unit_pixels(0.0, 256.0)
    epsilon = {"linf": 0.03, "l2": 0.1, "l1": 0.2}[norm]
    evaluator = evaluators.AttackAccuracy(attack=row.make(ThreatModel(norm=norm, epsilon=epsilon)))
    of_unit, of_levels = (
        evaluator.run(dataclasses.replace(setting, predictor=predictor)) for predictor in (unit, levels)
    )
    assert _values(of_levels) == _values(of_unit)
