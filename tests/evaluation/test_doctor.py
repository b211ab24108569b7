"""The doctor as a whole, and its checks of the model, of the attack, of the data and of the claims."""

import dataclasses
import functools
import types

import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import linear_model
from tfrobust.attacks.shared import engine, objectives
from tfrobust.data.spec import ArrayExamples
from tfrobust.evaluation.doctor import claims, duplicates, radius, short_attack, strength
from tfrobust.evaluation.doctor import model as doctor_model
from tfrobust.evaluation.doctor.evaluator import Doctor
from tfrobust.evaluation.engine import searching
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.chunks import SearchResult
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.keras.attacks import FGSM, PGD, Square, ThreatModel  # noqa: F401
from tfrobust.structs import AttackResult

ATTACK = PGD(threat=ThreatModel(epsilon=0.02), steps=10)
PREDICT, IMAGES, LABELS, _, _ = linear_model.make(400)


def _setting(predict=PREDICT, differentiable=True, **more):
    predictor = from_function(predict, image_shape=linear_model.SHAPE, differentiable=differentiable)
    return Setting(predictor=predictor, images=IMAGES, labels=LABELS, batch_size=16, **more)


def test_a_healthy_model_passes_and_each_attack_runs_once(monkeypatch):
    calls, real = [], engine.Engine

    class Counted(real):
        def run(self, *arguments, **keywords):
            calls.append(self.attack.threat.epsilon)
            return real.run(self, *arguments, **keywords)

    monkeypatch.setattr(searching, "Engine", Counted)
    monkeypatch.setattr(searching.runner, "Engine", Counted)
    train = np.random.default_rng(9).uniform(0.4, 0.6, (100, *linear_model.SHAPE))
    findings = Doctor(attack=ATTACK).run(_setting(selected_on="validation", train_images=train)).findings
    assert all(finding.evidence for finding in findings) and len(findings) == 15
    assert {finding.check: finding.verdict for finding in findings} == dict.fromkeys(
        "logits deterministic batch_independent clean_accuracy pixel_range gradients ascent monotone repredict rounding"
        " attack_strength epsilon_units test_size duplicates selection".split(),
        "pass",
    )
    assert sorted(calls) == [0.01, 0.02, 0.04]


def test_the_gradient_is_the_one_that_attacks_climb_and_asked_for_once():
    calls = []
    setting = _setting(lambda x: calls.append(1) or PREDICT(x))
    order = setting.order("probes")
    positions = np.sort(order[setting.clean_correct[order]][:16])
    calls.clear()
    gradients = doctor_model.gradients(setting)
    assert gradients is doctor_model.gradients(setting) and len(calls) == 2
    images = tf.constant(IMAGES[positions])
    with tf.GradientTape() as tape:
        tape.watch(images)
        loss = objectives.cross_entropy(PREDICT, tf.constant(LABELS[positions]))(images)
    np.testing.assert_allclose(gradients.rows, tf.reshape(tape.gradient(loss, images), [16, 12]), rtol=1e-6)


@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 0.02), ("l2", 0.05), ("l1", 0.2)])
def test_ascent_of_a_linear_model_and_of_its_opposite(norm, epsilon):
    threat = ThreatModel(norm=norm, epsilon=epsilon)
    finding = doctor_model.check_ascent(_setting(), threat)
    assert finding.verdict == "pass" and "100.0% of 16" in finding.evidence

    @tf.custom_gradient
    def turned(x):
        return tf.identity(x), lambda upstream: -upstream

    finding = doctor_model.check_ascent(_setting(lambda x: PREDICT(turned(x))), threat)
    assert finding.verdict == "fail" and "0.0% of 16" in finding.evidence


