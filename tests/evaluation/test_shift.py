"""ImageNet-R and -A: only the logits of their classes count."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax

from oracles import published
from tfrobust.data.published.imagenet import ImageNetA, ImageNetR
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.engine.statistics import wilson_interval
from tfrobust.evaluation.evaluators.shift import ShiftAccuracy

CLASSES, PER_CLASS = ("n1", "n3", "n4"), 8  # of six, n0 to n5
NAMES = tuple(f"n{number}" for number in range(6))
KERNEL = np.random.default_rng(3).normal(size=(3, 6)).astype(np.float32) * 9
KERNEL[:, [0, 2, 5]] += 20  # what is no class of the set always wins over all


def predict(pixels):
    return tf.reduce_mean(pixels, axis=[1, 2]) @ KERNEL


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    generator = np.random.default_rng(4)
    pictures = {
        f"{wnid}/{copy}.png": np.broadcast_to(generator.integers(0, 256, 3), (16, 16, 3)).astype(np.uint8)
        for wnid in CLASSES
        for copy in range(PER_CLASS)
    }
    return published.tree(tmp_path_factory.mktemp("r"), pictures)


@pytest.fixture
def setting():
    predictor = from_function(predict, image_shape=(8, 8, 3))
    images = np.full((3, 8, 8, 3), 0.5, np.float32)
    return Setting(predictor=predictor, images=images, labels=[0, 1, 2], class_names=NAMES, batch_size=5, seed=2)


def judge(folder, kind=ImageNetR, **changes):
    return ShiftAccuracy(source=kind(folder=str(folder), as_published=False), rms_bin_size=6, **changes)


def by_hand(folder):
    """The softmax over three of the six, image by image, and which are right."""
    confidence, correct = [], []
    for number, wnid in enumerate(CLASSES):
        for copy in range(PER_CLASS):
            pixels = tf.io.decode_png((folder / wnid / f"{copy}.png").read_bytes()).numpy() / 255
            logits = (pixels.mean(axis=(0, 1)) @ KERNEL.astype(np.float64))[[1, 3, 4]]
            confidence.append(softmax(logits).max())
            correct.append(logits.argmax() == number)
    return np.array(confidence), np.array(correct)


def test_only_the_classes_of_the_set_count(folder, setting):
    measurements = {m.id: m for m in judge(folder).run(setting).measurements}
    confidence, correct = by_hand(folder)
    assert (
        tuple(measurements)
        == judge(folder).ids()
        == tuple(f"shift.imagenet_r.{w}" for w in ("accuracy", "ece", "rms", "aurra"))
    )
    accuracy = measurements["shift.imagenet_r.accuracy"]
    assert 0.1 < correct.mean() < 0.9 and accuracy.value == correct.mean() and accuracy.n == 24
    assert (accuracy.low, accuracy.high) == wilson_interval(int(correct.sum()), 24)
    assert accuracy.settings["classes"] == "3 of 6" and accuracy.settings["source"].startswith("published: ImageNet-R")
    assert accuracy.settings["images"] == "shorter side 9, centre 8 x 8"
    order = np.argsort(-confidence)
    running = np.cumsum(correct[order]) / np.arange(1, 25)
    assert measurements["shift.imagenet_r.aurra"].value == pytest.approx(running.mean())
    bins = np.split(order[::-1], 4)
    rms = np.sqrt(sum(len(b) / 24 * (confidence[b].mean() - correct[b].mean()) ** 2 for b in bins))
    assert measurements["shift.imagenet_r.rms"].value == pytest.approx(rms, rel=1e-5)
    cell = np.ceil(confidence * 15)
    ece = sum(abs(confidence[cell == b].sum() - correct[cell == b].sum()) for b in range(1, 16)) / 24
    assert measurements["shift.imagenet_r.ece"].value == pytest.approx(ece, rel=1e-5)


def test_a_limit_progress_and_the_other_set(folder, setting):
    steps = []
    watched = dataclasses.replace(setting, progress=lambda *step: steps.append(step))
    judged = judge(folder, ImageNetA, limit=13, bins=1)
    measurements = judged.run(watched).measurements
    assert [m.id for m in measurements] == list(judged.ids()) and measurements[0].id == "shift.imagenet_a.accuracy"
    confidence, correct = (values[setting.subset(13, 24)] for values in by_hand(folder))
    assert measurements[0].n == 13 and measurements[0].value == correct.mean()
    assert measurements[1].value == pytest.approx(abs(confidence.mean() - correct.mean()), rel=1e-5)
    for limit in (3, 5, 8, 24, 99):
        (accuracy, *_) = judge(folder, limit=limit).run(setting).measurements
        assert accuracy.value == by_hand(folder)[1][setting.subset(limit, 24)].mean()
    assert steps[-3:] == [("ImageNet-A", 5, 13), ("ImageNet-A", 10, 13), ("ImageNet-A", 13, 13)]
    assert ShiftAccuracy.from_config(json.loads(json.dumps(judged.get_config()))) == judged


def test_a_class_the_model_lacks(folder, setting, tmp_path):
    other = published.tree(tmp_path, {f"{wnid}/a.png": np.zeros((9, 9, 3), np.uint8) for wnid in ("n1", "n9")})
    with pytest.raises(ValueError, match="2 class folders .* do not name their classes"):
        judge(other).check(setting)
    assert judge(folder).check(setting) is None
    with pytest.raises(ValueError, match="11 images make one bin of 6"):
        judge(folder, rms_bins="code", limit=11).check(setting)
    assert judge(folder, rms_bins="code", limit=12).check(setting) is None
    assert judge(folder).files_read() != judge(other).files_read()
