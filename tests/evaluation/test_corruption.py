"""The evaluator against its numbers put together by hand; baselines; what it refuses."""

import dataclasses
import json
import types

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tfrobust import corruptions
from tfrobust.evaluation.engine import base, baseline, statistics
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators import corruption
from tfrobust.evaluation.evaluators.corruption import ALEXNET, CorruptionAccuracy
from tfrobust.ops import randomness
from tfrobust.report import reading

SHAPE = (8, 8, 3)
KERNEL = tf.constant(np.random.default_rng(2).normal(size=(192, 3)), tf.float32)
FEW = CorruptionAccuracy(names=("gaussian_noise", "brightness", "fog", "speckle_noise"), severities=(2, 5))


def predict(pixels):
    return tf.reshape(pixels - 0.5, [-1, 192]) @ KERNEL


@pytest.fixture(scope="module")
def setting():
    images = np.random.default_rng(1).random((30, *SHAPE)).astype(np.float32)
    labels = predict(images).numpy().argmax(-1)
    labels[:4] = (labels[:4] + 1) % 3  # not all right on clean images
    predictor = from_function(predict, image_shape=SHAPE)
    return base.Setting(predictor=predictor, images=images, labels=labels, batch_size=8, seed=5)


def by_hand(setting, name, severity):
    """All images at once, where the evaluator goes batch by batch."""
    keys = randomness.example_keys(randomness.make_key(5, "evaluation", "corruption"), tf.range(30))
    changed = corruptions.corrupt(tf.constant(setting.images), name, severity, keys)
    return predict(changed).numpy().argmax(-1) == setting.labels


def test_the_numbers_are_those_of_the_images_corrupted_by_hand(setting):
    steps = []
    outcome = FEW.run(dataclasses.replace(setting, progress=lambda *step: steps.append(step)))
    assert [step[1:] for step in steps if step[0] == "corruptions"] == [(n, 8) for n in range(1, 9)]
    measurements = {measured.id: measured for measured in outcome.measurements}
    assert list(measurements) == list(FEW.ids()) and len(outcome.measurements) == len(measurements) == 18
    correct = {(name, severity): by_hand(setting, name, severity) for name in FEW.names for severity in (2, 5)}
    assert len({tuple(row) for row in correct.values()}) > 4  # they do differ
    for (name, severity), hits in correct.items():
        measured, drop = (measurements[f"corruption.{name}.{severity}.{kind}"] for kind in ("accuracy", "drop"))
        assert measured.value == pytest.approx(hits.mean()) and measured.n == 30
        assert (measured.low, measured.high) == pytest.approx(statistics.wilson_interval(hits.sum(), 30))
        assert drop.value == pytest.approx(1 - hits.mean() / setting.clean_correct.mean())
        assert drop.settings["interval"].startswith("95 % over images, delta method, or Wilson if no image")
        settings = measured.settings
        assert (settings["source"], settings["corruption"], settings["severity"]) == ("generated", name, severity)
        assert settings["constants_of"] == "32 x 32 pixels" and settings["seed"] == 5
    # The validation corruption is in no mean; a group of which only some were measured has none.
    for identity, names in (("mean", FEW.names[:3]), ("mean_without_noise", FEW.names[1:3])):
        means = np.mean([correct[name, severity] for name in names for severity in (2, 5)], axis=0)
        measured = measurements[f"corruption.{identity}.accuracy"]
        assert measured.value == pytest.approx(means.mean())
        assert measured.low == pytest.approx(max(0, statistics.mean_interval(means)[0]))
    assert not any("mean_noise" in identity or "mce" in identity for identity in measurements)


def test_groups(setting):
    names = corruptions.GROUPS["noise"]
    values = {m.id: m.value for m in CorruptionAccuracy(names=names, severities=(5,)).run(setting).measurements}
    mean = np.mean([values[f"corruption.{name}.5.accuracy"] for name in names])
    assert values["corruption.mean_noise.accuracy"] == values["corruption.mean.accuracy"] == pytest.approx(mean)
    assert "corruption.mean_without_noise.accuracy" not in values and "corruption.mean_blur.accuracy" not in values


def test_a_mean_over_few_corruptions_says_which():
    images = types.SimpleNamespace(settings={}, identity={})

    def settings(names):
        evaluator = CorruptionAccuracy(names=names, severities=(5,))
        correct = {(name, 5): np.array([True, False]) for name in names}
        measurements = [evaluator._mean(images, identity, group, correct) for identity, group in evaluator._groups()]
        return {measured.id: measured.settings for measured in measurements}

    noise, rest = corruptions.GROUPS["noise"], [n for n in corruptions.NAMES if n not in corruptions.GROUPS["noise"]]
    few = settings((*reversed(noise), "fog", "speckle_noise"))
    assert few["corruption.mean.accuracy"]["names"] == sorted((*noise, "fog"))
    assert few["corruption.mean_without_noise.accuracy"]["names"] == ["fog"]
    # Where all are in, count and id say which: so it was in older reports.
    assert "names" not in few["corruption.mean_noise.accuracy"]
    assert "names" not in settings(tuple(rest))["corruption.mean_without_noise.accuracy"]
    assert not any("names" in entry for entry in settings(corruptions.NAMES).values())