def test_gradients_are_examined_in_all_classes_of_a_sorted_split():
    by_class = np.argsort(LABELS, kind="stable")

    def masked(x):  # only the class of the first images has a gradient
        logits = PREDICT(x)
        return tf.where((tf.argmax(logits, 1) == LABELS[by_class[0]])[:, None], logits, tf.stop_gradient(logits))

    predictor = from_function(masked, image_shape=linear_model.SHAPE)
    setting = Setting(predictor=predictor, images=IMAGES[by_class], labels=LABELS[by_class], batch_size=64)
    assert np.mean(LABELS == LABELS[by_class[0]]) < 0.7
    assert doctor_model.check_gradients(setting).verdict == "fail"


def test_no_ascent_without_a_gradient():
    setting = _setting(lambda x: PREDICT(tf.sigmoid(1e3 * x)))
    assert doctor_model.check_ascent(setting, ATTACK.threat) is None


# ------------------------------------------------------------------------------------- checks of the attack

SHORT = PGD(threat=ThreatModel(epsilon=0.02), steps=3)
FEW_PREDICT, FEW_IMAGES, FEW_LABELS, _, WEIGHTS = linear_model.make(40)


def _few(images=FEW_IMAGES, labels=FEW_LABELS, **more):
    predictor = from_function(FEW_PREDICT, image_shape=linear_model.SHAPE)
    return Setting(predictor=predictor, images=images, labels=labels, batch_size=16, **more)


def _attack_by(monkeypatch, run):
    def compiled(attack, predict, **_):
        return types.SimpleNamespace(run=functools.partial(run, attack, predict))

    monkeypatch.setattr(searching.runner, "compile_attack", compiled)


def test_an_accuracy_that_rises_with_epsilon_fails(monkeypatch):
    # An attack that overshoots: it finds the small ball's points and loses the large one's.
    def success(attack):
        return np.arange(40) < (25 if attack.threat.epsilon < 0.015 else 8)

    def attacked(attack, predict, images, labels, **_):
        return AttackResult(images, success(attack), np.zeros(len(images), np.float32))

    _attack_by(monkeypatch, attacked)
    monkeypatch.setattr(short_attack, "search", lambda setting, attack, positions: SearchResult(success(attack), None))
    finding = short_attack.check_monotone(_few(), SHORT, (0.5, 1.0, 2.0), 1000)
    assert finding.verdict == "fail" and "0.01: 37.5%, 0.02: 80.0%, 0.04: 80.0%" in finding.evidence


def test_the_doctor_compares_no_radius_beyond_the_box():
    finding = short_attack.check_monotone(_few(), SHORT.with_epsilon(0.6), (0.5, 1.0, 2.0), 1000)
    assert finding.verdict == "pass" and "0.3: " in finding.evidence and "1.2: " not in finding.evidence


@pytest.mark.parametrize("lie", ["success", "outside"])
def test_saved_images_are_predicted_again(monkeypatch, lie):
    def lying(attack, predict, images, labels, **_):
        adversarial_images = np.array(images) + (0.1 if lie == "outside" else 0.0)
        wrong = np.asarray(predict(tf.constant(adversarial_images, tf.float32))).argmax(-1) != labels
        return AttackResult(adversarial_images, wrong ^ (lie == "success"), np.zeros(len(images), np.float32))

    _attack_by(monkeypatch, lying)
    finding = short_attack.check_repredict(_few(), SHORT, 1000)
    assert finding.verdict == "fail" and "40 " in finding.evidence


@pytest.mark.parametrize("step, verdict, share", [(0.4, "warn", "0.0%"), (1.0, "pass", "100.0%")])
def test_rounding_corrects_what_lies_between_gray_levels(monkeypatch, step, verdict, share):
    def attacked(attack, predict, images, labels, **_):
        return AttackResult(images + np.float32(step / 255), np.ones(4, bool), np.ones(4, np.float32))

    _attack_by(monkeypatch, attacked)
    images = np.full([4, *linear_model.SHAPE], 100 / 255, np.float32)

    def predict(x):
        return tf.one_hot(tf.cast(255 * x[:, 0, 0, 0] > 100.2, tf.int32), 2) + 0 * x[:, 0, 0, :1]

    predictor = from_function(predict, image_shape=linear_model.SHAPE)
    setting = Setting(predictor=predictor, images=images, labels=np.zeros(4, np.int64), batch_size=4)
    finding = short_attack.check_rounding(setting, SHORT, 1000)
    assert finding.verdict == verdict and f"Of 4 adversarial images, {share} are" in finding.evidence


