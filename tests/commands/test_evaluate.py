"""The command on models and data of other people's: what it takes, what it says of them, what it refuses."""

import json
import pathlib

import gin
import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.commands import evaluate, run
from tfrobust.errors import InputError
from tfrobust.report import assembly  # noqa: F401
from tfrobust.security import rehearsal

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPE, CLASSES = (6, 5, 3), 3
QUICK, PGD = "gin/eval/quick.gin", "gin/eval/pgd.gin"
GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.integers(0, 256, (24, *SHAPE)).astype(np.uint8)
LABELS = np.arange(24) % CLASSES


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with models and data."""
    folder = tmp_path_factory.mktemp("foreign")
    keras.utils.set_random_seed(1)
    inputs = keras.Input(SHAPE)
    hidden = keras.layers.Dense(8, activation="relu")(keras.layers.Flatten()(inputs))
    scores = keras.layers.Dense(CLASSES)(hidden)
    keras.Model(inputs, keras.layers.Softmax()(scores)).save(folder / "softmax.keras")
    gray_levels = keras.Sequential([keras.Input(SHAPE), keras.layers.Rescaling(1 / 255), keras.Model(inputs, scores)])
    gray_levels.save(folder / "gray_levels.keras")
    keras.Model(inputs, {"scores": scores, "other": hidden}).save(folder / "two.keras")
    keras.Model(inputs, keras.layers.Dense(1)(hidden)).save(folder / "one_class.keras")
    anywhere = keras.Input((None, None, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(4, 3)(anywhere))
    keras.Model(anywhere, keras.layers.Dense(CLASSES)(pooled)).save(folder / "any_size.keras")
    model = keras.Model(inputs, scores)

    class Frozen(tf.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        @tf.function
        def __call__(self, images):
            return {"logits": tf.raw_ops.PreventGradient(input=self.model(images), message="frozen for serving")}

    frozen = Frozen()
    signature = frozen.__call__.get_concrete_function(tf.TensorSpec([None, *SHAPE], name="images"))
    tf.saved_model.save(frozen, str(folder / "frozen"), signatures={"serving_default": signature})
    rehearsal.remember(folder / "frozen")
    np.savez(folder / "ids.npz", images=IMAGES, labels=LABELS)
    np.savez(folder / "one_hot.npz", images=IMAGES, labels=np.eye(CLASSES)[LABELS])
    np.savez(folder / "soft.npz", images=IMAGES, labels=np.full((24, CLASSES), 1 / CLASSES))
    np.savez(folder / "shifted.npz", images=IMAGES / np.float32(127.5) - 1, labels=LABELS)
    np.savez(folder / "same.npz", images=IMAGES, labels=LABELS * 0)
    for image, label in zip(IMAGES, LABELS, strict=True):
        class_folder = folder / "pictures" / f"class_{label}"
        class_folder.mkdir(parents=True, exist_ok=True)
        (class_folder / f"{len(list(class_folder.iterdir()))}.png").write_bytes(tf.io.encode_png(image).numpy())
    (folder / "only_white.gin").write_text("include 'eval/pgd.gin'\nEVALUATORS = [@pgd/AttackAccuracy()]\n")
    (folder / "bounds.gin").write_text("include 'eval/pgd.gin'\nevaluation/ThreatModel.bounds = (-1.0, 1.0)\n")
    return folder


def _report(base, tmp_path, model, data, gin=QUICK, *more):
    flags = [f"--model={base / model}", f"--data={base / data}", f"--gin_file={gin}", f"--output={tmp_path}"]
    assert evaluate.main([*flags, "--gin_param=EPSILON=0.05", *more]) == 0
    return json.loads((tmp_path / "robustness_report.json").read_text())


def _findings(report):
    return {finding["check"]: finding for finding in report["doctor"]}


@pytest.mark.rest
def test_another_signature_and_channels_first_are_named_by_flags(base, tmp_path, monkeypatch, capsys):
    """The same weights give the same numbers, whatever their export calls its signature and where its channels are."""
    monkeypatch.chdir(ROOT)
    model = keras.saving.load_model(base / "softmax.keras")

    class Foreign(tf.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        @tf.function
        def __call__(self, images):
            return {"logits": tf.math.log(self.model(tf.transpose(images, [0, 2, 3, 1])))}

    foreign, shape = Foreign(), (SHAPE[2], *SHAPE[:2])
    function = foreign.__call__.get_concrete_function(tf.TensorSpec([None, *shape], name="images"))
    tf.saved_model.save(foreign, str(tmp_path / "torch"), signatures={"predict": function})
    rehearsal.remember(tmp_path / "torch")
    flags = ["--gin_param=EVALUATORS=[@CleanAccuracy(), @pgd20/AttackAccuracy()]"]
    plain = _report(base, tmp_path / "a", "softmax.keras", "ids.npz", QUICK, *flags)
    more = ["--signature=predict", "--channels_first"]
    flags_of = [f"--model={tmp_path / 'torch'}", f"--data={base / 'ids.npz'}", f"--gin_file={QUICK}", more[0]]
    assert evaluate.main([*flags_of, "--gin_param=EPSILON=0.05"]) == 2
    assert "takes (3, 6, 5): its channels come first, so add --channels_first" in capsys.readouterr().err
    other = _report(base, tmp_path / "b", tmp_path / "torch", "ids.npz", QUICK, *flags, *more)
    values = [
        {measurement["id"]: measurement["value"] for measurement in report["measurements"][:2]}
        for report in (plain, other)
    ]
    assert values[0] == values[1] and other["training"]["channels_first"] is True
    assert other["training"]["signature"] == "predict"


def test_a_signature_of_a_file_without_signatures_is_refused(base, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    flags = [f"--model={base / 'softmax.keras'}", f"--data={base / 'ids.npz'}", f"--gin_file={QUICK}"]
    assert evaluate.main([*flags, "--gin_param=EPSILON=0.05", "--signature=predict"]) == 2
    assert "softmax.keras is no SavedModel and has no signatures: leave --signature out." in capsys.readouterr().err


def test_a_dry_run_costs_the_attacks_and_writes_nothing(base, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = [f"--model={base / 'gray_levels.keras'}", f"--data={base / 'ids.npz'}", f"--gin_file={QUICK}"]
    flags += ["--bounds=0,255", "--gin_param=EPSILON=0.05"]
    assert evaluate.main([*flags, "--gin_param=EVAL_EXAMPLES=10", "--dry_run", "--budget=1h"]) == 0
    text = capsys.readouterr().out
    # FGSM: the clean image, a step, a candidate; PGD-20: the clean image, 20 steps, a candidate.
    assert "at most 25 forward and 21 backward passes per example, by 2 attacks on 10 examples" in text
    assert "together 250 forward and 210 backward passes" in text
    assert text.endswith("\nbudget      1 h 0 min suffice for the attacks\n") and not list(tmp_path.iterdir())
    assert "test        24 images" in text
    assert evaluate.main([*flags, "--dry_run", "--quiet"]) == 0 and " images of " not in capsys.readouterr().out


def test_probabilities_are_judged_as_log_p_and_the_report_says_so(base, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(ROOT)
    few = "--gin_param=EVALUATORS=[@CleanAccuracy(), @fgsm/AttackAccuracy()]"
    soft = _report(base, tmp_path, "softmax.keras", "ids.npz", QUICK, few)
    finding = _findings(soft)["logits"]
    assert finding["verdict"] == "warn" and "log(p)" in finding["evidence"] and "return logits" in finding["remedy"]
    assert "warn: logits" in capfd.readouterr().out
    for ending in ("html", "md"):
        assert "log(p)" in (tmp_path / f"robustness_report.{ending}").read_text()
    # log(p) and the logits are attacked alike: the same weights without their softmax fall as often.
    plain = _report(base, tmp_path / "plain", "two.keras", "ids.npz", QUICK, few, "--logits_output=scores")
    assert "logits" not in _findings(plain)
    for measurement, other in zip(soft["measurements"], plain["measurements"], strict=True):
        if not measurement["id"].startswith("cost."):
            assert abs(measurement["value"] - other["value"]) <= 1 / 24 + 1e-9


def test_a_model_of_other_pixels_is_evaluated_on_data_and_radii_of_unit_pixels(base, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(ROOT)
    few = "--gin_param=EVALUATORS=[@CleanAccuracy(), @fgsm/AttackAccuracy()]"
    levels = _report(base, tmp_path, "gray_levels.keras", "ids.npz", QUICK, few, "--bounds=0,255")
    unit = _report(base, tmp_path / "unit", "two.keras", "ids.npz", QUICK, few, "--logits_output=scores")
    assert levels["training"]["model_bounds"] == [0, 255] and levels["run_sha256"] != unit["run_sha256"]
    for measurement, other in zip(levels["measurements"], unit["measurements"], strict=True):
        assert measurement["id"] == other["id"]
        if not measurement["id"].startswith("cost."):
            assert abs(measurement["value"] - other["value"]) <= 1 / 24 + 1e-9
    for bounds in ("255", "1,0", "0,nan", "0,inf", "0,1,2"):
        flags = [f"--model={base / 'two.keras'}", f"--data={base / 'ids.npz'}", f"--gin_file={QUICK}"]
        assert evaluate.main([*flags, f"--bounds={bounds}"]) == 2
        assert "is not LOW,HIGH, such as 0,255" in capfd.readouterr().err


def test_a_saved_model_without_gradients(base, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(ROOT)
    report = _report(base, tmp_path, "frozen", "ids.npz", PGD)
    assert [measurement["id"] for measurement in report["measurements"] if "cost" not in measurement["id"]] == [
        "accuracy.clean"
    ]
    finding = _findings(report)["white_box"]
    assert finding["verdict"] == "fail" and "attack.pgd_linf_0.05.accuracy" in finding["evidence"]
    assert report["not_measured"][0].startswith("White-box attacks")
    assert "fail: white_box" in capfd.readouterr().out


def test_a_folder_of_pictures_is_read_at_the_model_s_own_size(base, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    clean = "--gin_param=EVALUATORS=[@CleanAccuracy()]"
    report = _report(base, tmp_path / "a", "softmax.keras", "pictures", QUICK, clean)
    assert report["data"]["source"]["config"]["image_shape"] == list(SHAPE) and report["data"]["test_size"] == 24
    arrays = _report(base, tmp_path / "b", "softmax.keras", "ids.npz", QUICK, clean)
    assert report["measurements"][0]["id"] == arrays["measurements"][0]["id"] == "accuracy.clean"
    assert report["measurements"][0]["value"] == arrays["measurements"][0]["value"]


@pytest.mark.parametrize("model, data, flags, part", stored.rows(globals(), "refused_in_one_line_with_nothing_written"))
def test_refused_in_one_line_with_nothing_written(base, tmp_path, capfd, monkeypatch, model, data, flags, part):
    monkeypatch.chdir(ROOT)
    common = [f"--model={base / model}", f"--data={base / data}", f"--output={tmp_path / 'never'}"]
    gin = [] if any("gin_file" in flag for flag in flags) else [f"--gin_file={QUICK}"]
    flags = ["--gin_param=EPSILON=0.05", *flags]
    assert evaluate.main([*common, *gin, *(flag.format(base=base) for flag in flags)]) == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
    assert part in line and len(line) <= 300
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("data, configuration, expected", stored.rows(globals(), "an_export_is_attacked_within_the"))
def test_an_export_is_attacked_within_the_radius_of_its_report(tmp_path, data, configuration, expected):
    """The default of 0.2 is that of the embedded digits; None: EPSILON must be set."""
    source = {"registered_name": f"tfrobust>{data}"}
    document = {"data": {"source": source}, "configuration": configuration}
    (tmp_path / "robustness_report.json").write_text(json.dumps(document))
    arguments = [f"--model={tmp_path}", "--gin_file=gin/eval/quick.gin"]
    flags = evaluate.parser().parse_args(arguments)
    if expected is None:
        with pytest.raises(InputError, match="EPSILON has no default"):
            run.prepare(flags, "evaluate", *evaluate._radius(flags))
        return
    for more, epsilon in (([], expected[0]), (["--gin_param=EPSILON=0.01"], 0.01)):
        flags = evaluate.parser().parse_args([*arguments, *more])
        run.prepare(flags, "evaluate", *evaluate._radius(flags))
        evaluators = gin.get_bindings("tfrobust.runs.experiment.evaluate", resolve_references=True)["evaluators"]
        threats = [evaluator.attack.threat for evaluator in evaluators if hasattr(evaluator, "attack")]
        assert {(threat.epsilon, threat.norm) for threat in threats} == {(epsilon, expected[1])}
