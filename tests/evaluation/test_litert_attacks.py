"""Attacks on LiteRT files: transferred, with the copy's gradients, and what the doctor says of both."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf

from oracles import flawed_models, litert_files
from tfrobust.commands import evaluate
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import litert_operators, loading, predictor
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.keras.attacks import FMN, PGD, Ensemble, Square, Transfer
from tfrobust.keras.evaluators import AttackAccuracy, CleanAccuracy, Doctor

ATTACK = flawed_models.ATTACK
UNION = Ensemble((Transfer(ATTACK), ATTACK, Square(ATTACK.threat, steps=20, accept_ties=True)))
LIMIT = 64


@functools.cache
def _content(function, kind):
    return litert_files.converted({"logits": function}, flawed_models.digits()[0][:100], kind)


@pytest.fixture
def setting(tmp_path):
    def make(function, kind="int8", surrogate=True):
        path = tmp_path / f"{kind}.tflite"
        path.write_bytes(_content(function, kind))
        model = loading.load(str(path))
        if surrogate:
            model = model.with_surrogate(predictor.from_function(function, image_shape=(8, 8, 1), name="float model"))
        return flawed_models.setting(predictor=model)

    return make


def _measured_by_the_command(tmp_path, gin_file, params, *flags):
    """The measurements by id of the command on `int8.tflite` and the first 40 digits."""
    _, _, images, labels = flawed_models.digits()
    np.savez(tmp_path / "data.npz", images=images[:40], labels=labels[:40])
    (tmp_path / "int8.tflite").write_bytes(_content(flawed_models.sound, "int8"))
    flags += (f"--model={tmp_path / 'int8.tflite'}", f"--data={tmp_path / 'data.npz'}", f"--output={tmp_path / 'out'}")
    flags += (f"--gin_file={gin_file}", *(f"--gin_param={param}" for param in ("EPSILON=0.1", *params)))
    assert evaluate.main(list(flags)) == 0
    report = json.loads((tmp_path / "out" / "robustness_report.json").read_text())
    return {row["id"]: row for row in report["measurements"]}


def _values(outcome):
    return {measured.id: measured.value for measured in outcome.measurements}


def test_the_doctor_finds_a_file_that_only_looks_robust_to_transfer(setting):
    # The float model has the gradient of another network, which its conversion drops.
    outcome = run_evaluation(
        [AttackAccuracy(attack=UNION, label="union"), Doctor(attack=ATTACK, factors=(1.0, 2.0), limit=LIMIT)],
        setting(flawed_models.decoy),
    )
    values = _values(outcome)
    name = f"attack.union_linf_{ATTACK.threat.epsilon:g}"
    assert values[f"{name}.transfer_pgd.accuracy"] > 0.9 > 0.7 > values[f"{name}.pgd.accuracy"]
    assert values[f"{name}.accuracy"] <= values[f"{name}.pgd.accuracy"]
    (surrogate_finding,) = [finding for finding in outcome.findings if finding.check == "surrogate"]
    assert surrogate_finding.verdict == "fail" and "float model" in surrogate_finding.evidence
    assert "all attacks together" in surrogate_finding.remedy


@pytest.mark.parametrize("function", [flawed_models.sound, flawed_models.robust], ids=["plain", "robust"])
def test_the_doctor_says_nothing_about_a_sound_file(setting, function):
    findings = Doctor(attack=ATTACK, factors=(1.0, 2.0), limit=100).run(setting(function)).findings
    assert "surrogate" in {finding.check for finding in findings}
    spoken = {(finding.check, finding.verdict) for finding in findings if finding.verdict != "pass"}
    assert spoken <= {("test_size", "warn")}, findings


def test_a_file_falls_like_the_network_it_was_converted_from(setting):
    file, live = setting(flawed_models.robust), flawed_models.setting(flawed_models.robust)
    attack = AttackAccuracy(attack=PGD(ATTACK.threat, steps=20))
    accuracy, expected = (_values(attack.run(variant))[attack.ids()[0]] for variant in (file, live))
    assert abs(accuracy - expected) <= 0.04


def test_integer_inputs_are_attacked_on_their_own_values(setting):
    integers = setting(flawed_models.sound, "int8_io", surrogate=False)
    grid = integers.predictor.grid
    np.testing.assert_allclose(integers.images / grid, np.round(integers.images / grid), atol=1e-3)
    findings = Doctor(attack=ATTACK, factors=(1.0, 2.0), limit=LIMIT).run(integers).findings
    verdicts = {finding.check: finding.verdict for finding in findings}
    assert verdicts["repredict"] == verdicts["monotone"] == verdicts["rounding"] == "pass"
    values = _values(AttackAccuracy(attack=ATTACK).run(integers))
    assert values[f"attack.pgd_linf_{ATTACK.threat.epsilon:g}.accuracy"] < 0.7


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["float32", "int8_io"])
@pytest.mark.parametrize(("low", "high"), [(0.0, 255.0), (-1.0, 1.0)])
def test_a_file_of_pixels_in_another_range_is_attacked_as_one_of_unit_pixels(tmp_path, kind, low, high):
    training, _, images, labels = flawed_models.digits()
    path, values = tmp_path / "file.tflite", []
    for bottom, top in ((0.0, 1.0), (low, high)):
        function = lambda pixels, b=bottom, t=top: flawed_models.sound((pixels - b) / (t - b))  # noqa: E731
        path.write_bytes(litert_files.converted({"logits": function}, bottom + (top - bottom) * training[:100], kind))
        file = loading.load(str(path)).on_unit_pixels(bottom, top)
        setting = flawed_models.setting(predictor=file)
        assert len(np.unique(setting.images)) > 2
        stored = (setting.images * (top - bottom) + bottom) / (file.grid * (top - bottom) or 1e-9)
        inner = (setting.images > 0) & (setting.images < 1)
        assert np.abs(stored - np.rint(stored))[inner].max() < 0.01
        values.append([_values(AttackAccuracy(attack=attack).run(setting)) for attack in (ATTACK, Transfer(ATTACK))])
    for unit, other in zip(*values, strict=True):
        assert list(other.values()) == pytest.approx(list(unit.values()), abs=0.04) and min(unit.values()) < 0.7


def test_without_a_copy_the_attacks_that_need_none_remain_and_the_report_says_why(setting, monkeypatch):
    monkeypatch.delitem(litert_operators.OPERATORS, "FULLY_CONNECTED")
    outcome = run_evaluation(
        [CleanAccuracy(), AttackAccuracy(attack=UNION, label="union")], setting(flawed_models.sound)
    )
    values = _values(outcome)
    name = f"attack.union_without_gradients_linf_{ATTACK.threat.epsilon:g}"
    assert {f"{name}.accuracy", f"{name}.transfer_pgd.accuracy", f"{name}.square.accuracy"} <= values.keys()
    assert values[f"{name}.accuracy"] < 0.7
    (white_box,) = [finding for finding in outcome.findings if finding.check == "white_box"]
    assert white_box.verdict == "fail"
    assert "its differentiable copy does not cover FULLY_CONNECTED" in white_box.evidence
    assert f"attack.union_linf_{ATTACK.threat.epsilon:g}.accuracy" in white_box.evidence
    with pytest.raises(InputError, match="needs a surrogate of .* name one with --surrogate"):
        run_evaluation([AttackAccuracy(attack=UNION)], setting(flawed_models.sound, surrogate=False))


def test_an_unfit_surrogate_is_refused(setting):
    file = setting(flawed_models.sound).predictor
    other = predictor.from_function(lambda x: flawed_models.sound(x)[:, :9], image_shape=(8, 8, 1), name="nine")
    with pytest.raises(InputError, match="nine has 9 classes and takes .* so it is no surrogate of int8.tflite"):
        file.with_surrogate(other)
    stopped = predictor.from_function(
        lambda x: flawed_models.sound(tf.stop_gradient(x)), image_shape=(8, 8, 1), name="stopped"
    )
    with pytest.raises(InputError, match="The surrogate stopped has no input gradients"):
        run_evaluation([AttackAccuracy(attack=UNION)], flawed_models.setting(predictor=file.with_surrogate(stopped)))


def test_the_command_evaluates_a_file_with_its_surrogate(tmp_path, capfd):
    (tmp_path / "float32.tflite").write_bytes(_content(flawed_models.sound, "float32"))
    params = ("plateaus/Square.steps=20", "EVALUATORS=[@CleanAccuracy(), @union/AttackAccuracy()]")
    surrogate = f"--surrogate={tmp_path / 'float32.tflite'}"
    measurements = _measured_by_the_command(tmp_path, "gin/eval/litert.gin", params, surrogate)
    assert "union" in capfd.readouterr().out
    members = ["transfer_pgd", "transfer_apgd_ce", "transfer_multi_targeted_pgd", "apgd_ce", "apgd_t", "square"]
    accuracies = [measurements[f"attack.union_linf_0.1.{member}.accuracy"]["value"] for member in members]
    assert sorted(accuracies, reverse=True) == accuracies
    union, clean = (measurements[name]["value"] for name in ("attack.union_linf_0.1.accuracy", "accuracy.clean"))
    assert union == accuracies[-1] < clean
    carried = measurements["attack.union_linf_0.1.transfer_pgd.accuracy"]["settings"]
    assert (carried["attack"], carried["surrogate"], carried["steps"]) == ("transfer_pgd", "float32.tflite", 100)
    assert "transfer_pgd (100 steps, 1 restart)" in carried["member_efforts"]


def test_labels_of_a_file_suffice_for_hop_skip_jump(tmp_path):
    params = [f"hop_skip_jump/HopSkipJump.{setting}" for setting in ("steps=10", "first_samples=50")]
    measurements = _measured_by_the_command(tmp_path, "gin/eval/hop_skip_jump.gin", params)
    attacked = measurements["attack.hop_skip_jump_linf_0.1.accuracy"]
    distance = measurements["attack.hop_skip_jump_linf_0.1.median_distance"]["value"]
    live = flawed_models.setting(images=flawed_models.digits()[2][:40], labels=flawed_models.digits()[3][:40])
    nearest = _values(AttackAccuracy(attack=FMN(ATTACK.threat)).run(live))["attack.fmn_linf_0.1.median_distance"]
    assert 0.9 * nearest < distance < 2 * nearest
    assert attacked["settings"]["backward_passes"] == 0 < attacked["value"] < measurements["accuracy.clean"]["value"]
    assert attacked["settings"]["forward_passes"] > 10 * 50