# ----------------------------------------------------------------------------------------------------- mCE


def test_errors_relative_to_a_baseline_by_hand():
    errors = {name: 0.1 + 0.02 * position for position, name in enumerate(corruptions.NAMES)}
    baseline = {
        "clean": 0.3,
        "errors": {name: 0.5 + 0.01 * position for position, name in enumerate(corruptions.NAMES)},
    }
    mce, relative = corruption.mean_corruption_errors(errors, 0.05, baseline)
    assert mce == pytest.approx(sum((0.1 + 0.02 * p) / (0.5 + 0.01 * p) for p in range(15)) / 15)
    assert relative == pytest.approx(sum((0.05 + 0.02 * p) / (0.2 + 0.01 * p) for p in range(15)) / 15)
    # A baseline that a corruption does not harm, or helps, measures no increase.
    for clean in (0.5, 0.5 - 1e-16, 0.505):
        assert corruption.mean_corruption_errors(errors, 0.05, {**baseline, "clean": clean})[1] is None
    ratios = corruption.mean_corruption_errors(ALEXNET["errors"], ALEXNET["clean"], ALEXNET)
    assert ratios == pytest.approx((1, 1))


def test_two_baselines_of_one_name_are_told_apart():
    images = types.SimpleNamespace(settings={}, clean=np.ones(2))
    correct = {(name, s): np.array([True, False]) for name in corruptions.NAMES for s in corruptions.SEVERITIES}

    def digest_of(**changes):
        chosen_baseline = {**ALEXNET, **changes} if changes else "alexnet"
        mce, relative = CorruptionAccuracy(baseline=chosen_baseline)._errors(images, correct)
        assert mce.settings == relative.settings
        return mce.settings.get("baseline_sha256")

    first = digest_of(name="supervised")
    assert first == digest_of(name="supervised", errors={**ALEXNET["errors"], "speckle_noise": 0.1})  # not divided by
    assert len({first, digest_of(clean=0.4), digest_of(errors={**ALEXNET["errors"], "fog": 0.5})}) == 3
    # AlexNet's numbers are known by its name, as in older reports, unless somebody else has taken it.
    assert digest_of() is None and digest_of(clean=ALEXNET["clean"]) is None and digest_of(clean=0.4) is not None


def test_alexnet_s_mean_error_is_the_published_one():
    """Its mean over the 15, from the same table; and the per-severity errors of one, from the benchmark's authors."""
    assert np.mean(list(ALEXNET["errors"].values())) == pytest.approx(0.7890, abs=5e-4)
    gaussian = np.mean([0.69528, 0.82542, 0.93554, 0.98138, 0.99452])
    assert ALEXNET["errors"]["gaussian_noise"] == pytest.approx(gaussian, abs=1e-6)


def test_a_report_as_baseline(setting, tmp_path):
    plain, setting = CorruptionAccuracy(), dataclasses.replace(setting, batch_size=30)
    outcome = plain.run(setting)
    values = [dataclasses.asdict(m) for m in outcome.measurements]
    values.append({"id": "accuracy.clean", "value": float(setting.clean_correct.mean())})
    path = tmp_path / "robustness_report.json"
    path.write_text(json.dumps({"model": {"name": "other"}, "measurements": values}))
    against = CorruptionAccuracy(baseline=str(path))
    path.unlink()  # the values are kept
    assert CorruptionAccuracy.from_config(json.loads(json.dumps(against.get_config()))) == against
    assert against.ids()[: len(plain.ids())] == plain.ids()
    against_own = against.run(setting)
    assert against_own.findings == []
    measurements = {m.id: m for m in against_own.measurements}
    mce = measurements["corruption.mce"]
    assert mce.value == pytest.approx(1) and mce.settings["baseline"] == "other"
    assert measurements["corruption.relative_mce"].value == pytest.approx(1)
    groups = {m.id: m.value for m in outcome.measurements if ".mean" in m.id}
    weighted = sum(groups[f"corruption.mean_{g}.accuracy"] * len(n) for g, n in corruptions.GROUPS.items()) / 15
    assert groups["corruption.mean.accuracy"] == pytest.approx(weighted)


