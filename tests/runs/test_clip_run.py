"""Clips the whole way: trained, staged, attacked, reported, published, gated, and evaluated again from the export."""

import json

import keras
import pytest
import stored
from faults.whole_run import train_in, unverified

from tfrobust.data.sources.moving_digits import MovingDigits
from tfrobust.keras.attacks import FGSM, PGD, ThreatModel  # noqa: F401
from tfrobust.keras.evaluators import AdversarialExamples, AttackAccuracy, CleanAccuracy, Doctor  # noqa: F401
from tfrobust.keras.methods import AdversarialTraining, Adversary
from tfrobust.report.gate import Gate
from tfrobust.runs import experiment

DATA = MovingDigits(frames=3, side=10)
THREAT = ThreatModel(epsilon=0.05)
ATTACK = PGD(THREAT, steps=2)
EVALUATORS = tuple(stored.table(globals(), "evaluators"))


def encoder() -> keras.Model:
    convolution = keras.layers.Conv3D(8, 3, strides=(1, 2, 2), activation="relu")
    return keras.Sequential([keras.Input((3, 10, 10, 1)), convolution, keras.layers.GlobalAveragePooling3D()])


def run(folder, **changes):
    arguments = {
        "name": "moves",
        "method": lambda **parts: AdversarialTraining(adversary=Adversary(attack=ATTACK), **parts),
        "encoder": encoder,
        "optimizer": lambda: keras.optimizers.Adam(0.01),
        "data": DATA,
        "evaluators": EVALUATORS,
    }
    return train_in(folder, **arguments | changes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    with unverified():
        return folder, run(folder)


@pytest.mark.rest
def test_the_report_is_of_clips(trained):
    folder, report = trained
    by_id = {measurement.id: measurement for measurement in report.measurements}
    assert report.data["kind"] == "clips" and by_id["attack.fgsm_linf_0.05.accuracy"].n == 4
    assert "images" not in report.threat + "".join(report.not_measured)
    page = (folder / "exported/moves/1/assets.extra/robustness_report.html").read_text()
    assert "360 test clips" in page and "Perturbation in each frame under PGD" in page
    assert Gate(require=("accuracy.clean >= 0", "attack.pgd_linf_0.05.accuracy >= 0")).failures(report) == []


@pytest.mark.rest
def test_the_export_is_evaluated_again_by_its_own_data(trained, tmp_path):
    folder, report = trained
    with unverified():
        again = experiment.evaluate(model=str(folder / "exported/moves"), evaluators=EVALUATORS, output=str(tmp_path))
    numbers = [
        {measurement.id: measurement.value for measurement in outcome.measurements if measurement.unit != "seconds"}
        for outcome in (report, again)
    ]
    assert numbers[0] == pytest.approx(numbers[1], abs=0.02)
    assert json.loads((tmp_path / "robustness_report.json").read_text())["data"] == report.data
