import numpy as np
import pytest
import tensorflow as tf

from tfrobust import corruptions
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators.clip_corruption import ClipCorruptionAccuracy
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.ops import randomness
from tfrobust.report.sections.corruptions import ClipCorruptions

SHAPE = (6, 8, 8, 1)
# Class 1 becomes brighter from the second frame to the third, class 0 darker.
STEPS = np.random.default_rng(0).uniform(-0.3, 0.3, 60).astype(np.float32)
CLIPS = np.full((60, *SHAPE), 0.5, np.float32)
CLIPS[:, 2:] += STEPS[:, None, None, None, None]
LABELS = (STEPS > 0).astype(int)


def rises(clips):
    step = tf.reduce_mean(clips[:, 2] - clips[:, 1], axis=[1, 2, 3])
    return tf.stack([tf.zeros_like(step), 10 * step - 1e-3], axis=1)


@pytest.fixture(scope="module")
def measurements():
    predictor = from_function(rises, image_shape=SHAPE, name="rises")
    setting = Setting(predictor=predictor, images=CLIPS, labels=LABELS, batch_size=16)
    evaluator = ClipCorruptionAccuracy(names=("frame_drop", "brightness"), severities=(2, 5))
    outcome = run_evaluation([evaluator], setting)
    assert {measurement.id for measurement in outcome.measurements} == {*evaluator.ids(), "cost.evaluation"}
    return {measurement.id: measurement for measurement in outcome.measurements}


def test_accuracies_are_those_of_the_corrupted_clips(measurements):
    keys = randomness.example_keys(randomness.make_key(0, "evaluation", "corruption"), tf.range(60))
    for name in ("frame_drop", "brightness"):
        for severity in (2, 5):
            corrupted = corruptions.corrupt_clips(tf.constant(CLIPS), name, severity, keys)
            correct = rises(corrupted).numpy().argmax(axis=1) == LABELS
            measurement = measurements[f"clip_corruption.{name}.{severity}.accuracy"]
            assert measurement.value == pytest.approx(correct.mean()) and measurement.n == 60
            assert measurement.settings["interval"] == "95 % over clips, Wilson"
    # A clip of class 1 is wrong where the third frame is lost; those of class 0 stay right.
    drop = measurements["clip_corruption.frame_drop.5.drop"]
    assert 0 < drop.value < 0.5 and "clips" in drop.settings["interval"]
    pair = [measurements[f"clip_corruption.frame_drop.{severity}.accuracy"].value for severity in (2, 5)]
    assert measurements["clip_corruption.mean_temporal.accuracy"].value == pytest.approx(np.mean(pair))


def test_nobody_takes_them_for_a_benchmark(measurements):
    cells = [measurement for name, measurement in measurements.items() if name.startswith("clip_corruption.")]
    assert len(cells) == 10
    assert all(cell.settings["source"] == "tfrobust clip corruptions, no published benchmark" for cell in cells)
    assert "no published benchmark" in ClipCorruptions.origin
