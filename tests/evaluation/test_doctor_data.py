"""What the doctor says of data and claim, against numbers worked out by hand."""

import numpy as np
import pytest

from oracles import linear_model
from tfrobust.attacks.gradient import PGD
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.data.spec import ArrayExamples
from tfrobust.evaluation.doctor import data as doctor_data
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.predictor import from_function

PREDICT, IMAGES, LABELS, _, _ = linear_model.make(40)


def _setting(images=IMAGES, labels=LABELS, **more):
    predictor = from_function(PREDICT, image_shape=linear_model.SHAPE)
    return Setting(predictor=predictor, images=images, labels=labels, batch_size=16, **more)


def _attack(epsilon, norm="linf"):
    return PGD(threat=ThreatModel(norm=norm, epsilon=epsilon), steps=3)


def test_separation_is_the_median_distance_to_the_next_image_of_another_class():
    for norm, order in (("linf", np.inf), ("l2", 2), ("l1", 1)):
        nearest = []
        for image, label in zip(IMAGES, LABELS, strict=True):
            gaps = [np.linalg.norm((image - other).ravel(), order) for other in IMAGES[label != LABELS]]
            nearest.append(min(gaps))
        assert doctor_data.separation(_setting(), norm) == pytest.approx(np.median(nearest), rel=1e-5)
    assert doctor_data.separation(_setting(labels=0 * LABELS), "linf") == np.inf


@pytest.mark.parametrize(
    ("epsilon", "norm", "verdict"),
    [
        (0.02, "linf", "pass"),
        (0.06, "linf", "warn"),  # the next image of the other class lies 0.1 away
        (0.15, "linf", "fail"),
        (8, "linf", "fail"),
        (8 / 255 / 255, "linf", "fail"),
        (0.05, "l2", "pass"),
        (5.0, "l2", "fail"),
        (0.001, "l2", "fail"),
        (0.1, "l1", "pass"),
        (8.0, "l1", "fail"),
    ],
)
def test_units(epsilon, norm, verdict):
    finding = doctor_data.check_units(_setting(), _attack(epsilon, norm))
    assert finding.verdict == verdict, finding.evidence
    assert f"{epsilon:.4g}" in finding.evidence and norm in finding.evidence


def test_the_size_that_is_wrong_may_be_any_attack_of_the_evaluation():
    setting = _setting(evaluation_attacks=(_attack(8.0, "l2"), _attack(0.02)))
    finding = doctor_data.check_units(setting, _attack(0.02))
    assert finding.verdict == "fail" and "8/255 = 0.03137" in finding.remedy
    # A curve goes far on purpose: it starts small.
    setting = _setting(evaluation_attacks=tuple(_attack(epsilon) for epsilon in (0.02, 0.1, 0.9)))
    assert doctor_data.check_units(setting, _attack(0.02)).verdict == "pass"
    # Its small end does not excuse the size that it is drawn around.
    setting = _setting(evaluation_attacks=tuple(_attack(epsilon) for epsilon in (0.0375, 0.15, 0.3)))
    finding = doctor_data.check_units(setting, _attack(0.15))
    assert finding.verdict == "fail" and "0.15/255" in finding.remedy


def test_images_without_contrast_were_divided_once_too_often():
    finding = doctor_data.check_units(_setting(images=IMAGES / 255), _attack(0.02))
    assert finding.verdict == "fail" and "divided by 255" in finding.remedy


@pytest.mark.parametrize(
    ("count", "share", "verdict"),
    [
        (1000, 0.5, "pass"),
        (360, 0.6, "pass"),
        (360, 0.5, "pass"),
        (150, 0.5, "warn"),
        (20, 0.5, "fail"),
        (90, 0.5, "fail"),
    ],
)
def test_how_many_images_are_enough(count, share, verdict):
    finding = _size(count, share)
    assert finding.verdict == verdict
    if verdict != "pass":
        half = 1.96 * np.sqrt(share * (1 - share) / (count + 1.96**2))  # Wilson's at one half
        assert f"within {half:.1%}" in finding.evidence and "385 images" in finding.remedy


def _size(count, share):
    setting = _setting(images=IMAGES[np.arange(count) % 40], labels=LABELS[np.arange(count) % 40])
    alone = doctor_data.check_test_size(setting, None)
    assert "doctor" not in alone.evidence and f"clean accuracy of {setting.clean_correct.mean():.1%}" in alone.evidence
    return doctor_data.check_test_size(setting, np.arange(10) < 10 * share)


