"""Corruption accuracy on published sets: the numbers by hand, and sets that are not what they are called."""

import dataclasses
import json
import os

import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import published
from tfrobust import corruptions
from tfrobust.data.published.cifar import CifarC, CifarP
from tfrobust.evaluation.engine import base, statistics
from tfrobust.evaluation.engine import published as evaluation_published
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators.accuracy import CleanAccuracy
from tfrobust.evaluation.evaluators.corruption import CorruptionAccuracy, mean_corruption_errors
from tfrobust.evaluation.evaluators.stability import Stability, flip_probabilities
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.ops import randomness

COUNT, SHAPE = 30, (8, 8, 3)
NAMES = ("gaussian_noise", "fog", "speckle_noise")
IMAGES = np.random.default_rng(1).integers(0, 256, (COUNT, *SHAPE), np.uint8)
KERNEL = tf.constant(np.random.default_rng(2).normal(size=(192, 3)), tf.float32)
BLOCKS = published.corrupted(IMAGES, NAMES)


def predict(pixels):
    return tf.reshape(pixels - 0.5, [-1, 192]) @ KERNEL


def guesses(images):
    return predict(tf.constant(images, tf.float32) / 255).numpy().argmax(-1)


LABELS = guesses(IMAGES)
LABELS[:4] = (LABELS[:4] + 1) % 3  # not all right on clean images


@pytest.fixture
def folder(tmp_path):
    return published.cifar_c(tmp_path / "c", BLOCKS, LABELS)


def make(images=IMAGES, labels=LABELS, **changes):
    predictor = dataclasses.replace(from_function(predict, image_shape=SHAPE), weights_sha256="w")
    setting = {"images": images / np.float32(255), "labels": labels, "batch_size": 8, "seed": 5, **changes}
    return base.Setting(predictor=predictor, **setting)


def judge(folder, **changes):
    source = CifarC(folder=str(folder), as_published=False)
    return CorruptionAccuracy(**{"names": NAMES, "severities": (2, 5), "source": source, **changes})


def by_hand(name, severity):
    rows = slice((severity - 1) * COUNT, severity * COUNT)
    return guesses(BLOCKS[name][rows]) == LABELS


def values(outcome):
    return {measured.id: measured for measured in outcome.measurements}


def test_the_numbers_are_those_of_the_files(folder):
    setting, judged = make(), judge(folder)
    measurements = values(judged.run(setting))
    assert tuple(measurements) == judged.ids()
    for name in NAMES:
        for severity in (2, 5):
            correct, clean = by_hand(name, severity), setting.clean_correct
            accuracy, drop = (measurements[f"corruption.{name}.{severity}.{kind}"] for kind in ("accuracy", "drop"))
            assert accuracy.value == correct.mean() and accuracy.n == COUNT and 0.3 < accuracy.value < 1
            assert (drop.value, drop.low, drop.high) == statistics.relative_drop(clean, correct)
            assert drop.settings["interval"].startswith("95 % over images, delta method, or Wilson if no image")
            assert accuracy.settings == {
                "source": "published: CIFAR-10-C, an excerpt or a variant",
                "md5": "not compared",
                "compared_with_clean_images": "image by image",
                "corruption": name,
                "severity": severity,
                "interval": "95 % over images, Wilson",
            }
    mean = np.mean([by_hand(name, severity) for name in NAMES[:2] for severity in (2, 5)])
    assert measurements["corruption.mean.accuracy"].value == pytest.approx(mean)
    assert measurements["corruption.mean.accuracy"].settings["source"].startswith("published: CIFAR-10-C")


def test_our_own_corruptions_written_to_files_give_the_same_numbers(tmp_path):
    setting, names = make(), ("fog", "brightness")
    keys = randomness.example_keys(randomness.make_key(5, "evaluation", "corruption"), tf.range(COUNT))
    images, blocks = tf.constant(setting.images), {}
    for name in names:
        changed = [corruptions.corrupt(images, name, severity, keys).numpy() for severity in range(1, 6)]
        blocks[name] = np.round(np.concatenate(changed) * 255).astype(np.uint8)
    folder = published.cifar_c(tmp_path / "c", blocks, LABELS)
    generated = CorruptionAccuracy(names=names, severities=(1, 4)).run(setting).measurements
    read = judge(folder, names=names, severities=(1, 4)).run(setting).measurements
    assert len(read) == len(generated) > 8
    of_file, of_own = ([(m.id, m.value, m.low, m.high, m.n) for m in rows] for rows in (read, generated))
    assert of_file == of_own


