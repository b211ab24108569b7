"""Prediction sets against literal sets, the guarantee of their coverage, and their report."""

import dataclasses
import math

import numpy as np
import pytest

from oracles import calibration as softmax_oracle
from oracles import conformal as oracle
from oracles import linear_model
from tfrobust.evaluation import runner, summary
from tfrobust.evaluation.engine import searching
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators import prediction_sets
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.evaluators import CleanAccuracy, PredictionSets


@pytest.mark.parametrize("count", [1, 8, 9, 10, 19, 20, 99])
@pytest.mark.parametrize("per_mille", [100, 550, 700, 900, 950])
def test_thresholds_equal_counts(count, per_mille):
    scores = np.random.default_rng(count).permutation(np.r_[np.arange(count // 2), np.arange(count - count // 2)])
    threshold = prediction_sets.conformal_threshold(scores, per_mille / 1000)
    assert threshold == oracle.threshold(scores.tolist(), per_mille)


def test_unknown_scores_count_as_the_largest():
    scores = np.array([np.nan, 1.0, 2.0, 3.0])
    assert prediction_sets.conformal_threshold(scores, 0.6) == 3.0
    assert prediction_sets.conformal_threshold(scores, 0.8) == math.inf


@pytest.mark.parametrize("level", [0.55, 0.8, 0.9])
@pytest.mark.parametrize("score", prediction_sets.SCORES)
def test_coverage_is_exact_over_all_orders(score, level):
    """Each of n + 1 exchangeable examples in turn is the test example: ceil((n + 1) level) of them are covered."""
    generator = np.random.default_rng(3)
    for count in (9, 20, 33):
        logits, labels = 2 * generator.normal(size=(count + 1, 4)), generator.integers(0, 4, count + 1)
        values = prediction_sets._FUNCTIONS[score](logits, generator.uniform(size=count + 1))
        label_scores = values[np.arange(count + 1), labels]
        remaining = [np.delete(label_scores, row) for row in range(count + 1)]
        covered = [
            label_scores[i] <= prediction_sets.conformal_threshold(rest, level) for i, rest in enumerate(remaining)
        ]
        assert sum(covered) == math.ceil(round((count + 1) * level, 9))


def test_scores_of_one_example():
    logits = np.log([[0.5, 0.3, 0.2]])
    np.testing.assert_allclose(prediction_sets.aps_scores(logits, [0.4]), [[0.2, 0.62, 0.88]])
    np.testing.assert_allclose(prediction_sets.lac_scores(logits), -np.log([[0.5, 0.3, 0.2]]))
    confident = prediction_sets.lac_scores(np.array([[40.0, 0.0], [50.0, 0.0]]))
    np.testing.assert_allclose(confident, [[np.exp(-40.0), 40.0], [np.exp(-50.0), 50.0]])
    np.testing.assert_allclose(prediction_sets.aps_scores(np.zeros((1, 2)), [0.5]), [[0.25, 0.75]])  # a tie


def test_sets_equal_those_built_class_by_class():
    generator = np.random.default_rng(1)
    logits, uniforms = 2 * generator.normal(size=(80, 5)), generator.uniform(size=80)
    rows = [softmax_oracle.softmax(row) for row in logits.tolist()]
    for limit in (0.15, 0.5, 0.8, 0.97):
        adaptive = prediction_sets.aps_scores(logits, uniforms) <= limit
        smallest = prediction_sets.lac_scores(logits) <= -np.log(1 - limit)
        for i, row in enumerate(rows):
            assert set(np.flatnonzero(adaptive[i])) == oracle.adaptive(row, uniforms[i], limit)
            assert set(np.flatnonzero(smallest[i])) == oracle.least_ambiguous(row, limit)


def numbers(outcome):
    return {measurement.id: measurement for measurement in outcome.measurements}


@pytest.mark.parametrize("limit", [None, 12])
def test_measured_sets_equal_literal_ones_clean_and_under_attack(setting, limit):
    attack = PGD(threat=ThreatModel(epsilon=0.03), steps=5)
    measurements = numbers(PredictionSets(level=0.7, scores=("lac",)).run(setting))
    attacked = PredictionSets(level=0.7, scores=("lac",), attack=attack, label="pgd{steps}", limit=limit)
    measurements |= numbers(attacked.run(setting))
    calibrated = setting.predictor.logits(setting.validation_images).numpy().astype(float).tolist()
    scores = [
        1 - softmax_oracle.softmax(row)[label] for row, label in zip(calibrated, setting.validation_labels, strict=True)
    ]
    cut = oracle.threshold(scores, 700) + 1e-9
    positions = setting.subset(limit)
    points = searching.perturbed(setting, attack, positions)
    for prefix, images, labels in (
        ("conformal.lac_0.7", setting.images, setting.labels),
        ("conformal.pgd5_linf_0.03.lac_0.7", points, setting.labels[positions]),
    ):
        logits = setting.predictor.logits(images).numpy().astype(float).tolist()
        sets = [oracle.least_ambiguous(softmax_oracle.softmax(row), cut) for row in logits]
        assert measurements[f"{prefix}.coverage"].value == np.mean(
            [y in members for y, members in zip(labels, sets, strict=True)]
        )
        assert measurements[f"{prefix}.size"].value == pytest.approx(np.mean(list(map(len, sets))))
        assert measurements[f"{prefix}.empty"].value == np.mean([not members for members in sets])
        assert {measurement.n for name, measurement in measurements.items() if name.startswith(prefix)} == {len(labels)}
        assert measurements[f"{prefix}.coverage"].settings["calibration_images"] == 20
    pair = [measurements[f"conformal.{name}lac_0.7.coverage"].value for name in ("pgd5_linf_0.03.", "")]
    assert pair[0] < pair[1]


def test_a_split_too_small_for_the_level_gives_sets_of_all_classes(setting):
    measurements = numbers(PredictionSets(level=0.99).run(setting))
    values = [measurements[f"conformal.{name}"].value for name in ("lac_0.99.coverage", "aps_0.99.size")]
    assert values == [1.0, 2.0]
    assert measurements["conformal.lac_0.99.size"].settings["threshold"] is None


def test_without_a_validation_split_or_with_a_used_one_a_finding_says_so(setting):
    bare = dataclasses.replace(setting, validation_images=None, validation_labels=None)
    outcome = runner.run_evaluation([CleanAccuracy(), PredictionSets()], bare)
    assert not [measurement for measurement in outcome.measurements if measurement.id.startswith("conformal.")]
    (finding,) = [candidate for candidate in outcome.findings if candidate.check == "prediction_sets"]
    assert finding.verdict == "warn" and "no validation split" in finding.evidence
    (finding,) = PredictionSets().run(dataclasses.replace(setting, selected_on="validation")).findings
    assert "selected on the validation split" in finding.evidence
    assert not PredictionSets().run(setting).findings


def test_the_cache_depends_on_the_validation_split(setting):
    other = dataclasses.replace(setting, validation_images=setting.validation_images[::-1].copy())
    keys = {runner.cache_key(PredictionSets(), variant, {}) for variant in (setting, other)}
    assert len(keys) == 2
    assert len({runner.cache_key(CleanAccuracy(), variant, {}) for variant in (setting, other)}) == 1


def test_a_user_gives_the_validation_split_in_the_pixels_of_the_model():
    predict, images, labels, _, _ = linear_model.make(60)
    split = {"validation": (images[40:], labels[40:]), "evaluators": (PredictionSets(),), "epsilon": 0.1}
    outcome = summary.evaluate(predict, images[:40], labels[:40], **split)
    name = "conformal.lac_0.9.coverage"
    assert outcome[name].n == 40 and outcome.report.data["validation_size"] == 20
    split |= {"validation": (255 * images[40:], labels[40:]), "epsilon": 25.5, "bounds": (0, 255)}
    scaled = summary.evaluate(lambda x: predict(x / 255), 255 * images[:40], labels[:40], **split)
    assert scaled[name].value == outcome[name].value
    with pytest.raises(ValueError, match="A label is 8"):
        summary.evaluate(predict, images, labels, epsilon=0.1, validation=(images, labels + 7))


def test_outputs_of_nan_are_not_covered(setting):
    logits = setting.clean_logits.copy()
    logits[0] = np.nan
    broken = dataclasses.replace(setting, predictor=from_function(setting.predictor.logits, image_shape=(3, 4, 1)))
    object.__setattr__(broken, "clean_logits", logits)
    measurements = numbers(PredictionSets(level=0.8).run(broken))
    assert measurements["conformal.lac_0.8.empty"].value >= 1 / 30
    assert measurements["conformal.aps_0.8.coverage"].value < 1
