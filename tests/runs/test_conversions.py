"""Conversions of an export: compared with the SavedModel, evaluated by themselves, published once."""

import contextlib
import dataclasses
import importlib.util
import pathlib
import signal
import threading
import types
from concurrent import futures

import keras
import numpy as np
import pytest
import stored
from faults import processes, whole_run
from faults.processes import Trap
from faults.whole_run import EXPORT, copy, report_of

from tfrobust.commands import export as command
from tfrobust.commands import run as settings
from tfrobust.data.sources.digits import Digits
from tfrobust.data.spec import ArrayExamples
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import loading
from tfrobust.report.schema import Report
from tfrobust.runs import artifact, conversions
from tfrobust.runs.conversions import Original
from tfrobust.serving.export import assets, litert, publish
from tfrobust.structs import Measurement

CONFIGURATION = "EPSILON = 0.1\nNORM = 'l2'\nNAME = 'net'\nSEED = 3\n"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """`exported/net/1`, a convolution with a linear head fitted to the digits by ridge regression."""
    folder = tmp_path_factory.mktemp("conversions")
    keras.utils.set_random_seed(0)
    source = Digits(validation_size=100)
    dataset = source.load()
    images, labels = dataset.train.arrays()
    inputs = keras.Input((8, 8, 1))
    hidden = keras.layers.Conv2D(16, 3, strides=2, padding="same", activation="relu")(inputs)
    encoder, head = keras.Model(inputs, keras.layers.Flatten()(hidden)), keras.layers.Dense(10)
    head.build((None, 256))
    features = np.asarray(encoder(images))
    ridge = features.T @ features + 10.0 * np.eye(256)  # large weights would not survive 8 bits
    head.kernel.assign(np.linalg.solve(ridge, features.T @ (10.0 * np.eye(10)[labels])))
    parts = dict(encoder=encoder, head=head, image_shape=(8, 8, 1), class_names=dataset.class_names, name="net")
    weights = assets.assemble(folder / "staged", **parts)
    report = Report(
        model={"name": "net", "version": 1, "weights_sha256": weights, "parameters": 2730},
        data=artifact.data_facts(dataset, source),
        measurements=(Measurement("accuracy.clean", 0.9, n=360),),
        threat="None.",
        run_sha256="0" * 64,
        configuration=CONFIGURATION,
        training={"seed": 3},
    )
    assets.assemble(folder / "final", **parts, report_json=report.to_json(), evaluated=folder / "staged")
    base = folder / "exported" / "net"
    publish.publish(folder / "final", base, publish.claim(base, "tests"), "tests")
    return folder


@pytest.fixture
def original(published, tmp_path):
    copy(published, tmp_path, "exported")
    return Original.of(str(tmp_path / "exported" / "net"), str(tmp_path / "work"))


def evaluated(calls):
    """An evaluation that notes what it is asked for, and measures half."""

    def evaluate(file, surrogate, output):
        calls.append((file, surrogate, output))
        earlier = artifact.earlier_report(file)
        half = (Measurement("accuracy.clean", 0.5, n=360),)
        return dataclasses.replace(earlier, measurements=half, run_sha256="1" * 64)

    return evaluate


def test_each_kind_is_published_once_with_a_report_of_its_own(original, tmp_path, capsys):
    calls = []
    conversions.litert_files(original, ("float32", "int8"), evaluated(calls))
    first = capsys.readouterr().out
    assert calls == [
        (f"{tmp_path}/work/net-{kind}", f"{tmp_path}/exported/net/1", f"{tmp_path}/work/evaluation/net-{kind}")
        for kind in ("float32", "int8")
    ]
    for kind in ("float32", "int8"):
        version = tmp_path / "exported" / f"net-{kind}" / "1"
        report, size = report_of(version / "assets.extra"), (version / "model.tflite").stat().st_size
        assert report.model["name"] == f"net-{kind}" and report.model["version"] == 1
        assert (report.model["format"], report.model["kind"], report.model["bytes"]) == ("LiteRT", kind, size)
        assert report.model["converted_from"] == "net/1" and report.training == original.report.training
        assert report.get("accuracy.clean").value == 0.5 and report.get("parity.agreement").value > 0.95
        assert f"{version / 'model.tflite'}: {size:,} bytes" in first
        page = (version / "assets.extra" / "robustness_report.md").read_text()
        assert (
            f"LiteRT file ({kind}, {size:,} bytes)" in page.splitlines()[0] and "Same class as the SavedModel" in page
        )
        html = (version / "assets.extra" / "robustness_report.html").read_text()
        assert f"<small>version 1, LiteRT file ({kind}, {size:,} bytes)</small>" in html
        loaded = loading.load(str(version.parent))
        assert loaded.weights_sha256 == report.model["weights_sha256"]
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file() and "exported" in path.parts)
    before = {path: path.stat().st_mtime_ns for path in files}
    conversions.litert_files(original, ("int8",), evaluated(calls))
    assert "(published by this run before)" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in files} == before
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file() and "exported" in path.parts) == files


