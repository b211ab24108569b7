import json
import os
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from serving.conftest import REPORT

from tfrobust.errors import InputError
from tfrobust.security import saved_models
from tfrobust.serving.export import assets, golden, probe
from tfrobust.serving.export import saved_model as export


def names(directory):
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def test_the_version_directory_is_complete_and_sha256sum_agrees(attached, staged):
    extras = ["SHA256SUMS", "class_names.json", "golden.npz", "tf_serving_warmup_requests"]
    reports = [f"robustness_report.{suffix}" for suffix in ("html", "json", "md")]
    assert sorted(os.listdir(staged / "assets.extra")) == extras
    assert sorted(os.listdir(attached / "assets.extra")) == sorted(extras + reports)
    assert json.loads((attached / export.CLASS_NAMES_FILE).read_text()) == ["a", "b", "c"]
    command = ["sha256sum", "-c", "--strict", "assets.extra/SHA256SUMS"]
    done = subprocess.run(command, cwd=attached, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert len(done.stdout.splitlines()) == len(names(attached)) - 1


def test_replaced_in_one_rename_and_without_leftovers(attached, arguments, tmp_path):
    directory = tmp_path / "model"
    (tmp_path / ".tmp-model").mkdir()
    (tmp_path / ".tmp-model" / "half").write_text("written by a killed process")
    first = assets.assemble(directory, **arguments)
    (directory / "stray").write_text("x")
    assert assets.assemble(directory, **arguments) == first
    assert probe.differences(golden.read(attached), golden.read(directory)) == []
    assert os.listdir(tmp_path) == ["model"]
    assert "stray" not in names(directory)


def test_a_copy_with_another_report_differs_in_nothing_else(attached, tmp_path):
    text = REPORT.replace("…", "Square")
    for _ in range(2):  # a second call replaces the copy of the first
        assets.copy_with_report(
            attached, tmp_path / "2", report_json=text, report_html="<p>new</p>", report_markdown="# new"
        )
    problems = probe.check(tmp_path / "2")
    assert problems.pop("clean process") and not any(problems.values()), problems  # tfrobust is imported here
    before, after = (probe.sums_of(directory) for directory in (attached, tmp_path / "2"))
    reports = {f"assets.extra/robustness_report.{suffix}" for suffix in ("html", "json", "md")}
    assert {name for name in before if before[name] != after.get(name)} == {
        "saved_model.pb",
        "fingerprint.pb",
        *reports,
    }
    assert after.keys() < before.keys()
    assert (tmp_path / "2" / probe.REPORT_FILE).read_text() == text and saved_models.scan(tmp_path / "2") == []
    (tmp_path / "2" / probe.REPORT_FILE).write_text("{}")
    with pytest.raises(InputError, match="does not return the report"):
        export.replace_report(tmp_path / "2", text)


def test_a_report_about_other_weights_or_answers_is_refused(arguments, staged, tmp_path):
    bias = arguments["head"].bias
    before = bias.numpy()
    try:
        bias.assign(np.nextafter(before, np.float32(10)))
        with pytest.raises(RuntimeError, match="weights are not those"):
            assets.assemble(tmp_path / "model", **arguments, evaluated=staged)
    finally:
        bias.assign(before)
    assert not (tmp_path / "model").exists()

    judged = tmp_path / "judged"
    assets.assemble(judged, **arguments)
    answer = golden.read(judged)
    answer["logits"] = np.nextafter(answer["logits"], np.float32(1e9))
    golden.write(judged, answer)
    with pytest.raises(RuntimeError, match="golden request returns other logits"):
        assets.assemble(tmp_path / "model", **arguments, evaluated=judged)


def test_golden_images_are_fixed_and_in_range():
    pixels = golden.golden_pixels((8, 8, 1))
    assert pixels.shape == (4, 8, 8, 1) and pixels.dtype == np.uint8
    assert pixels.reshape(-1)[:6].tolist() == [int(i * 2654435769 % 2**32) >> 24 for i in range(6)]
    np.testing.assert_allclose(golden.golden_images((8, 8, 1), 6)[:4], pixels / 255, rtol=1e-6)


def test_warm_up_records_are_genuine_and_replay_to_the_golden_response(attached):
    from tensorflow_serving.apis import prediction_log_pb2

    records = list(tf.data.TFRecordDataset(str(attached / probe.WARMUP_FILE)).as_numpy_iterator())
    logs = [prediction_log_pb2.PredictionLog.FromString(record) for record in records]
    assert {log.predict_log.request.model_spec.name for log in logs} == {"small"}
    answers = dict(probe.replay_records(attached, tf.saved_model.load(str(attached)).signatures))
    assert sorted(answers) == ["robustness_report", "serving_bytes", "serving_default"]
    expected = golden.read(attached)
    for name in ("serving_bytes", "serving_default"):
        assert probe.differences(expected, answers[name]) == []
    assert answers["robustness_report"]["report"][0] == (attached / probe.REPORT_FILE).read_bytes()


@pytest.mark.parametrize("fit", [10, 11])
def test_warm_up_files_replay_to_the_golden_response_where_the_test_split_crops(arguments, tmp_path, fit):
    """Also by an odd border: a model that does not replay is not published."""
    assets.assemble(tmp_path / "model", **arguments, report_json=REPORT, fit=fit, interpolation="bicubic")
    problems = probe.check(tmp_path / "model")
    assert problems.pop("clean process") and not any(problems.values()), problems  # tfrobust is imported here