@pytest.mark.parametrize(
    ("moved", "taken", "verdict"), [(0.0, 0, "pass"), (0.0, 1, "warn"), (0.5 / 255, 20, "fail"), (2 / 255, 20, "fail")]
)
def test_duplicates(moved, taken, verdict):
    generator = np.random.default_rng(5)
    images = np.round(generator.uniform(0, 0.9, (40, 3, 4, 1)) * 255).astype(np.float32) / 255
    train = generator.uniform(0, 1, (5000, 3, 4, 1)).astype(np.float32)
    train[7 : 7 + taken] = images[:taken] + np.float32(moved * 0.99)
    finding = doctor_data.check_duplicates(_setting(images=images, train_images=train, train_labels=train[:, 0, 0, 0]))
    exact = taken if moved < 1 / 255 else 0
    assert finding.verdict == verdict, finding.evidence
    assert f"Of 40 test images {exact} (" in finding.evidence and f"and {taken - exact} (" in finding.evidence


def _seen_first(images: np.ndarray) -> ArrayExamples:
    return ArrayExamples(images, np.zeros(len(images), int))


@pytest.mark.parametrize(("taken", "verdict"), [(0, "warn"), (1, "warn"), (20, "fail")])
def test_duplicates_of_a_first_stage_count_too(taken, verdict, monkeypatch):
    monkeypatch.setattr(doctor_data, "_BLOCK_BYTES", 7 * 12 * 4)  # taken in many blocks, of which the last is not full
    generator = np.random.default_rng(5)
    images = generator.integers(0, 230, (40, 3, 4, 1), np.uint8)
    first = generator.integers(0, 256, (300, 3, 4, 1), np.uint8)
    first[290 - taken : 290], first[290:291] = images[:taken], images[39] + 1
    train = generator.uniform(0, 1, (500, 3, 4, 1)).astype(np.float32)
    given = {"images": images / np.float32(255), "pretraining_examples": _seen_first(first)}
    finding = doctor_data.check_duplicates(_setting(**given, train_images=train))
    said = (
        f"Of 40 test images {taken} ({taken / 40:.1%}) are among 500 training images and 300 images of the first stage"
    )
    assert finding.evidence.startswith(f"{said}, and 1 (")
    assert finding.verdict == verdict
    alone = doctor_data.check_duplicates(_setting(**given))
    assert alone.evidence.startswith(said.replace("500 training images and ", "")) and "split_seed" in alone.remedy


def test_of_a_large_first_stage_some_images_are_looked_at(monkeypatch):
    monkeypatch.setattr(doctor_data, "_FETCHED_BYTES", 10 * 12 * 4)
    examples = _seen_first(np.zeros((300, 3, 4, 1), np.uint8))
    assert (
        "among 10 images of the first" in doctor_data.check_duplicates(_setting(pretraining_examples=examples)).evidence
    )
    other = _seen_first(np.zeros((300, 4, 4, 1), np.uint8))
    assert doctor_data.check_duplicates(_setting(pretraining_examples=other)) is None


def test_almost_empty_images_are_no_duplicates():
    images = np.full((40, 3, 4, 1), 0.5, np.float32)
    images[:, 0, 0, 0] += np.linspace(0, 0.02, 40, dtype=np.float32)
    train = images[:20] + np.float32(0.006)
    assert doctor_data.check_duplicates(_setting(images=images, train_images=train)).verdict == "pass"


def test_averaging_never_parts_images():
    generator = np.random.default_rng(0)
    first, second = generator.uniform(0, 1, (2, 50, 24, 40, 3)).astype(np.float32)
    full = np.sqrt(np.mean((first - second) ** 2, axis=(1, 2, 3)))
    small = np.sqrt(np.mean((doctor_data._small(first) - doctor_data._small(second)) ** 2, axis=1))
    assert doctor_data._small(first).shape == (50, 8 * 8 * 3) and np.all(small <= full)


def test_without_training_images_nothing_is_said_of_duplicates():
    assert doctor_data.check_duplicates(_setting()) is None
    assert doctor_data.check_duplicates(_setting(train_images=np.zeros((3, 8, 8, 1)))) is None


@pytest.mark.parametrize(("flipped", "verdict"), [(0, "pass"), (17, "warn"), (30, "fail")])
def test_clean_accuracy(flipped, verdict):
    labels = np.concatenate([1 - LABELS[:flipped], LABELS[flipped:]])
    finding = doctor_data.check_accuracy(_setting(labels=labels))
    assert finding.verdict == verdict, finding.evidence


@pytest.mark.parametrize(
    ("split", "verdict"), [("test", "fail"), ("validation", "pass"), ("last", "pass"), ("", "warn")]
)
def test_selection(split, verdict):
    assert doctor_data.check_selection(_setting(selected_on=split)).verdict == verdict