def test_batches_and_a_limit(folder):
    all_at_once = values(judge(folder).run(make()))
    for size in (COUNT, 7, 1):
        measurements = values(judge(folder).run(make(batch_size=size)))
        assert [m.value for m in measurements.values()] == [m.value for m in all_at_once.values()]
    setting = make()
    some = values(judge(folder, limit=11).run(setting))
    positions = setting.subset(11)
    correct = by_hand("fog", 5)[positions]
    assert some["corruption.fog.5.accuracy"].value == correct.mean() and some["corruption.fog.5.accuracy"].n == 11
    expected = statistics.relative_drop(setting.clean_correct[positions], correct)
    assert some["corruption.fog.5.drop"].value == expected[0]


@pytest.mark.parametrize("clean", [np.arange(COUNT)[::-1], np.arange(20)])
def test_other_clean_images_are_compared_as_a_whole(folder, clean):
    setting = make(IMAGES[clean], LABELS[clean])
    measurements = values(judge(folder).run(setting))
    accuracy, drop = measurements["corruption.fog.5.accuracy"], measurements["corruption.fog.5.drop"]
    correct = by_hand("fog", 5)
    assert accuracy.value == correct.mean() and accuracy.n == COUNT
    assert (drop.value, drop.low, drop.high) == statistics.independent_drop(setting.clean_correct, correct)
    assert drop.settings["interval"] == "95 % over images, from two Wilson intervals"
    assert accuracy.settings["compared_with_clean_images"].startswith("as a whole")
    some = values(judge(folder, limit=11).run(setting))["corruption.fog.5.accuracy"]
    assert some.n == 11 and some.value == correct[setting.subset(11, COUNT)].mean()


def test_mean_corruption_error(tmp_path):
    blocks = published.corrupted(IMAGES, corruptions.NAMES)
    folder = published.cifar_c(tmp_path / "c", blocks, LABELS)
    baseline = {"name": "b", "clean": 0.1, "errors": dict.fromkeys(corruptions.NAMES, 0.4)}
    judged = judge(folder, names=corruptions.NAMES, severities=(1, 2, 3, 4, 5), baseline=baseline)
    setting = make()
    measurements = values(judged.run(setting))
    errors = {name: 1 - (guesses(blocks[name]) == np.tile(LABELS, 5)).mean() for name in corruptions.NAMES}
    expected = mean_corruption_errors(errors, 1 - setting.clean_correct.mean(), baseline)
    for name, value in zip(("mce", "relative_mce"), expected, strict=True):
        measured = measurements[f"corruption.{name}"]
        assert measured.value == pytest.approx(value) and measured.n == COUNT
        assert measured.settings["baseline"] == "b" and measured.settings["source"].startswith("published")
    assert judged.from_config(json.loads(json.dumps(judged.get_config()))) == judged


# ---------------------------------------------------------------------------------- not what it is called


def spoilt(tmp_path, block):
    blocks = {**BLOCKS, "fog": block}
    return published.cifar_c(tmp_path / "c", blocks, LABELS)


def nearly(images):
    """One value in five one grey level off."""
    moved = images.reshape(len(images), -1).copy()
    moved[:, ::5] ^= 1
    return moved.reshape(images.shape)


def replaced(count):
    """The first `count` images of each severity are the clean ones."""
    block = BLOCKS["fog"].reshape(5, COUNT, *SHAPE).copy()
    block[:, :count] = IMAGES[:count]
    return block.reshape(-1, *SHAPE)


CLEAN = np.tile(IMAGES, (5, 1, 1, 1))


@pytest.mark.parametrize("block, order, limit, share", stored.rows(globals(), "the_clean_set_is_refused_in_any_order"))
def test_the_clean_set_is_refused_in_any_order_and_by_a_part_of_it(tmp_path, block, order, limit, share):
    with pytest.raises(ValueError, match=rf"looks like the clean set: {share} images of fog at severity 2 \(publ"):
        judge(spoilt(tmp_path, block), limit=limit).run(make(IMAGES[::order], LABELS[::order]))


@pytest.mark.parametrize("order", [1, -1])
def test_a_few_clean_images_are_a_warning(tmp_path, order):
    outcome = judge(spoilt(tmp_path, replaced(3))).run(make(IMAGES[::order], LABELS[::order]))
    evidence = [finding.evidence for finding in outcome.findings]
    assert len(evidence) == 2 and evidence[0].startswith("3 of 30 images of fog at severity 2")
    assert {finding.verdict for finding in outcome.findings} == {"warn"}
    sound = published.cifar_c(tmp_path / "sound", BLOCKS, LABELS)
    assert judge(sound).run(make(IMAGES[::order], LABELS[::order])).findings == []


