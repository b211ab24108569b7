"""Stochastic models: votes in clean accuracy, attacks, settings and keys; deterministic models are predicted once."""

import dataclasses

import pytest
import tensorflow as tf

from oracles.chance import IMAGES, LABELS, deviation, fixed, wrong_by_chance
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.keras import evaluate
from tfrobust.keras.attacks import FGSM, ThreatModel
from tfrobust.keras.evaluators import AttackAccuracy, CleanAccuracy, CorruptionAccuracy

EVALUATORS = (CleanAccuracy(), AttackAccuracy(attack=FGSM(ThreatModel(epsilon=0.1))))


def setting(predict, **options):
    return Setting(predictor=from_function(predict, image_shape=(2, 2, 1)), images=IMAGES, labels=LABELS, **options)


@pytest.mark.parametrize(
    "votes,share",  # of binomial draws: P(B(10, 0.3) <= needed - 1)
    [((1, 1), 0.7), ((10, 1), 0.0282), ((10, 3), 0.3828), ((10, 5), 0.8497), ((10, 10), 1.0)],
)
def test_accuracies_are_those_of_the_binomial_distribution(votes, share):
    tf.random.set_seed(1)
    clean, attacked, drop, *_ = run_evaluation(EVALUATORS, setting(wrong_by_chance, votes=votes)).measurements
    for measured in (clean, attacked):
        assert abs(measured.value - share) <= deviation(share)
        assert measured.settings.get("votes") == (None if votes == (1, 1) else list(votes))
    assert attacked.settings["forward_passes"] == pytest.approx(votes[0] + clean.value, abs=0.1)
    is_nested = share == 1  # otherwise some images are correct in the draws of the attack alone
    assert drop.settings["interval"].endswith("Wilson among the correctly classified" if is_nested else "delta method")


@pytest.mark.parametrize("predict,runs", [(fixed, 1), (wrong_by_chance, 2)])
def test_votes_belong_to_the_keys_of_stochastic_models_alone(predict, runs, tmp_path):
    outcomes = []
    for votes in ((10, 5), (7, 2)):
        new = setting(predict, votes=votes)
        object.__setattr__(new, "predictor", dataclasses.replace(new.predictor, weights_sha256="a"))
        outcomes.append(run_evaluation(EVALUATORS, new, cache_directory=tmp_path))
    first, second = (outcome.measurements[1].settings for outcome in outcomes)
    assert (first == second) == ("votes" not in first) == (runs == 1)
    assert len(list(tmp_path.glob("*.json"))) == len(EVALUATORS) * runs


def test_a_deterministic_model_is_predicted_once():
    default, once = (
        evaluate(fixed, IMAGES, LABELS, epsilon=0.1, evaluators=EVALUATORS, votes=v) for v in ((10, 5), (1, 1))
    )
    assert default.measurements[:-1] == once.measurements[:-1] and 0 < once["fgsm"].value < once["clean"].value
    votes = evaluate(wrong_by_chance, IMAGES, LABELS, epsilon=0.1, evaluators=EVALUATORS, votes=(3, 2))["clean"]
    assert votes.settings["votes"] == [3, 2]


def test_the_drop_under_a_corruption_compares_one_prediction_with_one(monkeypatch):
    """A corruption without effect takes nothing from a model that errs by chance, though votes are kinder."""
    monkeypatch.setattr("tfrobust.corruptions.corrupt", lambda images, *arguments, **keywords: images)
    tf.random.set_seed(1)
    judged = setting(wrong_by_chance, votes=(10, 5))
    run = CorruptionAccuracy(names=("brightness",), severities=(1,)).run(judged)
    (drop,) = [m for m in run.measurements if m.id == "corruption.brightness.1.drop"]
    assert judged.clean_correct.mean() > 0.8 and abs(drop.value) < 0.12  # beside votes it would be 0.18
