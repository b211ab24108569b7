"""What an evaluation is told of the training: the images where somebody asks, the attack where there was one."""

import pytest

from tfrobust import artefact
from tfrobust.attacks.gradient import PGD
from tfrobust.data.sources.digits import Digits
from tfrobust.evaluation.accuracy import CleanAccuracy
from tfrobust.evaluation.doctor import Doctor

DATASET = Digits(validation_size=100).load()
FACTS = {"norm": "l2", "epsilon": 0.5, "attack_steps": 7, "selection": {"on": "validation"}}


def test_of_a_model_of_ours_everything_is_known():
    told = artefact.training_facts(FACTS, DATASET, (CleanAccuracy(), Doctor(attack=PGD())))
    assert told["training_attack"] == {"norm": "l2", "epsilon": 0.5, "steps": 7}
    assert told["selected_on"] == "validation"
    assert told["train_images"].shape == (1337, 8, 8, 1) and told["train_labels"].shape == (1337,)


@pytest.mark.parametrize("facts", [{}, {"selection": {}}, {"epochs": 3}])
def test_of_a_foreign_or_plainly_trained_model_no_attack_is_known(facts):
    told = artefact.training_facts(facts, DATASET, (Doctor(attack=PGD()),))
    assert told["training_attack"] is None and told["selected_on"] == ""


def test_images_are_fetched_only_where_somebody_asks_and_no_more_than_fit(monkeypatch):
    assert artefact.training_facts(FACTS, DATASET, (CleanAccuracy(),))["train_images"] is None
    monkeypatch.setattr(artefact, "_TRAINING_BYTES", 10 * 64 * 4)
    assert len(artefact.training_facts(FACTS, DATASET, (Doctor(attack=PGD()),))["train_images"]) == 10