def _pgd(steps, epsilon=0.02, norm="linf"):
    return PGD(threat=ThreatModel(norm=norm, epsilon=epsilon), steps=steps)


@pytest.mark.parametrize("trained, attacks, verdict, words", stored.rows(globals(), "strength"))
def test_strength(trained, attacks, verdict, words):
    training_attack = trained and dict(zip(("norm", "epsilon", "steps"), trained, strict=True))
    setting = _few(training_attack=training_attack, evaluation_attacks=attacks)
    finding = strength.check_strength(setting, SHORT)
    assert finding.verdict == verdict and words in finding.evidence
    assert bool(finding.remedy) == (verdict != "pass")


@pytest.mark.parametrize("trained, differing", stored.rows(globals(), "training_and_evaluation_differ_only_if_the"))
def test_training_and_evaluation_differ_only_if_the_recipe_says_so(trained, differing):
    setting = _few(training_attack={**trained, "steps": 3}, evaluation_attacks=(_pgd(20),))
    finding = strength.check_equal_threat(setting, _pgd(20))
    assert (finding is None) == (not differing)
    if differing:
        assert finding.verdict == "fail" and differing in finding.evidence and "EVAL_EPSILON" in finding.remedy


def test_strength_is_that_of_the_attacks_that_the_recipe_has_or_of_its_own():
    setting = _few(training_attack={"norm": "linf", "epsilon": 0.04, "steps": 3}, evaluation_attacks=(_pgd(20),))
    silent = Doctor(attack=_pgd(1), factors=(0.5, 1.0), limit=4)
    for checks, words in ((silent, "different"), (dataclasses.replace(silent, other_threat=True), "at most 0.02")):
        (finding,) = (candidate for candidate in checks.run(setting).findings if candidate.check == "attack_strength")
        assert words in finding.evidence
    assert "3 steps" in strength.check_strength(_few(), SHORT).evidence


# ------------------------------------------------------------------------- checks of the data and the claims


def _attack(epsilon, norm="linf"):
    return PGD(threat=ThreatModel(norm=norm, epsilon=epsilon), steps=3)


def test_separation_is_the_median_distance_to_the_next_image_of_another_class():
    for norm, order in (("linf", np.inf), ("l2", 2), ("l1", 1)):
        nearest = []
        for image, label in zip(FEW_IMAGES, FEW_LABELS, strict=True):
            gaps = [np.linalg.norm((image - other).ravel(), order) for other in FEW_IMAGES[label != FEW_LABELS]]
            nearest.append(min(gaps))
        assert radius.separation(_few(), norm) == pytest.approx(np.median(nearest), rel=1e-5)
    assert radius.separation(_few(labels=0 * FEW_LABELS), "linf") == np.inf


@pytest.mark.parametrize("epsilon, norm, verdict", stored.rows(globals(), "units"))
def test_units(epsilon, norm, verdict):
    finding = radius.check_units(_few(), _attack(epsilon, norm))
    assert finding.verdict == verdict, finding.evidence
    assert f"{epsilon:.4g}" in finding.evidence and norm in finding.evidence


