"""The evaluator of the smoothed classifier: from votes to the report, resumed, shared, gated and compared."""

import dataclasses
from unittest import mock

import keras
import numpy as np
import pytest

from tfrobust.certification import smoothing
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.chunks import Shard
from tfrobust.evaluation.engine.loading import from_keras
from tfrobust.evaluation.runner import run_evaluation, run_shard
from tfrobust.evaluation.summary import evaluate
from tfrobust.keras.evaluators import CleanAccuracy, Smoothing
from tfrobust.report import gate, sections
from tfrobust.report.renderers import console, html

# The classes are x < 0.5 and x > 0.5: the last image is misclassified, the one before it lies on the boundary.
IMAGES = np.array([0.0, 0.3, 0.8, 1.0, 0.5, 0.9], np.float32).reshape(6, 1, 1, 1)
LABELS = np.array([0, 0, 1, 1, 1, 0])
EVALUATOR = Smoothing(sigma=0.25, radii=(0.0, 0.25, 0.4), selection=50, draws=2000)


def linear() -> keras.Model:
    model = keras.Sequential([keras.Input((1, 1, 1)), keras.layers.Flatten(), keras.layers.Dense(2)])
    model.layers[-1].set_weights([np.array([[-1.0, 1.0]]), np.array([0.5, -0.5])])
    return model


def setting(**changes) -> Setting:
    return Setting(**({"predictor": from_keras(linear()), "images": IMAGES, "labels": LABELS} | changes))


def by_id(outcome) -> dict:
    return {m.id: m for m in outcome.measurements if not m.id.startswith("cost.")}


def test_the_measurements_are_those_of_the_certificates():
    measurements = by_id(EVALUATOR.run(setting()))
    certificates = smoothing.smoothed_certificates(linear(), IMAGES, sigma=0.25, selection=50, draws=2000)
    correct = certificates.classes == LABELS
    # Distances from the boundary: 0.5, 0.2, 0.3, 0.5, 0 and (wrong) 0.4.
    assert correct.tolist() == [True, True, True, True, False, False] and certificates.classes[4] == -1
    assert measurements["smoothing.sigma_0.25.l2_0.accuracy"].value == pytest.approx(4 / 6)
    assert measurements["smoothing.sigma_0.25.l2_0.25.accuracy"].value == pytest.approx(3 / 6)
    assert measurements["smoothing.sigma_0.25.l2_0.4.accuracy"].value == pytest.approx(2 / 6)
    mean = measurements["smoothing.sigma_0.25.acr"]
    assert mean.value == pytest.approx(np.mean(certificates.radii * correct)) and mean.low < mean.value < mean.high
    assert measurements["smoothing.sigma_0.25.abstention"].value == pytest.approx(1 / 6)
    settings = measurements["smoothing.sigma_0.25.l2_0.25.accuracy"].settings
    expected = {"n0": 50, "n": 2000, "alpha": 0.001, "confidence": 0.999, "seed": 0, "radius": 0.25, "norm": "l2"}
    assert expected.items() <= settings.items() and "Wilson" in settings["interval"]
    assert settings["arithmetic"] == "sound: image and noise are multiples of 1/16384"
    (curve,) = [series for series in EVALUATOR.run(setting()).series if series.id == "smoothing.sigma_0.25.curve"]
    accuracies = curve.columns["accuracy"]
    assert accuracies == sorted(accuracies, reverse=True) and accuracies[0] == pytest.approx(4 / 6)
    # The last radius is that of a unanimous vote.
    assert curve.columns["radius"][-1] == pytest.approx(0.25 * 2.700, abs=1e-3)


def test_uniform_noise_certifies_in_l1():
    evaluator = dataclasses.replace(EVALUATOR, noise="uniform", radii=(0.1,))
    assert evaluator.ids()[0] == "smoothing.uniform_sigma_0.25.l1_0.1.accuracy"
    assert by_id(evaluator.run(setting()))[evaluator.ids()[0]].value == pytest.approx(4 / 6)