@pytest.mark.parametrize("kinds", [("int8", "float16"), ("int8", "int8")])
def test_conversions_at_the_same_time_publish_their_own_files(original, tmp_path, monkeypatch, kinds):
    publication, both = publish.publish, threading.Barrier(2)

    def simultaneous(*arguments, **keywords):
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(1.0)
        return publication(*arguments, **keywords)

    def convert(kind):
        parity = (Measurement("parity.agreement", 1.0, "fraction", n=10, settings={"reference": "net/1"}),)
        facts = {"format": "LiteRT", "kind": kind}
        file = ("model.tflite", kind.encode(), original.report, parity, facts)
        conversions._publish(original, f"net-{kind}", *file)

    monkeypatch.setattr(publish, "publish", simultaneous)
    with futures.ThreadPoolExecutor(2) as threads:
        assert [*threads.map(convert, kinds)] == [None, None]
    for kind in kinds:
        (version,) = (path for path in (tmp_path / "exported" / f"net-{kind}").iterdir() if path.is_dir())
        assert (version / "model.tflite").read_bytes() == kind.encode()
        assert report_of(version / "assets.extra").model["name"] == f"net-{kind}"


@pytest.mark.rest
def test_the_parity_is_what_the_two_models_say(original, tmp_path):
    conversions.litert_files(original, ("int8",), evaluated([]))
    images, labels = Digits(validation_size=100).load().test.arrays()
    base = tmp_path / "exported"
    ours = np.asarray(loading.load(str(base / "net")).logits(images))
    theirs = np.asarray(loading.load(str(base / "net-int8")).logits(images))
    report = report_of(base / "net-int8" / "1" / "assets.extra")
    parity = {name: report.get(f"parity.{name}").value for name in ("agreement", "largest_gap", "mean_gap")}
    accuracies = [np.mean(logits.argmax(-1) == labels) for logits in (ours, theirs)]
    assert parity["agreement"] == pytest.approx(np.mean(ours.argmax(-1) == theirs.argmax(-1)))
    assert parity["largest_gap"] == pytest.approx(np.abs(ours - theirs).max(), rel=1e-3)
    assert parity["mean_gap"] == pytest.approx(np.abs(ours - theirs).mean(), rel=1e-3)
    assert report.get("parity.accuracy_change").value == pytest.approx(accuracies[1] - accuracies[0])


def test_files_are_compared_on_all_classes_of_a_sorted_split_without_loading_it(original, monkeypatch):
    test, train = original.dataset.test, original.dataset.train
    by_class, drawn = test.take(np.argsort(test.labels, kind="stable")), original.representative
    monkeypatch.setattr(conversions, "_COMPARED", 40)
    sizes, real = [], ArrayExamples.arrays
    monkeypatch.setattr(
        ArrayExamples, "arrays", lambda *arguments: sizes.append(len(real(*arguments)[0])) or real(*arguments)
    )
    again = dataclasses.replace(original)
    vars(again)["dataset"] = types.SimpleNamespace(test=by_class, train=train)
    _, labels, logits = again.compared
    assert len(logits) == 40 and set(labels) == set(range(10))
    np.testing.assert_array_equal(again.representative, drawn)
    assert sizes == [40, 500] and len(train) > 500 and len(test) > 40


@pytest.mark.rest
def test_a_wrong_scale_is_not_published(original, tmp_path, monkeypatch):
    convert = litert.convert
    monkeypatch.setattr(litert, "convert", lambda directory, kind, images: convert(directory, kind, 255 * images))
    with pytest.raises(InputError, match="not published as int8: the file predicts the class of the SavedModel for"):
        conversions.litert_files(original, ("int8",), evaluated([]))
    assert [path.name for path in (tmp_path / "exported").iterdir()] == ["net"]


def test_a_model_of_mixed_precision_is_refused_by_its_setting_before_its_onnx_file(original, monkeypatch, capsys):
    mixed = dataclasses.replace(original.report, training={"precision": "mixed_float16"})
    original = dataclasses.replace(original, report=mixed)
    refusal = "trained in mixed_float16, and LiteRT files need train.precision = 'float32'"
    with pytest.raises(InputError, match=refusal):
        conversions.litert_files(original, ("float32",), evaluated([]))
    monkeypatch.setattr(Original, "of", lambda *_: original)
    monkeypatch.setattr(command, "_require_packages", lambda flags: None)
    assert command.main([f"--model={original.directory}", "--onnx", "--litert=float32"]) == 2
    assert refusal in capsys.readouterr().err
    assert [path.name for path in original.directory.parent.parent.iterdir()] == ["net"]


