"""The models in exported/: complete, free of traces of a machine, and with the numbers of their reports."""

import pathlib
import re
import shlex

import numpy as np
import printed
import pytest
import stored
import tensorflow as tf

from tfrobust import keras as robust
from tfrobust.commands import compare, gate
from tfrobust.report import Report
from tfrobust.security import saved_models
from tfrobust.serving.export import probe

EXPORTED = printed.ROOT / "exported"
NAMES = ("fashion_mnist_ascl_leaked", "fashion_mnist_ibp", "fashion_mnist_supervised", "fashion_mnist_trades")
GUIDE = printed.GUIDES / "fashion_mnist.md"
DEBIAN = pathlib.Path(robust.data.FashionMnist.folders[0])
IMAGES = 64
for_each_name = pytest.mark.parametrize("name", NAMES)


def version(name: str) -> pathlib.Path:
    return EXPORTED / name / "1"


def report_of(name: str) -> Report:
    return Report.from_json((version(name) / probe.REPORT_FILE).read_text("utf-8"))


def test_they_take_little_space():
    sizes = [path.stat().st_size for name in NAMES for path in version(name).rglob("*") if path.is_file()]
    assert 1e6 < sum(sizes) < 8e6


@for_each_name
def test_their_files_are_those_that_were_published(name):
    """With the checksums of training, and without the path, the user or the host of the machine."""
    assert probe.check_sums(version(name)) == [] and saved_models.scan(version(name)) == []
    for path in version(name).rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert not re.search(rb"/(?:home|root|tmp|work|mnt|Users)/\w", content), path
    report = report_of(name)
    assert report.model["name"] == name and report.model["version"] == 1
    assert report.data["source"]["config"]["path"] is None and report.data["test_size"] == 10_000


@for_each_name
def test_they_return_their_golden_response_and_their_report(name):
    loaded = tf.saved_model.load(str(version(name)))
    golden = probe.read_golden(version(name))
    outputs = loaded.signatures["serving_default"](images=tf.constant(golden["images"]))
    for output in probe.PREDICTIONS:  # bits only on the kind of processor that recorded them
        np.testing.assert_allclose(outputs[output], golden[output], rtol=1e-4, atol=1e-4)
    answer = loaded.signatures["robustness_report"](request=tf.constant([""]))["report"]
    assert answer[0].numpy() == (version(name) / probe.REPORT_FILE).read_bytes()


@pytest.mark.rest
@pytest.mark.skipif(not DEBIAN.is_dir(), reason="Fashion-MNIST is not installed: apt-get install dataset-fashion-mnist")
@for_each_name
def test_their_numbers_come_again_on_the_first_images(name):
    """Clean and under FGSM, image by image; another processor may round one of them to the other side."""
    report, threat = report_of(name), robust.attacks.ThreatModel(epsilon=0.1)
    examples = robust.data.FashionMnist(validation_size=5000).load().test
    assert examples.fingerprint == report.data["test_fingerprint"]
    images, labels = examples.images[:IMAGES] / np.float32(255), examples.labels[:IMAGES]
    evaluators = [robust.evaluators.CleanAccuracy()]
    evaluators.append(robust.evaluators.AttackAccuracy(attack=robust.attacks.FGSM(threat)))
    evaluation = robust.evaluate(version(name), images, labels, evaluators=evaluators)
    for measured in ("accuracy.clean", "attack.fgsm_linf_0.1.accuracy"):
        published, again = (
            next(entry.columns["right"][0] for entry in series if entry.id == f"outcomes.{measured}")
            for series in (report.series, evaluation.series)
        )
        differing = sum(old != other for old, other in zip(published[:IMAGES], again, strict=True))
        assert differing <= 1, measured


def test_the_table_of_the_guide_is_what_compare_prints(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(printed.ROOT)
    text = GUIDE.read_text("utf-8")
    (command,) = re.findall(r"^python -m tfrobust\.compare (.*--format=markdown.*)$", text, re.MULTILINE)
    arguments = [word for word in shlex.split(command) if "*" not in word]
    paths = [str(version(name)) for name in NAMES]
    assert compare.main([*paths, *arguments, f"--output={tmp_path}/page.html"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(NAMES) and all(row in text for row in rows)


@pytest.mark.parametrize("name, requirement, code", stored.rows(globals(), "a_gate_judges_them"))
def test_a_gate_judges_them(name, requirement, code, capsys):
    assert gate.main([str(EXPORTED / name), "--require", requirement]) == code