def test_batches_and_chunks_change_nothing():
    expected = EVALUATOR.run(setting())
    assert EVALUATOR.run(setting(batch_size=1, chunk_size=1)) == expected
    other = by_id(EVALUATOR.run(setting(seed=1)))
    assert other["smoothing.sigma_0.25.acr"].value != by_id(expected)["smoothing.sigma_0.25.acr"].value


def test_an_interrupted_evaluation_continues_with_the_same_result(tmp_path):
    expected, done = run_evaluation([EVALUATOR], setting(chunk_size=2)), []

    def stop_after_three(task, number, total):
        if "votes" in str(task) and number == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_evaluation([EVALUATOR], setting(chunk_size=2, progress=stop_after_three), cache_directory=tmp_path)
    assert len(list((tmp_path / "chunks").iterdir())) == 1  # the second was not finished

    def note(task, number, total):
        if "votes" in str(task):
            done.append(number)

    outcome = run_evaluation([EVALUATOR], setting(chunk_size=2, progress=note), cache_directory=tmp_path)
    assert done == [3, 4, 5, 6] and by_id(outcome) == by_id(expected) and outcome.series == expected.series


def test_shards_share_the_votes(tmp_path):
    counts = [
        run_shard([CleanAccuracy(), EVALUATOR], setting(chunk_size=2), Shard(n, 2), cache_directory=tmp_path)
        for n in (1, 2)
    ]
    assert counts == [4, 2]
    with mock.patch.object(smoothing.Voting, "both", side_effect=AssertionError("votes are stored")):
        outcome = run_evaluation([EVALUATOR], setting(chunk_size=2), cache_directory=tmp_path)
    assert by_id(outcome) == by_id(EVALUATOR.run(setting()))
    # Other draws, another model or a damaged file: counted again.
    path = next((tmp_path / "chunks").iterdir())
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(AssertionError), mock.patch.object(smoothing.Voting, "both", side_effect=AssertionError):
        run_shard([EVALUATOR], setting(chunk_size=2), Shard(1, 1), cache_directory=tmp_path)
    with pytest.raises(AssertionError), mock.patch.object(smoothing.Voting, "both", side_effect=AssertionError):
        other = dataclasses.replace(EVALUATOR, draws=2001)
        run_shard([other], setting(chunk_size=2), Shard(1, 1), cache_directory=tmp_path)


def test_the_report_separates_the_smoothed_classifier_from_the_served_one():
    evaluators = (CleanAccuracy(), EVALUATOR, dataclasses.replace(EVALUATOR, noise="uniform", radii=(0.1,)))
    report = evaluate(linear(), IMAGES, LABELS, epsilon=0.1, evaluators=evaluators).report
    sentence = "Smoothed by Gaussian noise, σ = 0.25: 50.0 % of the images are certified within L2 radius 0.25. "
    assert sentence in report.threat and "not the one behind serving_default" in report.threat
    assert any(line.startswith("Certified accuracy") for line in report.not_measured)  # of the served one
    (section,) = [candidate for candidate in sections.build(report) if candidate.anchor == "smoothing"]
    radii = ["L2 0", "L2 0.25", "L2 0.4", "average", "abstains", "L1 0.1", "average", "abstains"]
    assert [row[1] for row in section.content[1].rows] == radii
    assert "from 2,000 draws holds with confidence 99.9 % for each image" in section.introduction
    lines = console.console_table(report).splitlines()
    assert "The smoothed classifier. It is not the one behind serving_default." in lines
    assert any(line.startswith("Smoothed by Gaussian noise, sigma = 0.25  L2 0.25 ") for line in lines)
    assert "Certified accuracy over the radius" in html.render(report)
    lines = ("smoothing.sigma_0.25.l2_0.25.accuracy >= 0.5", "smoothing.sigma_0.25.acr >= 0.9")
    (failure,) = gate.Gate(require=lines).failures(report)
    assert failure.startswith(lines[1])