def test_an_original_has_its_name_also_inside_its_folder(original, monkeypatch):
    for folder, model in (
        (original.directory.parent, "1"),
        (original.directory.parent, "."),
        (original.directory, ".."),
    ):
        monkeypatch.chdir(folder)
        inside = Original.of(model, str(original.folder))
        assert inside.name == "net" and inside.directory == original.directory


def test_an_onnx_file_has_the_report_of_the_saved_model(original, tmp_path, capsys):
    conversions.onnx_file(original)
    version = tmp_path / "exported" / "net-onnx" / "1"
    report = report_of(version / "assets.extra")
    assert report.get("accuracy.clean") == original.report.get("accuracy.clean")
    assert report.model["format"] == "ONNX" and report.get("parity.agreement").value == 1.0
    assert report.not_measured[0].startswith("The numbers are those of the SavedModel, version 1 of net.")
    assert (version / "model.onnx").stat().st_size == report.model["bytes"]
    capsys.readouterr()
    conversions.onnx_file(original)
    assert "(published by this run before)" in capsys.readouterr().out


def test_a_missing_package_is_named_before_anything_is_loaded(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for kind, extra in (("--litert=int8", "litert"), ("--onnx", "onnx")):
        assert command.main(["--model=exported/none", kind]) == 2
        assert f"pip install 'tfrobust[{extra}]'." in capsys.readouterr().err


@pytest.mark.parametrize(
    "configuration, file, params, expected",
    [
        (CONFIGURATION, "", [], (0.1, "l2", None)),
        (CONFIGURATION, "EPSILON = 0.05", [], (0.05, "l2", None)),
        (CONFIGURATION, "SEED = 5", ["EPSILON=0.15"], (0.15, "l2", 5)),
        ("EPSILON = 0.1\nEVAL_EPSILON = 0.2\n", "", ["SEED=0"], (0.2, "linf", 0)),
        ("EPSILON = 0.1\nEVAL_EPSILON = 0.2\n", "", ["EPSILON=0.15"], (0.15, "linf", None)),
    ],
)
def test_files_and_flags_replace_the_knobs_of_the_model(
    original, tmp_path, monkeypatch, configuration, file, params, expected
):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("mine.gin").write_text(f"include 'gin/eval/litert.gin'\n{file}\n")
    report = dataclasses.replace(original.report, configuration=f"# Macros:\n{configuration}")
    (original.directory / "assets.extra" / "robustness_report.json").write_text(report.to_json())
    evaluations = []

    def litert_files(converted, kinds, evaluate):
        evaluate(str(converted.directory), str(converted.directory), "output")

    def call(name, **arguments):
        macros = settings._configuration.macros
        seed = settings._configuration.arguments["", "tfrobust.runs.experiment.evaluate", "seed"].value
        radius, norm = (settings._configuration.substitute(macros[name]) for name in ("EVAL_EPSILON", "EVAL_NORM"))
        evaluations.append((radius, norm, seed and settings._configuration.substitute(macros["SEED"])))

    monkeypatch.setattr(conversions, "litert_files", litert_files)
    monkeypatch.setattr(command.evaluate, "call", call)
    flags = ["--gin_file=mine.gin", *(f"--gin_param={param}" for param in params)]
    assert command.main([f"--model={original.directory}", "--litert=int8,int8", *flags]) == 0
    assert evaluations == [expected]


@pytest.mark.parametrize("flags, part", stored.rows(globals(), "flags_that_make_no_sense_are_refused"))
def test_flags_that_make_no_sense_are_refused(flags, part, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command.main(flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert part in line and not list(tmp_path.iterdir())


@pytest.mark.rest
def test_a_run_is_converted_and_evaluated_also_after_kills(tmp_path_factory, tmp_path):
    copy(whole_run.trained(tmp_path_factory), tmp_path)
    flags = ["--workdir=runs/tiny", "--litert=int8", "--gin_file=gin/eval/quick.gin"]
    places = [
        Trap(["tfrobust.serving.export.litert:convert"], 1),
        Trap(["tfrobust.evaluation.runner:_run_one"], 2),
        Trap(["os:rename"], 1),
        Trap(["tfrobust.serving.export.publish:_release"], 1),
    ]
    for trap in places:
        assert processes.run(EXPORT, [flags], cwd=tmp_path, traps=[trap]).code == -signal.SIGKILL, trap
    ended = processes.run(EXPORT, [flags], cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert [path.name for path in (tmp_path / "exported" / "tiny-int8").iterdir()] == ["1"]
    report = report_of(tmp_path / "exported" / "tiny-int8" / "1" / "assets.extra")
    assert {"accuracy.clean", "attack.pgd_linf_0.2.accuracy", "parity.agreement"} <= {m.id for m in report.measurements}
