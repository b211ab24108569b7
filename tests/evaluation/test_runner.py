"""Settings check their data; runs are kept, resumed and never mix two models; the one-line helper."""

import dataclasses
import functools
import json
import logging

import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import linear_model
from tfrobust import errors, structs
from tfrobust.attacks.shared.runner import Engine
from tfrobust.evaluation.doctor.evaluator import Doctor
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.engine.chunks import Shard
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators.accuracy import CleanAccuracy
from tfrobust.evaluation.evaluators.adversarial import AccuracyCurve, AttackAccuracy
from tfrobust.evaluation.evaluators.calibration import Calibration
from tfrobust.evaluation.evaluators.geometry import Divergence, FeatureMap
from tfrobust.evaluation.evaluators.sensitivity import Sensitivity
from tfrobust.evaluation.runner import run_evaluation, run_shard
from tfrobust.keras.attacks import FGSM, PGD, ThreatModel, Transfer

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
            [structs.Measurement(f"probe.{self.name}", value, n=3, settings={"seed": setting.seed})],
            [structs.Series(f"series.{self.name}", "t", {"x": [1.0, 0.1], "y": [None, 2]})],
            [structs.Finding("same", "pass", "evidence")],
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


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_outputs_that_are_not_finite_leave_nothing_in_the_cache(tmp_path, value):
    def predict(images):
        is_last = tf.reduce_all(images == IMAGES[-1], axis=(1, 2, 3))
        return tf.where(is_last[:, None], tf.constant(value, tf.float32), PREDICT(images))

    setting, cache = _setting(predict, batch_size=5), tmp_path / "output" / "cache"
    attacked = AttackAccuracy(attack=FGSM(threat=ThreatModel(epsilon=0.04)))
    with pytest.raises(errors.InputError, match="clean images contain NaN or infinity"):
        run_evaluation([CleanAccuracy(), attacked], setting, cache_directory=cache)
    (accuracy, *_) = run_evaluation([CleanAccuracy()], setting, cache_directory=cache).measurements
    assert accuracy.value == setting.clean_correct.mean() == _setting().clean_correct[:-1].sum() / len(IMAGES)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("changes", stored.rows(globals(), "nothing_is_taken"), ids=lambda changes: next(iter(changes)))
def test_nothing_is_taken_over_from_another_run(setting, tmp_path, changes):
    for probe in (Probe(name="a"), Probe(name="a", killed=True)):  # neither from one of another configuration
        RUNS.clear()
        run_evaluation([probe], setting, cache_directory=tmp_path)
        run_evaluation([probe], _setting(**changes), cache_directory=tmp_path)
        assert RUNS == ["a", "a"]


