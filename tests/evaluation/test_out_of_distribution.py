"""Detection of other images against pairs counted one by one, scikit-learn, and simulated intervals."""

import dataclasses
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from oracles import conformal as oracle
from oracles import linear_model
from tfrobust.data.sources.source import Source
from tfrobust.data.spec import ArrayExamples, Dataset
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators import out_of_distribution as detection
from tfrobust.evaluation.evaluators.corruption import Generated
from tfrobust.evaluation.evaluators.out_of_distribution import OutOfDistribution
from tfrobust.evaluation.runner import cache_key, run_evaluation


@keras.saving.register_keras_serializable(package="tests")
@dataclasses.dataclass(frozen=True, kw_only=True)
class DarkImages(Source):
    """Dark images."""

    count: int = 25
    shape: tuple = linear_model.SHAPE

    def load(self) -> Dataset:
        images = np.random.default_rng(9).uniform(0.0, 0.3, (self.count, *self.shape)).astype(np.float32)
        examples = ArrayExamples(images, np.zeros(self.count, int))
        return Dataset("dark", ("a", "b"), examples.take([]), examples.take([]), examples)


def drawn(levels, seed=0):
    """Scores with many ties."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, levels, 33) / 4, generator.integers(-2, levels - 2, 21) / 4


@pytest.mark.parametrize("levels", [1, 3, 8, 10**6])
def test_auroc_and_false_positives_equal_counts_of_pairs(levels):
    inside, outside = drawn(levels)
    inner, outer = detection.placements(inside, outside)
    expected = oracle.auroc(inside.tolist(), outside.tolist())
    assert inner.mean() == pytest.approx(expected, abs=1e-12) and outer.mean() == pytest.approx(expected, abs=1e-12)
    rates = detection.false_positives(inside, outside).mean()
    assert rates == oracle.false_positive_rate(inside.tolist(), outside.tolist())


def test_auroc_and_false_positives_agree_with_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    inside, outside = drawn(12, seed=4)
    truth, scores = np.r_[np.ones(33), np.zeros(21)], np.r_[inside, outside]
    assert detection.placements(inside, outside)[0].mean() == pytest.approx(metrics.roc_auc_score(truth, scores))
    false, true, _ = metrics.roc_curve(truth, scores, drop_intermediate=False)
    expected = false[np.flatnonzero(true >= 0.95)[0]]
    assert detection.false_positives(inside, outside).mean() == pytest.approx(expected)


def test_scores_closed_form():
    logits = np.log([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
    np.testing.assert_allclose(detection.max_softmax(logits), np.log([0.5, 0.6]))
    np.testing.assert_allclose(detection.negative_energy(logits + 2.5), [2.5, 2.5])
    # T log(2 exp(z / T)) = z + T log 2; no overflow.
    np.testing.assert_allclose(detection.negative_energy(np.full((1, 2), 1e4), 3.0), [1e4 + 3 * np.log(2)])
    # Confident outputs stay in order where the probability itself rounds to 1.
    confident = detection.max_softmax(np.array([[40.0, 0.0], [50.0, 0.0]]))
    assert confident[0] < confident[1]


@pytest.mark.parametrize("paired", [True, False])
def test_intervals_hold_in_simulations(paired):
    """Two normal distributions at a distance of 0.8: AUROC = Phi(0.8 / deviation of the difference of two scores)."""
    evaluator = OutOfDistribution() if paired else OutOfDistribution(source=DarkImages())
    generator, hits, deviation = np.random.default_rng(0), 0, math.sqrt(10 if paired else 2)
    expected = 0.5 * (1 + math.erf(0.8 / deviation / math.sqrt(2)))
    for _ in range(400):
        shared = 2 * generator.normal(size=60) if paired else 0.0  # what a corrupted image has of its original
        inside, outside = (shared + generator.normal(size=60) + shift for shift in (0.8, 0.0))
        low, high = evaluator._interval(*detection.placements(inside, outside))
        hits += low <= expected <= high
    assert 0.92 <= hits / 400 <= 0.98


def test_complete_separation_has_no_interval():
    inner, outer = detection.placements(np.arange(5.0, 9.0), np.arange(4.0))
    assert OutOfDistribution()._interval(inner, outer) == (None, None)


def numbers(outcome):
    return {measurement.id: measurement for measurement in outcome.measurements}


def test_corruptions_count_equally(setting):
    names = ("fog", "contrast", "brightness")
    outcome = OutOfDistribution(names=names, limit=20).run(setting)
    positions = setting.subset(20)
    images, inside = Generated(setting, positions), setting.clean_logits[positions].astype(float)
    confidence = lambda z: np.log(np.exp(z).max(-1) / np.exp(z).sum(-1))  # noqa: E731
    energy = lambda z: np.log(np.exp(z).sum(-1))  # noqa: E731
    measurements = numbers(outcome)
    for name, score in (("max_softmax", confidence), ("energy", energy)):
        scores = score(inside).round(9).tolist()
        scores_by_name = [score(images.logits(corrupted, 5).astype(float)).round(9).tolist() for corrupted in names]
        areas = [oracle.auroc(scores, other) for other in scores_by_name]
        assert measurements[f"ood.corruptions_5.{name}.auroc"].value == pytest.approx(np.mean(areas), abs=1e-9)
        np.testing.assert_allclose(outcome.series[0].columns[f"{name}_auroc"], areas, atol=1e-9)
        rates = [oracle.false_positive_rate(scores, other) for other in scores_by_name]
        assert measurements[f"ood.corruptions_5.{name}.fpr95"].value == pytest.approx(np.mean(rates), abs=1e-9)
    assert {measurement.n for measurement in measurements.values()} == {20}
    assert measurements["ood.corruptions_5.energy.auroc"].settings["names"] == sorted(names)


def test_another_data_set(setting):
    evaluator = OutOfDistribution(source=DarkImages())
    measurements = numbers(run_evaluation([evaluator], setting))
    logits = setting.predict(DarkImages().load().test.arrays()[0])
    spread = lambda z: np.abs(z[:, 1] - z[:, 0]).tolist()  # noqa: E731  (the order of confidence for two classes)
    expected = oracle.auroc(spread(setting.clean_logits), spread(logits))
    measurement = measurements["ood.dark_images.max_softmax.auroc"]
    assert measurement.value == pytest.approx(expected, abs=1e-6) and measurement.n == 25
    assert measurement.settings["test_images"] == 30
    assert "Wilson" in measurements["ood.dark_images.energy.fpr95"].settings["interval"]
    keys = {cache_key(OutOfDistribution(source=DarkImages(count=count)), setting, {}) for count in (25, 26)}
    assert len(keys) == 2 and evaluator.files_read() != OutOfDistribution(source=DarkImages(count=26)).files_read()
    with pytest.raises(ValueError, match=r"shape \(2, 2, 1\)"):
        run_evaluation([OutOfDistribution(source=DarkImages(shape=(2, 2, 1)))], setting)


def test_energy_needs_logits_and_numbers_need_outputs(setting):
    predict = setting.predictor.logits
    predictor = from_function(lambda x: tf.nn.softmax(predict(x)), image_shape=linear_model.SHAPE)
    outcome = OutOfDistribution(names=("fog",)).run(dataclasses.replace(setting, predictor=predictor))
    assert list(numbers(outcome)) == ["ood.corruptions_5.max_softmax.auroc", "ood.corruptions_5.max_softmax.fpr95"]
    (finding,) = outcome.findings
    assert finding.verdict == "warn" and "probabilities" in finding.evidence
    broken = dataclasses.replace(setting)
    object.__setattr__(broken, "clean_logits", np.full_like(setting.clean_logits, np.nan))
    outcome = OutOfDistribution(names=("fog",)).run(broken)
    assert {measurement.value for measurement in outcome.measurements} == {None}
    assert outcome.series[0].columns["energy_auroc"] == [None]