def test_a_report_on_some_images_divides_by_their_clean_error(setting, tmp_path):
    """The clean error of all images is another one: the relative mCE of a model against itself was not 1."""
    path, setting = tmp_path / "robustness_report.json", dataclasses.replace(setting, batch_size=30)
    values = [dataclasses.asdict(m) for m in CorruptionAccuracy(limit=12).run(setting).measurements]
    values.append({"id": "accuracy.clean", "value": float(setting.clean_correct.mean())})
    path.write_text(json.dumps({"model": {"name": "itself"}, "measurements": values}))
    assert setting.clean_correct[setting.subset(12)].mean() != setting.clean_correct.mean()
    measurements = CorruptionAccuracy(limit=12, baseline=str(path)).run(setting).measurements
    (relative,) = (measured.value for measured in measurements if measured.id == "corruption.relative_mce")
    assert relative == pytest.approx(1)


def test_a_baseline_of_other_images_is_warned_of(setting, tmp_path):
    """The numbers alone do not show another split, fewer images or another origin."""

    def measured(setting, **changes):
        (mean,) = (m for m in FEW.run(setting).measurements if m.id == "corruption.mean.accuracy")
        return dataclasses.replace(mean, **changes)

    setting = dataclasses.replace(setting, batch_size=30)
    measured_mean = measured(setting)
    path = tmp_path / "robustness_report.json"

    def findings_of(**changes):
        mean = dataclasses.asdict(dataclasses.replace(measured_mean, **changes))
        path.write_text(json.dumps({"model": {"name": "other"}, "measurements": [mean]}))
        _, _, images = baseline.values_of(str(path), measured_mean.id)
        return baseline.findings({"name": "other", "images": images}, "mCE", measured_mean.id, [measured_mean])

    assert findings_of() == [] and baseline.findings(ALEXNET, "mCE", measured_mean.id, [measured_mean]) == []
    other = measured(dataclasses.replace(setting, images=setting.images[::-1], labels=setting.labels[::-1]))
    fewer = dataclasses.replace(FEW, limit=20).run(setting).measurements[-2]
    settings = {**measured_mean.settings, "source": "published: CIFAR-10-C"}
    for changes, words in (
        ({"settings": other.settings}, ["images"]),
        ({"settings": fewer.settings, "n": 20}, ["images"]),
        ({"settings": settings}, ["source"]),
        ({"settings": {}}, ["images", "source", "constants of"]),
    ):
        (finding,) = findings_of(**changes)
        assert finding.verdict == "warn" and finding.evidence.endswith(f"differs in or lacks: {', '.join(words)}.")
    path.write_text(json.dumps({"model": {"name": "other"}, "measurements": []}))
    assert baseline.values_of(str(path), measured_mean.id) == ("other", {}, {})


# ------------------------------------------------------------------------------------------------ the rest


def test_nan_is_no_right_answer(setting):
    """The first of several NaN is the largest answer to NumPy, which would make class 0 right."""

    def broken(pixels):
        return tf.where(tf.reduce_mean(pixels, axis=[1, 2, 3])[:, None] > 0.57, np.nan, tf.constant([[1.0, 0.0, 0.0]]))

    predictor = from_function(broken, image_shape=SHAPE, differentiable=False)
    labels = np.zeros(30, int)
    outcome = CorruptionAccuracy(names=("brightness",), severities=(5,)).run(
        dataclasses.replace(setting, predictor=predictor, labels=labels)
    )
    # Means of 0.5 become 0.63 or so.
    assert outcome.measurements[0].value < 0.2 and outcome.measurements[1].value > 0.8


def test_pictures_of_frost(setting, tmp_path):
    for number in range(2):
        PIL.Image.fromarray(np.full([200, 240, 3], 250 - 9 * number, np.uint8)).save(tmp_path / f"{number}.png")
    measurements = [
        CorruptionAccuracy(names=("frost",), severities=(5,), frost_pictures=folder).run(setting).measurements[0]
        for folder in ("", str(tmp_path))
    ]
    assert [measurement.settings["frost"] for measurement in measurements] == ["textures of tfrobust", "pictures"]
    assert [reading.frost_word(measurement) for measurement in measurements] == ["generated", ""]
    # A kept result does not outlive its pictures.
    evaluator = CorruptionAccuracy(names=("frost",), severities=(5,), frost_pictures=str(tmp_path))
    before = evaluator.files_read()
    assert before == evaluator.files_read() != ""
    PIL.Image.fromarray(np.full([100, 240, 3], 9, np.uint8)).save(tmp_path / "1.png")
    assert evaluator.files_read() != before
    assert dataclasses.replace(evaluator, names=("fog",)).files_read() == FEW.files_read() == ""
    CorruptionAccuracy(names=("fog",), frost_pictures=str(tmp_path / "none")).check(setting)