def test_what_needs_the_layers_runs_again_when_they_are_known(setting, tmp_path):
    run_evaluation([Probe(name="a")], setting, cache_directory=tmp_path)
    layered = _setting(predictor=dataclasses.replace(setting.predictor, network=object()))
    run_evaluation([Probe(name="a")], layered, cache_directory=tmp_path)
    assert RUNS == ["a", "a"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judge(Probe):
    """One whose outcome hangs on the training and on the other attacks."""

    uses_training = True
    uses_attacks = True

    def run(self, setting):
        RUNS.append(tuple(attack.threat.epsilon for attack in setting.evaluation_attacks))
        return Outcome()


def test_equal_answers_with_other_gradients_are_another_model(tmp_path):
    @tf.custom_gradient
    def masked(images):
        return tf.identity(images), tf.zeros_like

    evaluator = AttackAccuracy(attack=PGD(threat=ThreatModel(epsilon=0.04), steps=3, random_start="none"))
    blind, seeing = (
        run_evaluation([evaluator], _setting(predict), cache_directory=tmp_path).measurements[0].value
        for predict in (lambda images: PREDICT(masked(images)), PREDICT)
    )
    assert blind == _setting().clean_correct.mean() > seeing
    assert run_evaluation([evaluator], _setting()).measurements[0].value == seeing


def test_an_attack_on_another_surrogate_is_another_attack(tmp_path):
    """Two functions without weights, of which one leads the attack the wrong way."""
    evaluator = AttackAccuracy(attack=Transfer(PGD(threat=ThreatModel(epsilon=0.04), steps=3, random_start="none")))
    accuracies = []
    for sign in (-1.0, 1.0):
        surrogate = from_function(lambda images, sign=sign: sign * PREDICT(images), image_shape=linear_model.SHAPE)
        setting = _setting()
        setting = _setting(predictor=setting.predictor.with_surrogate(surrogate))
        accuracies.append(run_evaluation([evaluator], setting, cache_directory=tmp_path).measurements[0].value)
    assert accuracies[0] == _setting().clean_correct.mean() > accuracies[1]


def test_an_embedding_that_is_new_or_another_runs_again_those_who_look_at_it(setting, tmp_path):
    embeddings = (None, PREDICT, lambda images: PREDICT(images) ** 2)
    evaluators, values = [Probe(name="a"), Divergence(attack=FGSM(ThreatModel(epsilon=0.04)), epsilons=(0.04,))], []
    for embedding in (*embeddings, embeddings[1]):
        predictor = dataclasses.replace(setting.predictor, embedding=embedding)
        outcome = run_evaluation(evaluators, _setting(predictor=predictor), cache_directory=tmp_path)
        assert [finding.check for finding in outcome.findings] == ["same"] + ["embedding"] * (embedding is None)
        values.append({m.id: m.value for m in outcome.measurements}.get("geometry.inter_class_divergence"))
    assert RUNS == ["a"]
    assert values[0] is None and values[1] != values[2] and values[1] == values[3]
    assert all(kind.uses_embedding for kind in (Divergence, FeatureMap, Sensitivity))


def test_only_those_who_judge_training_and_attacks_run_again_when_these_change(setting, tmp_path):
    evaluators = [Probe(name="a"), Judge(name="j")]
    trained = {"norm": "linf", "epsilon": 0.1, "steps": 3}
    run_evaluation(evaluators, setting, cache_directory=tmp_path)
    run_evaluation(evaluators, _setting(training_attack=trained), cache_directory=tmp_path)
    run_evaluation(evaluators, _setting(train_images=IMAGES, train_labels=LABELS), cache_directory=tmp_path)
    run_evaluation([*evaluators, ATTACKS[0]], _setting(), cache_directory=tmp_path)
    assert RUNS == ["a", (), (), (), (0.02,)]
    run_evaluation([*evaluators, ATTACKS[0]], _setting(), cache_directory=tmp_path)
    assert RUNS == ["a", (), (), (), (0.02,)]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b'{"format": 5, "seconds": 1, "outcome": {}}'])
def test_damaged_files_are_made_again(setting, tmp_path, caplog, content):
    expected = _without_cost(run_evaluation([Probe(name="a")], setting, cache_directory=tmp_path))
    (path,) = tmp_path.iterdir()
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING, logger="tfrobust"):
        outcome = run_evaluation([Probe(name="a")], setting, cache_directory=tmp_path)
    assert _without_cost(outcome) == expected and RUNS == ["a", "a"]
    assert "cannot be read" in caplog.text and json.loads(path.read_text())["format"] == 5


def test_an_outcome_of_an_earlier_version_is_read(setting, tmp_path):
    expected = _without_cost(run_evaluation([Probe(name="a")], setting, cache_directory=tmp_path))
    (path,) = tmp_path.iterdir()
    record = json.loads(path.read_text())
    for measurement in record["outcome"]["measurements"]:
        measurement["name"] = ""
    path.write_text(json.dumps(record))
    outcome = run_evaluation([Probe(name="a")], setting, cache_directory=tmp_path)
    assert _without_cost(outcome) == expected and RUNS == ["a"]


ATTACKS = [
    AttackAccuracy(attack=PGD(threat=ThreatModel(epsilon=0.02), steps=3)),
    AccuracyCurve(attack=PGD(threat=ThreatModel(epsilon=0.03), steps=3), epsilons=(0.0, 0.01, 0.02)),
]


@functools.cache
def undisturbed():
    """Return what both attacks find without an interruption."""
    return _without_cost(run_evaluation(ATTACKS, _setting()))


