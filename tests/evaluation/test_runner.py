"""Settings check their data; runs are kept, resumed and never mix two models; the one-line helper."""

import dataclasses
import json
import logging

import numpy as np
import pytest
import tensorflow as tf

from oracles import linear_model
from tfrobust.attacks.gradient import FGSM
from tfrobust.attacks.threat import ThreatModel
from tfrobust.evaluation.accuracy import CleanAccuracy
from tfrobust.evaluation.adversarial import AttackAccuracy
from tfrobust.evaluation.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.calibration import Calibration
from tfrobust.evaluation.predictor import from_function
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.evaluation.summary import evaluate
from tfrobust.structs import Finding, Measurement, Series

PREDICT, IMAGES, LABELS, _, _ = linear_model.make(20)
RUNS = []


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe(Evaluator):
    """Counts its runs; raises as a kill would where told to."""

    name: str
    killed: bool = False

    def run(self, setting):
        if KILL and self.killed:
            raise KeyboardInterrupt
        RUNS.append(self.name)
        value = float(setting.clean_logits.mean())
        return Outcome(
            [Measurement(f"probe.{self.name}", value, n=3, settings={"seed": setting.seed})],
            [Series(f"series.{self.name}", "t", {"x": [1.0, 0.1], "y": [None, 2]})],
            [Finding("same", "pass", "evidence")],
        )


KILL = []


@pytest.fixture
def setting():
    RUNS.clear()
    KILL.clear()
    return _setting()


def _setting(predict=PREDICT, weights="w", **changes):
    predictor = from_function(predict, image_shape=linear_model.SHAPE)
    predictor = dataclasses.replace(predictor, weights_sha256=weights)
    return Setting(**{"predictor": predictor, "images": IMAGES, "labels": LABELS, **changes})


def _without_cost(outcome):
    return dataclasses.replace(outcome, measurements=[m for m in outcome.measurements if not m.id.startswith("cost.")])


def test_a_killed_run_goes_on_where_it_stopped(setting, tmp_path):
    probes = [Probe(name="a"), Probe(name="b"), Probe(name="c", killed=True), Probe(name="d")]
    KILL.append(True)
    with pytest.raises(KeyboardInterrupt):
        run_evaluation(probes, setting, cache_directory=tmp_path / "kept")
    KILL.clear()
    resumed = run_evaluation(probes, _setting(), cache_directory=tmp_path / "kept")
    assert RUNS == ["a", "b", "c", "d"]
    assert _without_cost(resumed) == _without_cost(run_evaluation(probes, _setting()))
    assert len(resumed.findings) == 1 and resumed.measurements[-1].id == "cost.evaluation"


def test_real_outcomes_survive_the_disk_exactly(setting, tmp_path):
    evaluators = [CleanAccuracy(), Calibration(), AttackAccuracy(attack=FGSM(threat=ThreatModel(epsilon=0.02)))]
    first = run_evaluation(evaluators, setting, cache_directory=tmp_path)
    assert run_evaluation(evaluators, _setting(), cache_directory=tmp_path) == first


