"""Text the whole way: trained, staged, judged, reported, published, and judged again from the export alone."""

import functools  # noqa: F401
import json

import keras
import pytest
import stored
from faults.whole_run import train_in, unverified

from oracles.bag_of_words import BagOfWords
from tfrobust.data.sources.sentiment_grammar import SentimentGrammar
from tfrobust.keras.attacks import PGD, ThreatModel  # noqa: F401
from tfrobust.keras.evaluators import Calibration, CleanAccuracy, Doctor
from tfrobust.keras.methods import AdversarialTraining  # noqa: F401
from tfrobust.runs import artifact, experiment
from tfrobust.serving.export import saved_model as export

DATA = SentimentGrammar(train_size=300, test_size=120, validation_size=60)
EVALUATORS = (CleanAccuracy(), Calibration(), Doctor())


def run(folder, **changes):
    parts = {"encoder": BagOfWords, "data": DATA, "evaluators": EVALUATORS}
    training = {"optimizer": lambda: keras.optimizers.Adam(0.05), "epochs": 4, "batch_size": 40}
    return train_in(folder, **{"name": "words"} | parts | training | changes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    with unverified():
        return folder, run(folder)


def test_the_report_is_of_sentences(trained):
    folder, report = trained
    values = {measurement.id: measurement.value for measurement in report.measurements}
    assert values["accuracy.clean"] > 0.6 and "calibration.ece" in values  # half the sentences are positive
    assert report.data["vocabulary_size"] == 170 and report.data["test_size"] == 120
    assert report.threat.endswith("only unmodified test sentences.")
    assert any("synonyms" in sentence for sentence in report.not_measured)
    assert not any("AutoAttack" in sentence or "images" in sentence for sentence in report.not_measured)
    assert {finding.check: finding.verdict for finding in report.doctor}["duplicates"] == "pass"
    page = (folder / "exported/words/1/assets.extra/robustness_report.html").read_text()
    assert "120 test sentences" in page


def test_the_export_is_judged_again_by_its_own_data(trained, tmp_path):
    folder, report = trained
    with unverified():
        again = experiment.evaluate(model=str(folder / "exported/words"), evaluators=EVALUATORS, output=str(tmp_path))
    numbers = [
        {measurement.id: measurement.value for measurement in outcome.measurements if measurement.unit != "seconds"}
        for outcome in (report, again)
    ]
    assert numbers[0] == numbers[1] and len(numbers[0]) == 6
    assert again.model["weights_sha256"] == report.model["weights_sha256"]
    assert json.loads((tmp_path / "robustness_report.json").read_text())["data"] == report.data
    vocabulary = export.read_vocabulary(folder / "exported/words/1")
    assert vocabulary == DATA.load().vocabulary


def test_the_same_run_again_finds_its_version(trained, capsys):
    folder, _ = trained
    assert run(folder).model["version"] == 1 and "published by this run before" in capsys.readouterr().out


@pytest.mark.rest
def test_other_words_are_refused(trained):
    folder, _ = trained
    dataset = DATA.load()
    export_directory = str(folder / "exported/words")
    artifact.check_vocabulary(export_directory, dataset)
    words = list(dataset.vocabulary)
    words[5], words[6] = words[6], words[5]
    object.__setattr__(dataset, "vocabulary", tuple(words))
    with pytest.raises(ValueError, match=f"the id 5 is '{words[5]}' there and '{words[6]}' here"):
        artifact.check_vocabulary(export_directory, dataset)
    object.__setattr__(dataset, "vocabulary", tuple(words[:-1]))
    with pytest.raises(ValueError, match="there are 169 words, not 170"):
        artifact.check_vocabulary(export_directory, dataset)


@pytest.mark.parametrize("change, message", stored.rows(globals(), "what_is_for_images_is_refused_before_training"))
def test_what_is_for_images_is_refused_before_training(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        run(tmp_path, **change)
    assert not list(tmp_path.iterdir())