@pytest.fixture
def searched(monkeypatch):
    """The index of every image that an engine was given, chunk by chunk; `searched.stop_after` kills the run."""
    calls = Searched()
    real = Engine.run

    def counted(self, images, labels, *, index, **keywords):
        if len(calls) == calls.stop_after:
            raise KeyboardInterrupt
        calls.append(index.tolist())
        return real(self, images, labels, index=index, **keywords)

    monkeypatch.setattr(Engine, "run", counted)
    return calls


class Searched(list):
    stop_after = -1


def test_a_killed_attack_goes_on_with_the_chunks_that_are_missing(searched, tmp_path):
    expected = undisturbed()
    chunked = [list(range(start, min(start + 6, 20))) for start in range(0, 20, 6)]
    for stop in (2, 3):  # in the first attack, then in the second
        searched.clear()
        searched.stop_after = stop
        with pytest.raises(KeyboardInterrupt):
            run_evaluation(ATTACKS, _setting(chunk_size=6), cache_directory=tmp_path)
    # The first attack's third and fourth chunk, and the first of the next size.
    assert searched == [*chunked[2:], chunked[0]]
    searched.clear()
    searched.stop_after = -1
    outcome = run_evaluation(ATTACKS, _setting(chunk_size=6), cache_directory=tmp_path)
    # Size 0.02 of the curve is the very attack of the first evaluator.
    assert searched == chunked[1:] and _without_cost(outcome) == expected


def test_shards_share_the_work_and_a_run_without_one_joins_them(searched, tmp_path):
    expected = undisturbed()
    searched.clear()
    for number in (2, 1):
        run_shard(ATTACKS, _setting(chunk_size=6), Shard(number, 2), cache_directory=tmp_path)
    assert sorted(sum(searched, [])) == sorted(2 * list(range(20))), "each image once for each of two sizes"
    searched.clear()
    calls = []
    setting = _setting(chunk_size=6, progress=lambda *call: calls.append(call))
    assert _without_cost(run_evaluation(ATTACKS, setting, cache_directory=tmp_path)) == expected
    assert searched == []
    assert run_shard(ATTACKS, _setting(chunk_size=30), Shard(2, 2), cache_directory=tmp_path) == 0


def test_what_a_time_budget_ended_is_not_kept_but_its_finished_chunks_are(searched, tmp_path, monkeypatch):
    expected = undisturbed().measurements[0]
    hurried = [dataclasses.replace(ATTACKS[0], seconds=1000.0)]
    clock = Clock()
    monkeypatch.setattr("tfrobust.attacks.shared.runner.time.monotonic", clock)
    counted = Engine.run

    def slow(self, *arguments, **keywords):
        result = counted(self, *arguments, **keywords)
        clock.now += 600.0
        return result

    monkeypatch.setattr(Engine, "run", slow)
    values, bounds, searches = [], [], []
    for _ in range(3):
        searched.clear()
        setting = _setting(chunk_size=6)
        (accuracy, *_) = run_evaluation(hurried, setting, cache_directory=tmp_path).measurements
        values.append(accuracy.value)
        bounds.append(accuracy.settings.get("bound"))
        searches.append(len(searched))
        assert accuracy.n == 20 and accuracy.value >= expected.value
    assert bounds == ["upper", None, None] and searches == [4, 2, 0]
    assert values[0] > values[1] == values[2] == expected.value


class Clock:
    now = 0.0

    def __call__(self):
        self.now += 1e-6
        return self.now


def test_a_damaged_chunk_is_made_again(searched, tmp_path, caplog):
    expected = _without_cost(run_evaluation(ATTACKS[:1], _setting(chunk_size=6), cache_directory=tmp_path))
    _forget_outcomes(tmp_path)
    (path,) = tmp_path.glob("chunks/*-6-11-*.npz")
    flipped = bytearray(path.read_bytes())
    flipped[len(flipped) // 2] ^= 255
    for damage in (b"", b"PK", b"{}", bytes(flipped)):
        path.write_bytes(damage)
        searched.clear()
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="tfrobust"):
            outcome = run_evaluation(ATTACKS[:1], _setting(chunk_size=6), cache_directory=tmp_path)
        assert _without_cost(outcome) == expected and searched == [list(range(6, 12))]
        assert "cannot be read" in caplog.text
        _forget_outcomes(tmp_path)


