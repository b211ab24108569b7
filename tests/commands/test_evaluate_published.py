"""One command judges a model on a published set: what the report says, what is refused before anything is written."""

import json
import pathlib

import keras
import numpy as np
import pytest
import stored

from oracles import published
from tfrobust import corruptions
from tfrobust.commands import evaluate

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGES = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), np.uint8)
LABELS = np.arange(10)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with a model of 10 classes, its clean test images, and a set of each kind."""
    folder = tmp_path_factory.mktemp("published")
    keras.utils.set_random_seed(1)
    inputs = keras.Input((32, 32, 3))
    hidden = keras.layers.AveragePooling2D(8)(inputs)
    keras.Model(inputs, keras.layers.Dense(10)(keras.layers.Flatten()(hidden))).save(folder / "model.keras")
    np.savez(folder / "clean.npz", images=IMAGES, labels=LABELS)
    published.cifar_c(folder / "CIFAR-10-C", published.corrupted(IMAGES, corruptions.NAMES), LABELS)
    parts = {f"{name}_{s}": IMAGES ^ (16 * s) for name in ("fog", "elastic") for s in (1, 5)}
    published.tfds_corrupted(folder, "cifar10_corrupted", parts, LABELS)
    published.tree(folder / "imagenet-r", {f"n{c}/{i}.jpg": IMAGES[c + i] for c in (2, 3, 7) for i in range(2)})
    (folder / "CIFAR-10-P").mkdir()
    np.save(folder / "CIFAR-10-P" / "tilt.npy", np.stack([IMAGES, IMAGES ^ 32, IMAGES ^ 96], axis=1))
    tree = {f"fog/{s}/n{c}/a.JPEG": IMAGES[c] ^ (16 * s) for s in (1, 2) for c in range(10)}
    published.tree(folder / "imagenet-c", tree)
    return folder


def _run(base, output, gin, *params):
    flags = [f"--model={base / 'model.keras'}", f"--data={base / 'clean.npz'}", f"--output={output}"]
    return evaluate.main([*flags, f"--gin_file={gin}", *(f"--gin_param={param}" for param in params)])


def _values(output):
    report = json.loads((output / "robustness_report.json").read_text())
    return {measured["id"]: measured for measured in report["measurements"]}


def test_cifar_c(base, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    folder = f"CifarC.folder={str(base / 'CIFAR-10-C')!r}"
    assert _run(base, tmp_path, "gin/eval/cifar10_c.gin", folder, "CifarC.as_published=False") == 0
    values = _values(tmp_path)
    assert len([name for name in values if name.startswith("corruption.") and name.endswith(".accuracy")]) == 75 + 2 + 4
    settings = values["corruption.fog.5.accuracy"]["settings"]
    assert settings["source"] == "published: CIFAR-10-C, an excerpt or a variant"
    for ending in ("html", "md"):
        text = (tmp_path / f"robustness_report.{ending}").read_text()
        assert "Published images: CIFAR-10-C, an excerpt or a variant." in text


@pytest.mark.parametrize("gin, kind, folder, more, source", stored.rows(globals(), "the_other_sets"))
def test_the_other_sets(base, tmp_path, monkeypatch, capfd, gin, kind, folder, more, source):
    monkeypatch.chdir(ROOT)
    (base / "classes.txt").write_text("\n".join(f"n{number}" for number in range(10)))
    more = [param.replace("{base}/classes.txt", repr(str(base / "classes.txt"))) for param in more]
    params = [f"{kind}.folder={str(base / folder)!r}", f"{kind}.as_published=False", *more]
    assert _run(base, tmp_path, f"gin/eval/{gin}", *params) == 0
    judged = [m for name, m in _values(tmp_path).items() if name.startswith(("corruption.", "shift.", "stability."))]
    assert judged and all(m["settings"]["source"].startswith(source) for m in judged)
    sentence = f"Published images: {source.removeprefix('published: ')}, an excerpt or a variant."
    assert sentence in (tmp_path / "robustness_report.html").read_text()
    assert ("ImageNet-R, accuracy" in capfd.readouterr().out) == (kind == "ImageNetR")


@pytest.mark.parametrize("params, message", stored.rows(globals(), "evaluate_published_refused_in_one_line_with"))
def test_refused_in_one_line_with_nothing_written(base, tmp_path, capfd, monkeypatch, params, message):
    monkeypatch.chdir(ROOT)
    params = [param.format(base=base) for param in params]
    assert _run(base, tmp_path / "never", "gin/eval/cifar10_c.gin", *params) == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
    assert message in line and len(line) <= 300
    assert not (tmp_path / "never").exists()
