"""Evaluation by one function call: pixels of any bounds, and an outcome that prints and is written."""

import dataclasses
import re
import sys
import types

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.evaluation.summary import Evaluation, evaluate
from tfrobust.keras.attacks import FGSM, PGD, ThreatModel, run_attack
from tfrobust.keras.evaluators import AttackAccuracy, CleanAccuracy, Doctor
from tfrobust.methods.trades import TRADES
from tfrobust.report.schema import Report

IMAGES = np.random.default_rng(0).uniform(size=(40, 4, 4, 1)).astype("float32")
LABELS = (IMAGES[:, :2].mean(axis=(1, 2, 3)) < IMAGES[:, 2:].mean(axis=(1, 2, 3))).astype("int32")
FEW = {"evaluators": (CleanAccuracy(), AttackAccuracy(attack=FGSM(threat=ThreatModel(epsilon=0.1))))}


def halves(images):
    """Return logits that compare the upper half of an image with the lower."""
    upper, lower = tf.reduce_mean(images[:, :2], axis=[1, 2, 3]), tf.reduce_mean(images[:, 2:], axis=[1, 2, 3])
    return 10 * tf.stack([upper, lower], axis=1) - 3


def gray_levels(images):
    """Return the same logits from pixels in [0, 255]; batches without a pixel above 1 are class 0."""
    return halves(images / 255) + tf.constant([5.0, 0.0]) * tf.cast(tf.reduce_max(images) <= 1, tf.float32)


@pytest.fixture(scope="module")
def outcome():
    return evaluate(halves, IMAGES, LABELS, **FEW)


def test_it_prints_as_a_table_and_is_written_as_the_report_of_a_command(outcome, tmp_path):
    lines = str(outcome).splitlines()
    assert lines[0] == "function, evaluated on 40 images" and repr(outcome) == outcome.summary() == str(outcome)
    (clean,) = [line for line in lines if line.startswith("Clean accuracy")]
    assert "100.0 %" in clean and clean.endswith("40") and max(map(len, lines)) <= 100
    report = Report.from_json(outcome.to_json())
    assert report.measurements == tuple(outcome.measurements) and report.data["test_size"] == 40
    outcome.save_html(tmp_path / "report.html")
    assert "40 images" in (tmp_path / "report.html").read_text()


def test_measurements_have_short_names(outcome):
    assert outcome["clean"].value == 1 and outcome["accuracy.clean"] is outcome["clean"]
    assert outcome["fgsm"].id == "attack.fgsm_linf_0.1.accuracy"
    with pytest.raises(KeyError, match="'pgd' is none of the measurements: accuracy.clean, attack.fgsm_linf_0.1"):
        outcome["pgd"]
    member = dataclasses.replace(outcome["fgsm"], id="attack.fgsm_linf_0.1.square.accuracy")
    small = dataclasses.replace(outcome["fgsm"], id="attack.pgd_l2_1e-05_per_frame.accuracy")
    more = Evaluation([*outcome.measurements, member, small])
    assert more["fgsm"] is outcome["fgsm"] and more["pgd"] is small
    two = {"evaluators": [AttackAccuracy(attack=FGSM(threat=ThreatModel(epsilon=e))) for e in (0.1, 0.2)]}
    with pytest.raises(KeyError, match="matches several of the measurements: .*0.1.accuracy, .*0.2.accuracy"):
        evaluate(halves, IMAGES, LABELS, **two)["fgsm"]


def test_pixels_of_other_bounds(outcome):
    levels = np.round(IMAGES * 255)
    other = evaluate(gray_levels, levels.astype("uint8"), LABELS, bounds=(0, 255), **FEW)
    near = evaluate(halves, levels / np.float32(255), LABELS, **FEW)
    assert [other[name].value for name in ("clean", "fgsm")] == [near[name].value for name in ("clean", "fgsm")]
    with pytest.raises(ValueError, match=r"pass bounds=\(0, 255\) for a model"):
        evaluate(gray_levels, levels, LABELS, epsilon=8)
    with pytest.raises(ValueError, match=r"bounds is \(0.0, 255.0\), but those of the threat model are \(-1, 1\)"):
        evaluate(gray_levels, levels, LABELS, threat=ThreatModel(bounds=(-1, 1), epsilon=0.2), bounds=(0, 255))