def _forget_outcomes(cache):
    for path in cache.glob("*.json"):
        path.unlink()


def test_clashing_ids_and_attacks_without_gradients_are_refused_before_any_work(tmp_path, setting):
    predictor = from_function(PREDICT, image_shape=linear_model.SHAPE, differentiable=False)
    predictor = dataclasses.replace(predictor, weights_sha256="w")
    with pytest.raises(ValueError, match="gradients.*square.gin"):
        run_evaluation(ATTACKS, Setting(predictor=predictor, images=IMAGES, labels=LABELS), cache_directory=tmp_path)
    assert not list(tmp_path.iterdir())
    attack = FGSM(threat=ThreatModel(epsilon=0.1))
    with pytest.raises(ValueError, match=r"attack.fgsm_linf_0.1.accuracy.*label"):
        run_evaluation([Probe(name="a"), AttackAccuracy(attack=attack), AttackAccuracy(attack=attack)], setting)
    assert not RUNS
    with pytest.raises(ValueError, match="probe.a"):
        run_evaluation([Probe(name="a"), Probe(name="a")], setting)


def test_unknown_weights_are_not_kept(tmp_path):
    run_evaluation([Probe(name="a")], _setting(weights=None), cache_directory=tmp_path)
    assert not list(tmp_path.iterdir())


def test_one_hot_labels_are_ids(setting):
    for labels in (np.eye(2)[LABELS], np.eye(2, dtype=bool)[LABELS], LABELS[:, None], LABELS.astype(float)):
        ids = _setting(labels=labels).labels
        np.testing.assert_array_equal(ids, LABELS)
        assert ids.dtype == np.int32


def test_pixels_outside_of_0_to_1_are_no_evaluation(setting):
    threat = ThreatModel(epsilon=0.1, bounds=(-1.0, 1.0))
    for evaluator in (AttackAccuracy(attack=FGSM(threat=threat)), Divergence(attack=PGD(threat=threat))):
        with pytest.raises(ValueError, match=r"bounds \(-1.0, 1.0\).*\(0.0, 1.0\)") as caught:
            run_evaluation([Probe(name="a"), evaluator], setting)
        assert not RUNS and len(str(caught.value)) <= 300


def test_probabilities_are_named_once_whether_or_not_a_doctor_looks():
    setting = _setting(predict=lambda images: tf.nn.softmax(PREDICT(images)))
    (finding,) = run_evaluation([CleanAccuracy()], setting).findings
    assert (finding.check, finding.verdict) == ("logits", "warn") and "log(p)" in finding.evidence
    doctor = Doctor(attack=FGSM(threat=ThreatModel(epsilon=0.02)), factors=(1.0, 2.0))
    checks = [finding.check for finding in run_evaluation([CleanAccuracy(), doctor], setting).findings]
    assert checks.count("logits") == 1


def test_subset_and_order(setting):
    assert setting.subset(None).tolist() == setting.subset(20).tolist() == list(range(20))
    few = setting.subset(7)
    assert len(set(few)) == 7 and few.tolist() == sorted(few) == _setting().subset(7).tolist()
    limited = _setting(limit=7)
    assert limited.subset(None).tolist() == limited.subset(12).tolist() == few.tolist()
    assert limited.subset(5).tolist() == setting.subset(5).tolist() and len(limited.clean_correct) == 20
    assert sorted(setting.order("a")) == list(range(20))
    assert setting.order("a").tolist() != setting.order("b").tolist()
    assert setting.order("a").tolist() != _setting(seed=1).order("a").tolist()


def test_predict_is_traced_once(setting):
    traces = []

    def counting(images):
        if not tf.executing_eagerly():
            traces.append(images.shape)
        return PREDICT(images)

    run_evaluation([CleanAccuracy(), Calibration()], _setting(predict=counting, batch_size=8))
    assert traces == [(8, 3, 4, 1)]
