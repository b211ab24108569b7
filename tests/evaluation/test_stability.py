"""Flip probabilities against the benchmark's definition, in closed form, and through the evaluator by hand."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from oracles import sequences as oracle
from tfrobust import corruptions
from tfrobust.evaluation.engine import base, statistics
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators import stability
from tfrobust.evaluation.evaluators.stability import ALEXNET, Stability
from tfrobust.ops import randomness

SHAPE = (8, 8, 1)
KERNEL = tf.constant(np.random.default_rng(2).normal(size=(64, 3)), tf.float32)
FEW = Stability(names=("gaussian_noise", "rotate", "translate"))


def predict(pixels):
    return tf.reshape(pixels - 0.5, [-1, 64]) @ KERNEL


def setting_of(function, **changes):
    images = np.random.default_rng(1).random((11, *SHAPE)).astype(np.float32)
    predictor = from_function(function, image_shape=SHAPE, differentiable=False)
    fields = {"images": images, "labels": np.zeros(11, int), "batch_size": 70, "seed": 5, **changes}
    return base.Setting(predictor=predictor, **fields)


def found_by(evaluator, setting):
    return {measured.id: measured for measured in evaluator.run(setting).measurements}


# ------------------------------------------------------------------------------------------- the definition


@pytest.mark.parametrize("noise", [False, True])
def test_flip_probabilities_are_the_benchmark_s(noise):
    answers = np.random.default_rng(0).integers(0, 3, (7, 12))
    flips = stability.flip_probabilities(answers, noise=noise)
    assert flips.mean() == pytest.approx(oracle.flip_probability(answers, noise))
    assert flips[2] == pytest.approx(oracle.flip_probability(answers[2:3], noise))


def test_in_closed_form():
    steady, turning = np.zeros([1, 9]), np.arange(9)[None] % 2
    step = np.array([[0, 0, 0, 0, 1, 1, 1, 1, 1]])
    pairs = [
        [float(stability.flip_probabilities(a, noise=n)[0]) for n in (False, True)] for a in (steady, turning, step)
    ]
    assert pairs == [[0, 0], [1, 0.5], [1 / 8, 5 / 8]]
    assert stability.flip_probabilities(np.array([[0, np.nan, np.nan, 0]]), noise=False) == 1


# ------------------------------------------------------------------------------------------- the evaluator


def by_hand(setting, name):
    """All films at once, where the evaluator goes by few."""
    keys = randomness.example_keys(randomness.make_key(5, "evaluation", "stability"), tf.range(11))
    films = corruptions.sequence(tf.constant(setting.images), name, keys)
    answers = predict(tf.reshape(films, [-1, *SHAPE])).numpy().argmax(-1).reshape(11, -1)
    return stability.flip_probabilities(answers, noise="noise" in name)


def test_the_numbers_are_those_of_films_judged_by_hand():
    steps = []
    setting = setting_of(predict, progress=lambda *step: steps.append(step))
    baseline = {"name": "other", "flip_probabilities": {"gaussian_noise": 0.5, "rotate": 0.25, "translate": 0.0}}
    evaluator = dataclasses.replace(FEW, baseline=baseline)
    measurements = found_by(evaluator, setting)
    assert tuple(measurements) == evaluator.ids() and len(measurements) == 7
    done = [step[1:] for step in steps if step[0] == "perturbation sequences"]
    assert done[:6] == [(2, 33), (4, 33), (6, 33), (8, 33), (10, 33), (11, 33)] and done[-1] == (33, 33)
    flips = {name: by_hand(setting, name) for name in FEW.names}
    assert all(0 < values.mean() < 1 for values in flips.values())
    for name, values in flips.items():
        measured, rate = (measurements[f"stability.{name}.{kind}"] for kind in ("flip_probability", "flip_rate"))
        assert measured.value == pytest.approx(values.mean()) and measured.n == 11
        low, high = statistics.mean_interval(values)
        assert (measured.low, measured.high) == pytest.approx((max(0, low), min(1, high)))
        other = baseline["flip_probabilities"][name]
        if other:
            assert (rate.value, rate.low) == pytest.approx((values.mean() / other, max(0, low) / other))
        else:
            assert (rate.value, rate.low, rate.high) == (None, None, None)
        assert rate.settings["baseline"] == "other" and measured.settings["sequence"] == name
    mean = measurements["stability.mean.flip_probability"]
    assert mean.value == pytest.approx(np.mean(list(flips.values())))
    assert mean.low == pytest.approx(max(0, statistics.mean_interval(np.mean(list(flips.values()), axis=0))[0]))
    settings = measurements["stability.translate.flip_probability"].settings
    assert (settings["frames"], settings["reference"], settings["level"]) == (16, "previous frame", 1)
    assert settings["constants_of"] == "32 x 32 pixels" and settings["source"] == "generated"
    assert measurements["stability.gaussian_noise.flip_probability"].settings["reference"] == "first frame"


def test_memory_is_bounded_by_the_batch():
    shapes = []

    def watched(pixels):
        shapes.append(pixels.shape[0])
        return predict(pixels)

    found_by(FEW, setting_of(watched, batch_size=64))
    assert max(size for size in shapes if size) <= 64 and {62, 64} <= set(shapes)  # 2 films of 31 frames, 4 of 16


def test_a_constant_model_never_flips_and_an_alternating_one_always():
    """Frame i of the brightness sequence has its own grey level: its parity is an answer that alternates."""
    constant = found_by(FEW, setting_of(lambda pixels: tf.one_hot(tf.zeros([tf.shape(pixels)[0]], tf.int32), 3)))
    for measured in constant.values():
        # Of eleven images none flipped: that does not show that none ever does.
        assert measured.value == measured.low == 0 and measured.high == statistics.wilson_interval(0, 11)[1]

    def alternating(pixels):
        return tf.one_hot(tf.cast(tf.round(pixels[:, 0, 0, 0] * 255), tf.int32) % 2, 3)

    images = np.full([11, *SHAPE], 128 / 255, np.float32)
    ramp = Stability(names=("brightness",))
    levels = np.floor(np.round(128 + 255 * 0.015 * (np.arange(31) - 15), 6)).astype(int)
    (expected,) = stability.flip_probabilities(levels[None] % 2, noise=False)
    measurement = found_by(ramp, setting_of(alternating, images=images))["stability.brightness.flip_probability"]
    assert measurement.value == pytest.approx(expected) and 0.1 < expected < 0.9
    # A line of light on its way to the right: every frame has it elsewhere, by one pixel.
    images = np.zeros([11, 32, 32, 1], np.float32)
    images[:, :, 16] = 1.0
    stripes = from_function(
        lambda pixels: tf.one_hot(tf.argmax(pixels[:, 0, :, 0], axis=1) % 2, 2),
        image_shape=(32, 32, 1),
        differentiable=False,
    )
    setting = dataclasses.replace(setting_of(predict), predictor=stripes, images=images)
    measurement = found_by(Stability(names=("translate",)), setting)["stability.translate.flip_probability"]
    assert measurement.value == measurement.high == 1 and measurement.low == statistics.wilson_interval(11, 11)[0]


def test_nan_is_no_stability():
    def broken(pixels):
        return tf.where(tf.reduce_mean(pixels, axis=[1, 2, 3])[:, None] > 0.6, np.nan, tf.constant([[1.0, 0.0]]))

    images = np.full([11, *SHAPE], 0.55, np.float32)
    measurements = found_by(Stability(names=("brightness",)), setting_of(broken, images=images))
    # From frame 19 on, mean 0.6 + 0.06: every step from there, and the one into it.
    assert measurements["stability.brightness.flip_probability"].value == pytest.approx(12 / 30)


# ------------------------------------------------------------------------------------- baselines, and the rest


def test_against_alexnet_and_against_a_report(tmp_path):
    images = setting_of(predict).images[:6]
    setting = setting_of(predict, images=images, labels=np.zeros(6, int), batch_size=200)
    against = Stability(names=(*corruptions.SEQUENCES, "shear"), baseline="alexnet")
    measurements = found_by(against, setting)
    assert tuple(measurements) == against.ids()
    flips = {name: measurements[f"stability.{name}.flip_probability"].value for name in against.names}
    rates = [flips[name] / ALEXNET["flip_probabilities"][name] for name in corruptions.SEQUENCES]
    assert measurements["stability.mfr"].value == pytest.approx(np.mean(rates))
    assert measurements["stability.mfr"].low < measurements["stability.mfr"].value < measurements["stability.mfr"].high
    assert measurements["stability.mean.flip_probability"].value == pytest.approx(np.mean(list(flips.values())))
    # A model is itself the measure, but for what it never flips along.
    values = [{"id": identity, "value": measured.value or 0.5} for identity, measured in measurements.items()]
    path = tmp_path / "robustness_report.json"
    path.write_text(json.dumps({"model": {"name": "itself"}, "measurements": values}))
    against = Stability(names=against.names, baseline=str(path))
    path.unlink()  # the values are kept
    assert Stability.from_config(json.loads(json.dumps(against.get_config()))) == against
    itself = found_by(against, setting)["stability.mfr"]
    assert itself.value == pytest.approx(np.mean([flips[name] > 0 for name in corruptions.SEQUENCES]))
    assert itself.value > 0.5 and itself.settings["baseline"] == "itself"


def test_alexnet_s_values_are_the_sheet_s():
    """Mean over ImageNet-P's ten, from the percentages that the authors' sheet is quoted with."""
    quoted = [23.65, 30.06, 9.30, 5.94, 11.93, 4.89, 11.01, 13.10, 7.05, 23.53]
    percentages = [100 * ALEXNET["flip_probabilities"][name] for name in corruptions.SEQUENCES]
    np.testing.assert_allclose(percentages, quoted, atol=0.0051)
    assert set(ALEXNET["flip_probabilities"]) == {*corruptions.SEQUENCES, *corruptions.EXTRA_SEQUENCES}