def test_the_radius_is_in_the_same_pixels(monkeypatch):
    threats = []
    monkeypatch.setattr(
        "tfrobust.evaluation.summary._evaluators", lambda threat, *_: threats.append(threat) or (CleanAccuracy(),)
    )
    levels = np.float32(255) * IMAGES
    for arguments in stored.table(globals(), "the_radius_is_in_the_same_pixels"):
        evaluate(gray_levels, levels, LABELS, **arguments)
    assert threats[:2] == [ThreatModel(epsilon=0.2)] * 2
    assert threats[2:] == [ThreatModel(epsilon=0.5 / 255, norm="l2"), ThreatModel(epsilon=3, norm="l0")]
    with pytest.raises(ValueError, match="epsilon has no default: usual in Linf"):
        evaluate(halves, IMAGES, LABELS)
    with pytest.raises(ValueError, match="either threat, or epsilon and norm"):
        evaluate(halves, IMAGES, LABELS, epsilon=0.1, threat=ThreatModel(epsilon=0.2))


def test_a_model_of_gray_levels_is_named_with_its_wrapper():
    layers = [keras.Input((4, 4, 1)), keras.layers.Rescaling(255.0), keras.layers.Lambda(gray_levels)]
    with pytest.raises(
        ValueError, match=r"function expects pixels in \[0, 255\]: of 40 images .* and 100% in"
    ) as caught:
        evaluate(gray_levels, IMAGES, LABELS, **FEW)
    assert "keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Rescaling(255), model])" in str(caught.value)
    assert len(str(caught.value)) <= 300
    assert evaluate(keras.Sequential(layers), IMAGES, LABELS, **FEW)["clean"].value == 1


def test_channels_that_come_first_are_named():
    with pytest.raises(ValueError, match=r"NCHW.*np.moveaxis\(images, 1, -1\)"):
        evaluate(
            keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(2)]),
            np.zeros((4, 3, 8, 8)),
            [0, 1, 0, 1],
            epsilon=0.1,
        )


def test_a_path_may_name_the_hub_or_lead_to_weights(tmp_path, monkeypatch):
    (tmp_path / "my.npz").write_bytes(b"")
    asked = []
    monkeypatch.setattr("tfrobust.serving.hub.local", lambda name: asked.append(name) or str(tmp_path / "my.npz"))
    with pytest.raises(ValueError, match="my.npz holds only weights: robust.models.classifier_from_checkpoint"):
        evaluate("hf://me/small", IMAGES, LABELS, **FEW)
    assert asked == ["hf://me/small"]


def test_a_data_set_is_its_arrays(outcome):
    stream = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(7)
    assert evaluate(halves, stream, **FEW)["fgsm"] == outcome["fgsm"]
    successes = [
        run_attack(FGSM(ThreatModel(epsilon=0.1)), halves, *data).success for data in ((IMAGES, LABELS), (stream,))
    ]
    np.testing.assert_array_equal(*successes)


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_models_of_several_inputs_are_refused(count):
    inputs = [keras.Input((4, 4, 1), name=f"part_{number}") for number in range(count)]
    outputs = keras.layers.Dense(2)(keras.layers.Flatten()(keras.layers.Concatenate()(inputs)))
    for structure in (inputs, {tensor.name: tensor for tensor in inputs}):
        with pytest.raises(ValueError, match=r"takes the inputs \['part_0', 'part_1'.*only models of one image tensor"):
            evaluate(keras.Model(structure, outputs), IMAGES, LABELS, **FEW)


def test_remedies_can_be_followed():
    inputs = keras.Input((4, 4, 1))
    two = keras.Model(inputs, [keras.layers.Dense(2, name=name)(keras.layers.Flatten()(inputs)) for name in "ab"])
    with pytest.raises(ValueError, match="keras.Model\\(model.inputs, {'logits': model.outputs\\[0\\]}\\)"):
        evaluate(two, IMAGES, LABELS, **FEW)
    assert evaluate(keras.Model(two.inputs, {"logits": two.outputs[0]}), IMAGES, LABELS, **FEW)["clean"].n == 40
    with pytest.raises(ValueError, match="a table .* there is robust.attacks.run_attack"):
        evaluate(halves, IMAGES.reshape(40, 16), LABELS, **FEW)
    with pytest.raises(ValueError, match="the first argument, is a ndarray"):
        evaluate(IMAGES, halves, LABELS, **FEW)
    with pytest.raises(ValueError, match="The first argument of run_attack is an attack.* is of the type function"):
        run_attack(halves, FGSM(ThreatModel(epsilon=0.1)), IMAGES, LABELS)