def test_the_mildest_corruptions_are_not_the_clean_set():
    """Each does more to a smooth picture than twice what counts as the same."""
    across, down = np.meshgrid(np.linspace(0, 9, 32), np.linspace(0, 9, 32))
    picture = np.stack([np.sin(across) * np.cos(down), np.sin(down), np.cos(across + down)], -1)
    images = tf.constant((np.round(127 + 100 * picture) / 255)[None], tf.float32)
    for name in (*corruptions.NAMES, *corruptions.EXTRA_NAMES):
        changed = corruptions.corrupt(images, name, 1, tf.constant([[3, 4]]))
        assert float(tf.reduce_mean(tf.abs(changed - images))) > 2 * evaluation_published._ROUNDING, name


def test_labels_of_another_test_split_and_pictures_of_frost_are_refused(folder):
    changed = LABELS.copy()
    changed[7] = (changed[7] + 1) % 3
    with pytest.raises(
        ValueError, match=r"do not repeat those of the clean test images: class \d occurs \d+ times"
    ) as e:
        judge(folder).run(make(labels=changed))
    assert len(str(e.value)) <= 300
    with pytest.raises(ValueError, match="frost_pictures is without effect"):
        judge(folder, frost_pictures="somewhere")


# ---------------------------------------------------------------------------------------------- sequences

FILMS = np.clip(IMAGES[:, None] + np.random.default_rng(6).integers(-90, 90, (COUNT, 6, *SHAPE)), 0, 255)
FILMS = FILMS.astype(np.uint8)


def stable(folder, **changes):
    np.save(folder / "rotate.npy", FILMS[:, :4])
    np.save(folder / "gaussian_noise.npy", FILMS)
    source = CifarP(folder=str(folder), as_published=False)
    return Stability(**{"names": ("rotate", "gaussian_noise"), "source": source, **changes})


@pytest.mark.parametrize(("size", "limit"), [(8, None), (70, None), (128, 13)])
def test_published_sequences(tmp_path, size, limit):
    setting, judged = make(IMAGES[:20], LABELS[:20], batch_size=size), stable(tmp_path, limit=limit)
    measurements = values(judged.run(setting))
    assert tuple(measurements) == judged.ids()
    positions = setting.subset(limit, COUNT)
    answers = guesses(FILMS.reshape(-1, *SHAPE)).reshape(COUNT, 6)[positions]
    expected = {
        "rotate": flip_probabilities(answers[:, :4], noise=False).mean(),
        "gaussian_noise": flip_probabilities(answers, noise=True).mean(),
    }
    for name, value in expected.items():
        measured = measurements[f"stability.{name}.flip_probability"]
        assert 0.1 < value < 1 and measured.value == pytest.approx(value) and measured.n == len(positions)
        assert measured.settings["source"] == "published: CIFAR-P, an excerpt or a variant"
        assert "seed" not in measured.settings
    assert measurements["stability.mean.flip_probability"].value == pytest.approx(np.mean(list(expected.values())))
    assert judged.from_config(json.loads(json.dumps(judged.get_config()))) == judged


def test_sequences_that_stand_still_are_refused(tmp_path):
    judged = stable(tmp_path)
    np.save(tmp_path / "rotate.npy", np.repeat(IMAGES[:, None], 4, axis=1))
    with pytest.raises(ValueError, match="looks like the clean set: in 30 of 30 sequences of rotate .* all frames are"):
        judged.run(make())
    assert judged.files_read() and Stability().files_read() == ""
    (tmp_path / "rotate.npy").unlink()
    with pytest.raises(FileNotFoundError, match="lacks rotate.npy"):
        run_evaluation([Late(), judged], make())


# -------------------------------------------------------------------------------------------------- runs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Late(base.Evaluator):
    """Must not run."""

    def run(self, setting):
        raise AssertionError("hours of work")


def test_missing_files_are_said_before_anything_runs(folder):
    (folder / "fog.npy").unlink()
    with pytest.raises(FileNotFoundError, match="lacks fog.npy"):
        run_evaluation([Late(), judge(folder)], make())


def test_kept_results_follow_the_files(folder, tmp_path, monkeypatch):
    judged, setting, cache = judge(folder), make(), tmp_path / "kept"
    first = run_evaluation([CleanAccuracy(), judged], setting, cache_directory=cache)
    ran = []
    monkeypatch.setattr(CorruptionAccuracy, "run", lambda self, setting: ran.append(1) or base.Outcome())
    assert run_evaluation([CleanAccuracy(), judged], make(), cache_directory=cache) == first and not ran
    os.utime(folder / "fog.npy", ns=(1, 1))
    run_evaluation([CleanAccuracy(), judged], make(), cache_directory=cache)
    assert ran