def test_the_size_that_is_wrong_may_be_that_of_any_attack_or_of_the_images():
    setting = _few(evaluation_attacks=(_attack(8.0, "l2"), _attack(0.02)))
    finding = radius.check_units(setting, _attack(0.02))
    assert finding.verdict == "fail" and "8/255 = 0.03137" in finding.remedy
    # A curve goes far on purpose: it starts small.
    setting = _few(evaluation_attacks=tuple(_attack(epsilon) for epsilon in (0.02, 0.1, 0.9)))
    assert radius.check_units(setting, _attack(0.02)).verdict == "pass"
    # Its small end does not excuse the size that it is drawn around.
    setting = _few(evaluation_attacks=tuple(_attack(epsilon) for epsilon in (0.0375, 0.15, 0.3)))
    finding = radius.check_units(setting, _attack(0.15))
    assert finding.verdict == "fail" and "0.15/255" in finding.remedy
    finding = radius.check_units(_few(images=FEW_IMAGES / 255), _attack(0.02))
    assert finding.verdict == "fail" and "divided by 255" in finding.remedy


@pytest.mark.parametrize("count, share, verdict", stored.rows(globals(), "how_many_images_are_enough"))
def test_how_many_images_are_enough(count, share, verdict):
    finding = _size(count, share)
    assert finding.verdict == verdict
    if verdict != "pass":
        half = 1.96 * np.sqrt(share * (1 - share) / (count + 1.96**2))  # Wilson's at one half
        assert f"within {half:.1%}" in finding.evidence and "385 images" in finding.remedy


def _size(count, share):
    setting = _few(images=FEW_IMAGES[np.arange(count) % 40], labels=FEW_LABELS[np.arange(count) % 40])
    alone = claims.check_test_size(setting, None)
    assert "doctor" not in alone.evidence and f"clean accuracy of {setting.clean_correct.mean():.1%}" in alone.evidence
    return claims.check_test_size(setting, np.arange(count) < count * share)


def test_the_precision_under_attack_is_that_of_the_attacked_images():
    setting = _few(images=FEW_IMAGES[np.arange(4000) % 40], labels=FEW_LABELS[np.arange(4000) % 40])
    finding = claims.check_test_size(setting, np.arange(40) < 20)
    half = 1.96 * np.sqrt(0.25 / (40 + 1.96**2))
    assert finding.verdict == "fail" and finding.evidence.startswith("4000 test images determine a clean accuracy of")
    assert f" and 40 of them an accuracy under the doctor's attack of 50.0% to within {half:.1%}" in finding.evidence


@pytest.mark.parametrize(
    "moved, taken, verdict", [(0.0, 0, "pass"), (0.0, 1, "warn"), (0.5 / 255, 20, "fail"), (2 / 255, 20, "fail")]
)
def test_duplicates(moved, taken, verdict):
    generator = np.random.default_rng(5)
    images = np.round(generator.uniform(0, 0.9, (40, 3, 4, 1)) * 255).astype(np.float32) / 255
    train = generator.uniform(0, 1, (5000, 3, 4, 1)).astype(np.float32)
    train[7 : 7 + taken] = images[:taken] + np.float32(moved * 0.99)
    finding = duplicates.check_duplicates(_few(images=images, train_images=train, train_labels=train[:, 0, 0, 0]))
    exact = taken if moved < 1 / 255 else 0
    assert finding.verdict == verdict, finding.evidence
    assert f"Of 40 test images {exact} (" in finding.evidence and f"and {taken - exact} (" in finding.evidence


def _seen_first(images: np.ndarray) -> ArrayExamples:
    return ArrayExamples(images, np.zeros(len(images), int))


@pytest.mark.parametrize(("taken", "verdict"), [(0, "warn"), (1, "warn"), (20, "fail")])
def test_duplicates_of_a_first_stage_count_too(taken, verdict, monkeypatch):
    monkeypatch.setattr(duplicates, "_BLOCK_BYTES", 7 * 12 * 4)  # taken in many blocks, of which the last is not full
    generator = np.random.default_rng(5)
    images = generator.integers(0, 230, (40, 3, 4, 1), np.uint8)
    first = generator.integers(0, 256, (300, 3, 4, 1), np.uint8)
    first[290 - taken : 290], first[290:291] = images[:taken], images[39] + 1
    train = generator.uniform(0, 1, (500, 3, 4, 1)).astype(np.float32)
    arguments = {"images": images / np.float32(255), "pretraining_examples": _seen_first(first)}
    finding = duplicates.check_duplicates(_few(**arguments, train_images=train))
    beginning = (
        f"Of 40 test images {taken} ({taken / 40:.1%}) are among 500 training images and 300 images of the first stage"
    )
    assert finding.evidence.startswith(f"{beginning}, and 1 (")
    assert finding.verdict == verdict
    alone = duplicates.check_duplicates(_few(**arguments))
    assert alone.evidence.startswith(beginning.replace("500 training images and ", "")) and "split_seed" in alone.remedy