def test_the_accuracy_of_each_group_is_measured(outcome):
    """The accuracies follow by hand from the recorded outcomes of single images."""
    groups = np.array(["low", "high"])[np.arange(len(IMAGES)) % 2]
    report = evaluate(halves, IMAGES, LABELS, groups=groups.astype(object), **FEW).report  # as a column of pandas
    for prefix, identity in (("accuracy", "accuracy.clean"), ("attack.fgsm_linf_0.1", "attack.fgsm_linf_0.1.accuracy")):
        correct = np.array([*report.get_series(f"outcomes.{identity}").columns["right"][0]]) == "1"
        columns = report.get_series(f"{prefix}.groups").columns
        hits = [correct[groups == name] for name in ("high", "low")]
        assert columns["group"] == ["high", "low"] and columns["n"] == [*map(len, hits)]
        assert columns["accuracy"] == [group_hits.mean() for group_hits in hits]
    assert outcome.report.get_series("accuracy.groups") is None
    with pytest.raises(ValueError, match=r"groups: the shape is \[3\], not \["):
        evaluate(halves, IMAGES, LABELS, groups=["a", "b", "c"], **FEW)
    with pytest.raises(ValueError, match="groups: names are object; give texts"):
        evaluate(halves, IMAGES, LABELS, groups=np.array(["a", None] * 20, object), **FEW)


def test_a_notebook_shows_opening_plot_and_table(outcome):
    page = outcome._repr_html_()
    assert "An attacker allowed to change every pixel by up to 10 % of full scale makes" in page
    assert page.count('class="plot"') == 1 and "FGSM, L\u221e \u03b5 = 0.1" in page and "<script" not in page
    style = page.partition("</style>")[0].removeprefix("<style>")
    depth = [0]
    for bracket in re.findall(r"[{}]", style):
        depth.append(depth[-1] + (1 if bracket == "{" else -1))
    assert style.startswith(".tfrobust{") and depth[-1] == 0 and 0 not in depth[1:-1], (
        "all rules are inside the element"
    )


def test_a_data_frame_has_a_row_per_measurement(outcome, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=list))
    rows = {row["id"]: row for row in outcome.to_frame()}
    assert rows["accuracy.clean"]["value"] == outcome["clean"].value and rows["accuracy.clean"]["n"] == 40
    assert rows["attack.fgsm_linf_0.1.accuracy"]["epsilon"] == 0.1
    (smoothed,) = Evaluation([dataclasses.replace(outcome["clean"], settings={"n": 1000, "n0": 100})]).to_frame()
    assert (smoothed["n"], smoothed["setting_n"], smoothed["n0"]) == (40, 1000, 100)  # images, and draws
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ValueError, match="pip install pandas"):
        outcome.to_frame()


@pytest.mark.parametrize(("progress", "lines"), [(True, 1), (False, 0), (None, 0)])
def test_progress_is_shown_on_request(progress, lines, capsys):
    evaluate(halves, IMAGES, LABELS, progress=progress, **FEW)
    assert capsys.readouterr().out.count("attack 1 of 1  FGSM  Linf 0.1") == lines


def test_a_method_names_its_own_attack_and_the_choice_of_weights_can_be_said():
    """The radius 25.5 of [0, 255] is 0.1 of [0, 1], within which the evaluation attacks."""
    head = keras.layers.Dense(2)
    encoder = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Rescaling(1 / 255), keras.layers.Flatten()])
    attack = PGD(ThreatModel(epsilon=25.5, bounds=(0, 255)), steps=3)
    method = TRADES(encoder, head, attack=attack)
    method(IMAGES[:2])
    few = {"evaluators": (Doctor(attack=PGD(ThreatModel(epsilon=0.1), steps=3)), *FEW["evaluators"])}
    report = evaluate(method, 255 * IMAGES, LABELS, bounds=(0, 255), selected_on="last", **few).report
    checks = {finding.check: finding for finding in report.doctor}
    assert checks["selection"].verdict == "pass"
    assert "Training attacked by 3 steps within linf 0.1; " in checks["attack_strength"].evidence
    training = {"method": "TRADES", "norm": "linf", "epsilon": 0.1, "attack_steps": 3, "evaluation_seed": 0}
    assert report.training == pytest.approx(training)
    with pytest.raises(ValueError, match="selected_on"):
        evaluate(halves, IMAGES, LABELS, selected_on="tests", **FEW)