@pytest.mark.parametrize(
    "changes",
    [
        {"weights": "other"},
        {"predict": lambda images: 2 * PREDICT(images)},
        {"images": IMAGES * np.float32(0.999)},
        {"labels": 1 - LABELS},
        {"seed": 1},
        {"selected_on": "test"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_nothing_is_taken_over_from_another_run(setting, tmp_path, changes):
    run_evaluation([Probe(name="a")], setting, cache_directory=tmp_path)
    run_evaluation([Probe(name="a")], _setting(**changes), cache_directory=tmp_path)
    assert RUNS == ["a", "a"]


def test_another_configuration_runs_again(setting, tmp_path):
    run_evaluation([Probe(name="a")], setting, cache_directory=tmp_path)
    run_evaluation([Probe(name="a", killed=True)], setting, cache_directory=tmp_path)
    assert RUNS == ["a", "a"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b'{"format": 1, "seconds": 1, "outcome": {}}'])
def test_damaged_files_are_made_again(setting, tmp_path, caplog, content):
    expected = _without_cost(run_evaluation([Probe(name="a")], setting, cache_directory=tmp_path))
    (path,) = tmp_path.iterdir()
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING, logger="tfrobust"):
        found = run_evaluation([Probe(name="a")], setting, cache_directory=tmp_path)
    assert _without_cost(found) == expected and RUNS == ["a", "a"]
    assert "cannot be read" in caplog.text and json.loads(path.read_text())["format"] == 1


def test_unknown_weights_are_not_kept(tmp_path):
    run_evaluation([Probe(name="a")], _setting(weights=None), cache_directory=tmp_path)
    assert not list(tmp_path.iterdir())


def test_clashing_ids_are_refused_before_any_work(setting):
    attack = FGSM(threat=ThreatModel(epsilon=0.1))
    with pytest.raises(ValueError, match=r"attack.fgsm_linf_0.1.accuracy.*label"):
        run_evaluation([Probe(name="a"), AttackAccuracy(attack=attack), AttackAccuracy(attack=attack)], setting)
    assert not RUNS
    with pytest.raises(ValueError, match="probe.a"):
        run_evaluation([Probe(name="a"), Probe(name="a")], setting)


def test_progress_is_shown():
    calls = []
    setting = _setting(progress=lambda *call: calls.append(call))
    run_evaluation([CleanAccuracy(), AttackAccuracy(attack=FGSM(threat=ThreatModel(epsilon=0.02)))], setting)
    assert ("clean predictions", 20, 20) in calls and calls[-1] == ("evaluation", 2, 2)
    assert any(task == "fgsm linf 0.02" for task, _, _ in calls)
    assert all(0 <= done <= total for _, done, total in calls)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": LABELS + 1}, "label is 2"),
        ({"labels": LABELS - 1}, "label is -1"),
        ({"labels": LABELS[:-1]}, "20 images"),
        ({"labels": LABELS.astype(float)}, "whole numbers"),
        ({"images": IMAGES * 255}, "divide them by 255"),
        ({"images": IMAGES - 1}, "Pixels run from"),
        ({"images": np.where(IMAGES > 0.59, np.nan, IMAGES)}, "NaN"),
        ({"images": IMAGES[:, :2]}, "takes"),
        ({"images": IMAGES[..., 0]}, "n, h, w, c"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "no images"),
        ({"class_names": ("a", "b", "c")}, "3 class names"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_bad_data_is_one_sentence(changes, said):
    with pytest.raises(ValueError, match=said) as caught:
        _setting(**changes)
    assert len(str(caught.value)) <= 300 and "\n" not in str(caught.value)


def test_subset_and_order(setting):
    assert setting.subset(None).tolist() == setting.subset(20).tolist() == list(range(20))
    few = setting.subset(7)
    assert len(set(few)) == 7 and few.tolist() == sorted(few) == _setting().subset(7).tolist()
    assert sorted(setting.order("a")) == list(range(20))
    assert setting.order("a").tolist() != setting.order("b").tolist()
    assert setting.order("a").tolist() != _setting(seed=1).order("a").tolist()


def test_evaluate_in_one_line():
    outcome = evaluate(PREDICT, IMAGES, LABELS, epsilon=0.02, steps=5)
    values = {measured.id: measured.value for measured in outcome.measurements}
    assert values["accuracy.clean"] == 17 / 20
    assert values["attack.pgd_linf_0.02.accuracy"] == values["attack.fgsm_linf_0.02.accuracy"] < 17 / 20
    assert {"calibration.ece", "calibration.brier", "calibration.nll"} <= set(values)
    assert {finding.check for finding in outcome.findings} >= {"logits", "gradients", "monotone"}
    with pytest.raises(TypeError, match="Keras model"):
        evaluate(3, IMAGES, LABELS, epsilon=0.02)


def test_evaluators_survive_their_config(setting):
    evaluator = Calibration(bins=7)
    assert Calibration.from_config(evaluator.get_config()) == evaluator
    config = AttackAccuracy(attack=FGSM(threat=ThreatModel(epsilon=0.3)), label="x").get_config()
    assert AttackAccuracy.from_config(json.loads(json.dumps(config))).attack.threat.epsilon == 0.3


def test_predict_is_traced_once(setting):
    traces = []

    def counting(images):
        if not tf.executing_eagerly():
            traces.append(images.shape)
        return PREDICT(images)

    run_evaluation([CleanAccuracy(), Calibration()], _setting(predict=counting, batch_size=8))
    assert traces == [(8, 3, 4, 1)]