def test_of_a_large_first_stage_some_images_are_looked_at(monkeypatch):
    monkeypatch.setattr(duplicates, "_FETCHED_BYTES", 10 * 12 * 4)
    examples = _seen_first(np.zeros((300, 3, 4, 1), np.uint8))
    assert "among 10 images of the first" in duplicates.check_duplicates(_few(pretraining_examples=examples)).evidence
    other = _seen_first(np.zeros((300, 4, 4, 1), np.uint8))
    assert duplicates.check_duplicates(_few(pretraining_examples=other)) is None


def test_images_that_are_no_duplicates():
    images = np.full((40, 3, 4, 1), 0.5, np.float32)
    images[:, 0, 0, 0] += np.linspace(0, 0.02, 40, dtype=np.float32)
    train = images[:20] + np.float32(0.006)
    assert duplicates.check_duplicates(_few(images=images, train_images=train)).verdict == "pass"
    generator = np.random.default_rng(0)
    first, second = generator.uniform(0, 1, (2, 50, 24, 40, 3)).astype(np.float32)
    full = np.sqrt(np.mean((first - second) ** 2, axis=(1, 2, 3)))
    small = np.sqrt(np.mean((duplicates._small(first) - duplicates._small(second)) ** 2, axis=1))
    assert duplicates._small(first).shape == (50, 8 * 8 * 3) and np.all(small <= full)
    assert duplicates.check_duplicates(_few()) is None
    assert duplicates.check_duplicates(_few(train_images=np.zeros((3, 8, 8, 1)))) is None


@pytest.mark.parametrize("labels, counts, evidence", stored.rows(globals(), "classes_without_images_are_named"))
def test_classes_without_images_are_named(labels, counts, evidence):
    predictor = types.SimpleNamespace(class_count=3)
    names = ("ant", "bee", "cow")
    facts = {"labels": np.array(labels), "train_counts": counts, "class_names": names, "examples": "images"}
    finding = claims.check_classes(types.SimpleNamespace(predictor=predictor, **facts))
    assert (finding.evidence if finding else "") == evidence and (not finding or finding.verdict == "warn")


@pytest.mark.parametrize(("flipped", "verdict"), [(0, "pass"), (17, "warn"), (30, "fail")])
def test_clean_accuracy(flipped, verdict):
    labels = np.concatenate([1 - FEW_LABELS[:flipped], FEW_LABELS[flipped:]])
    finding = claims.check_accuracy(_few(labels=labels))
    assert finding.verdict == verdict, finding.evidence


@pytest.mark.parametrize(("names", "name"), [(None, "class 1"), (("ant", "bee"), "bee")])
def test_a_test_set_of_a_single_class_is_named(names, name):
    labels = FEW_PREDICT(FEW_IMAGES).numpy().argmax(-1)
    setting = _few(images=FEW_IMAGES[labels == 1], labels=labels[labels == 1], class_names=names)
    finding = claims.check_accuracy(setting)
    assert finding.verdict == "warn" and finding.evidence.endswith(f"All of them are of one class, {name}.")
    assert claims.check_accuracy(dataclasses.replace(setting, labels=0 * setting.labels)).verdict == "fail"


@pytest.mark.parametrize("split, verdict", [("test", "fail"), ("validation", "pass"), ("last", "pass"), ("", "warn")])
def test_selection(split, verdict):
    assert claims.check_selection(_few(selected_on=split)).verdict == verdict
