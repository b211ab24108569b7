"""Robust accuracies of a linear model, whose every robust image is known, and what reports say of them."""

import dataclasses

import numpy as np
import pytest
import stored
import tensorflow as tf

from oracles import linear_model
from tfrobust.attacks.shared import engine
from tfrobust.attacks.shared.attack import Attack
from tfrobust.evaluation.engine import base, chunks, searching, statistics
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.evaluators import adversarial
from tfrobust.evaluation.evaluators.accuracy import CleanAccuracy
from tfrobust.evaluation.evaluators.calibration import Calibration
from tfrobust.keras.attacks import (
    FGSM,
    MALT,
    MSD,
    PGD,
    APGDTargeted,
    AutoAttack,
    Ensemble,
    GaussianNoise,
    MultiTargetedPGD,
    Square,
    ThreatModel,
)
from tfrobust.report import protocol
from tfrobust.report.schema import plain


@pytest.fixture(scope="module")
def model():
    predict, images, labels, margins, weights = linear_model.make(40)
    predictor = from_function(predict, image_shape=linear_model.SHAPE, name="linear")
    return base.Setting(predictor=predictor, images=images, labels=labels, batch_size=16), margins, weights


def test_clean_accuracy(model):
    setting, margins, _ = model
    (measured,) = CleanAccuracy().run(setting).measurements
    assert measured.id == "accuracy.clean" and measured.n == 40
    assert measured.value == np.mean(margins > 0) == 37 / 40
    assert (measured.low, measured.high) == statistics.wilson_interval(37, 40)


def test_an_answer_that_is_no_number_is_not_right(model):
    setting, margins, _ = model
    # argmax calls NaN class 0; the first batch is sound, so that nothing else stops it.
    (position, *_) = np.flatnonzero((margins > 0) & (setting.labels == 0) & (np.arange(40) > 0))
    broken = tf.constant(setting.images[position])

    def predict(images):
        is_broken = tf.reduce_all(images == broken, axis=[1, 2, 3])
        return tf.where(is_broken[:, None], np.float32(np.nan), setting.predictor.logits(images))

    predictor = from_function(predict, image_shape=linear_model.SHAPE)
    correct = dataclasses.replace(setting, predictor=predictor, batch_size=1).clean_correct
    assert not correct[position] and correct.sum() == 36


def test_outcomes_name_each_image_that_stands(model):
    setting, margins, weights = model
    attack, name = FGSM(threat=ThreatModel(epsilon=0.03)), "attack.fgsm_linf_0.03.accuracy"
    for evaluator, identity, correct in (
        (CleanAccuracy(), "accuracy.clean", margins > 0),
        (adversarial.AttackAccuracy(attack=attack), name, margins > 0.03 * np.abs(weights).sum()),
    ):
        (series,) = [candidate for candidate in evaluator.run(setting).series if candidate.id == f"outcomes.{identity}"]
        (row,) = series.columns["right"]
        assert [digit == "1" for digit in row] == correct.tolist() and 0 < correct.sum() < 40


def test_the_first_images_are_those_at_the_beginning_and_are_named(model):
    setting, margins, weights = model
    attack, name = FGSM(threat=ThreatModel(epsilon=0.03)), "attack.fgsm_linf_0.03.accuracy"
    outcome = adversarial.AttackAccuracy(attack=attack, first=15).run(setting)
    (series,) = [candidate for candidate in outcome.series if candidate.id == f"outcomes.{name}"]
    correct = margins[:15] > 0.03 * np.abs(weights).sum()
    assert [digit == "1" for digit in series.columns["right"][0]] == correct.tolist() and 0 < correct.sum() < 15
    (measured,) = [candidate for candidate in outcome.measurements if candidate.id == name]
    assert measured.n == 15 and measured.settings["sample"] == "first 15"
    # As with EVAL_EXAMPLES, which draws images for attacks without `first`.
    limited = adversarial.AttackAccuracy(attack=attack, first=15).run(dataclasses.replace(setting, limit=10))
    (measured,) = [candidate for candidate in limited.measurements if candidate.id == name]
    assert (measured.value, measured.n, measured.settings["sample"]) == (correct[:10].mean(), 10, "first 10")
    drawn = adversarial.AttackAccuracy(attack=attack).run(dataclasses.replace(setting, limit=10))
    assert [series.id for series in drawn.series if series.id.startswith("outcomes.")] == []
    (everything,) = [
        measurement
        for measurement in adversarial.AttackAccuracy(attack=attack, first=10**6).run(setting).measurements
        if measurement.id == name
    ]
    assert everything.n == 40 and "sample" not in everything.settings


@pytest.mark.parametrize("per_class", [False, True])
def test_each_class_has_its_own_accuracy(model, per_class):
    setting, margins, weights = model
    attack, name = FGSM(threat=ThreatModel(epsilon=0.03)), "attack.fgsm_linf_0.03"
    standing = margins > 0.03 * np.abs(weights).sum()
    for evaluator, correct, prefix, usual in (
        (CleanAccuracy(per_class=per_class), margins > 0, "accuracy", ["accuracy.clean"]),
        (
            adversarial.AttackAccuracy(attack=attack, per_class=per_class),
            standing,
            name,
            [f"{name}.{end}" for end in ("accuracy", "drop")],
        ),
    ):
        outcome = evaluator.run(setting)
        (series,) = [candidate for candidate in outcome.series if candidate.id == f"{prefix}.classes"]
        assert series.settings["interval"].endswith("Wilson")
        rows = list(zip(*(series.columns[name] for name in ("label", "n", "accuracy", "low", "high")), strict=True))
        for label, count, value, *ends in rows:
            correct_of_class = correct[setting.labels == label]
            assert (count, value) == (len(correct_of_class), correct_of_class.mean())
            assert tuple(ends) == statistics.wilson_interval(int(correct_of_class.sum()), count)
        assert [row[0] for row in rows] == [0, 1] and sum(row[1] for row in rows) == 40
        more = [f"{prefix}.class.{label}" for label in (0, 1)] if per_class else []
        assert [measurement.id for measurement in outcome.measurements] == [*usual, *more]
        for measurement, row in zip(outcome.measurements[len(usual) :], rows, strict=per_class):
            assert (measurement.n, measurement.value, measurement.low, measurement.high) == row[1:]


@pytest.mark.parametrize("attack, name", stored.rows(globals(), "accuracy_is_the_known_one"))
def test_accuracy_is_the_known_one(model, attack, name):
    setting, margins, weights = model
    dual = np.abs(weights).sum() if attack.threat.norm == "linf" else np.sqrt((weights**2).sum())
    standing = margins > attack.threat.epsilon * dual
    assert 5 < standing.sum() < 35
    outcome = adversarial.AttackAccuracy(attack=attack).run(setting)
    accuracy, drop = outcome.measurements
    assert (accuracy.id, drop.id) == (f"{name}.accuracy", f"{name}.drop")
    assert accuracy.value == standing.mean()
    assert drop.value == pytest.approx((37 / 40 - standing.mean()) / (37 / 40))
    assert accuracy.settings["norm"] == attack.threat.norm and accuracy.settings["restarts"] == 1
    assert accuracy.settings["seed"] == 0 and accuracy.settings["batch_norm"] == "inference"
    assert "bound" not in accuracy.settings


def test_settings_resolve_the_step_size_and_name_the_objective_and_labels_the_id(model):
    threat = ThreatModel(epsilon=0.04)
    pgd, targeted = PGD(threat, steps=10), MultiTargetedPGD(threat)
    settings = adversarial.attack_settings(pgd, model[0])
    assert settings["step_size"] == pytest.approx(0.01) and settings["steps"] == 10
    assert settings["objective"] == "cross_entropy"
    assert adversarial.attack_settings(targeted, model[0])["objective"] == "targeted_cross_entropy"
    steepest = MSD((ThreatModel(epsilon=0.2),), steps=4)  # whose threat models are no settings
    settings = plain(adversarial.attack_settings(steepest, model[0]))
    assert settings["step_sizes"] == [0.125] and "threats" not in settings
    assert adversarial.effort_of(steepest) == "msd (4 steps, 1 restart)"
    noise = GaussianNoise(threat)  # its deviation follows from epsilon and the image
    settings = plain(adversarial.attack_settings(noise, model[0]))
    assert settings["deviation"] == 0.04 and "deviation" not in adversarial.settings_of_radii(noise, settings)
    noise = GaussianNoise(threat, deviation=0.1)
    assert adversarial.settings_of_radii(noise, adversarial.attack_settings(noise, model[0]))["deviation"] == 0.1
    accuracy = adversarial.AttackAccuracy(attack=pgd, label="pgd{steps}")
    assert accuracy.ids()[0] == "attack.pgd10_linf_0.04.accuracy"


def test_settings_of_last_points_are_those_of_the_search_that_finds_them(model):
    attack = MALT(ThreatModel(epsilon=0.04), steps=3, restarts=2, targets=2)
    assert adversarial.attack_settings(attack, model[0])["objective"] == "targeted_dlr"
    (ece, *_) = Calibration(attack=attack, limit=4).run(model[0]).measurements
    assert (ece.settings["objective"], ece.settings["restarts"], ece.settings["steps"]) == ("cross_entropy", 1, 3)
    assert not {"targets", "candidates", "fallback"} & ece.settings.keys()
    noise = adversarial.last_point_settings(GaussianNoise(attack.threat), model[0])
    assert "objective" not in noise and "restarts" not in noise


def test_a_time_budget_gives_bounds(model):
    """Already over after the first step of the first chunk: nobody else is searched, everybody is predicted."""
    setting, margins, weights = model
    attack = PGD(threat=ThreatModel(epsilon=0.03), steps=50, step_size=1e-4)
    full = adversarial.AttackAccuracy(attack=attack).run(setting).measurements[0]
    hurried = dataclasses.replace(setting, chunk_size=7)
    outcome = adversarial.AttackAccuracy(attack=attack, seconds=1e-9).run(hurried)
    (accuracy, drop), (finding,) = outcome.measurements, outcome.findings
    assert (finding.check, finding.verdict) == ("complete_search", "warn") and accuracy.id[:-9] in finding.evidence
    assert accuracy.settings["bound"] == "upper" and drop.settings["bound"] == "lower"
    assert accuracy.settings["seconds"] == 1e-9
    assert full.value < accuracy.value <= 37 / 40 and accuracy.n == 40
    enough = adversarial.AttackAccuracy(attack=attack, seconds=1e6).run(setting)
    assert enough.measurements[0] == full and not enough.findings


@pytest.mark.parametrize("size", [1, 39])
def test_chunks_make_no_difference(model, size):
    setting, _, _ = model
    attack = PGD(threat=ThreatModel(epsilon=0.03), steps=3)
    positions = np.random.default_rng(0).permutation(40)
    expected = searching.run(setting, attack, positions)
    result = searching.search(dataclasses.replace(setting, chunk_size=size), attack, positions)
    np.testing.assert_array_equal(result.success, expected.success)
    np.testing.assert_allclose(result.distance, expected.distance, atol=1e-6)
    assert result.complete and 3 < result.success.sum() < 40


@pytest.mark.parametrize("stop", [1, 3, 7])
def test_an_interrupted_chunk_resumes_and_ends_the_same(model, tmp_path, monkeypatch, stop):
    """Stopped after some parts, which are stored after every stage here; the rounds of these are not searched again."""
    setting, attack = model[0], PGD(ThreatModel(epsilon=0.03), steps=5, restarts=4)
    expected, positions = searching.search(setting, attack, np.arange(40)), np.arange(40)
    monkeypatch.setattr(engine, "KEEP_SECONDS", 0.0)
    store, steps = chunks.Store(tmp_path, {}), []
    watched = dataclasses.replace(setting, batch_size=8, progress=lambda task, done, total: steps.append(done))
    write, begun = chunks.Store.write_part, []

    def interrupted(self, *arguments):
        write(self, *arguments)
        begun.append(arguments[-1])
        if len(begun) == stop:
            raise KeyboardInterrupt

    monkeypatch.setattr(chunks.Store, "write_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        searching.search(watched.within(store, ()), attack, positions)
    monkeypatch.setattr(chunks.Store, "write_part", write)
    (part,) = tmp_path.iterdir()
    assert part.name.endswith(".part.npz") and begun[-1].rounds.sum() < 4 * 40
    steps.clear()
    resumed = searching.search(watched.within(store, ()), attack, positions)
    assert steps[1] >= 1000 * (begun[-1].rounds * ~begun[-1].success).sum() // 160
    np.testing.assert_array_equal(resumed.success, expected.success)
    np.testing.assert_allclose(resumed.distance, expected.distance, atol=1e-6)
    assert resumed.complete and [path.name for path in tmp_path.iterdir()] == [part.name.replace(".part", "")]


@pytest.mark.parametrize("ensemble", [False, True])
def test_progress_is_one_task_that_grows_and_counts_the_images_left(model, ensemble):
    setting, _, _ = model
    attack = PGD(threat=ThreatModel(epsilon=0.03), steps=3)
    attack = Ensemble(attacks=(FGSM(threat=attack.threat), attack)) if ensemble else attack
    calls = []
    watched = dataclasses.replace(setting, chunk_size=15, progress=lambda *call: calls.append(call))
    result = searching.search(
        watched.within(None, (FGSM(ThreatModel(epsilon=0.2)), attack, FGSM(ThreatModel(epsilon=0.2)))),
        attack,
        np.arange(40),
    )
    tasks, done, total = zip(*calls, strict=True)
    assert list(done) == sorted(done) and done[-1] == total[0] and done[-2] < total[0] and len(set(total)) == 1
    remaining = [task.remaining for task in tasks]
    assert remaining == sorted(remaining, reverse=True) and remaining[-1] == np.sum(~result.success)
    assert {(task.images, task.number, task.count) for task in tasks} == {(40, 2, 2)}
    assert {task.member for task in tasks[:-1]} == ({"fgsm", "pgd"} if ensemble else {""})


def test_curve(model):
    setting, margins, weights = model
    curve = adversarial.AccuracyCurve(attack=FGSM(threat=ThreatModel(epsilon=0.04)), epsilons=(0.02, 0.0, 0.04))
    (series,) = curve.run(setting).series
    assert series.id == "attack.fgsm_linf.curve" == curve.ids()[0]
    assert series.columns["epsilon"] == [0.0, 0.02, 0.04] and series.columns["n"] == [40] * 3
    expected = [np.mean(margins > epsilon * np.abs(weights).sum()) for epsilon in (0.0, 0.02, 0.04)]
    assert series.columns["accuracy"] == expected
    assert all(
        low < a < high for low, a, high in zip(*(series.columns[c] for c in ("low", "accuracy", "high")), strict=True)
    )


def test_subset_draws_are_those_of_the_whole(model):
    setting, _, _ = model
    attack = PGD(threat=ThreatModel(epsilon=0.03), steps=1, step_size=0.001)
    all_points = searching.perturbed(setting, attack, np.arange(40))
    np.testing.assert_allclose(
        searching.perturbed(setting, attack, np.array([31, 2, 7])), all_points[[31, 2, 7]], atol=1e-6
    )


def test_last_points_are_those_of_each_batch(model):
    shapes = []

    class Darkening(FGSM):
        def maximize(self, objective, images, keys):
            shapes.append(tuple(images.shape))
            return 0.5 * images

    setting, positions = dataclasses.replace(model[0], batch_size=2), np.array([31, 2, 7])
    points = searching.perturbed(setting, Darkening(threat=ThreatModel(epsilon=1.0)), positions)
    np.testing.assert_array_equal(points, 0.5 * setting.images[positions])
    assert shapes == [(2, *linear_model.SHAPE)]  # traced once, for images of known size


def test_perturbed_moves_also_the_misclassified(model):
    setting, margins, weights = model
    attack = PGD(threat=ThreatModel(epsilon=0.03), steps=5)
    points = searching.perturbed(setting, attack, np.arange(40))
    # On a linear model every image ends in the corner of its ball that lowers its margin most.
    sign = (2 * setting.labels - 1)[:, None, None, None] * np.sign(weights).reshape(1, 3, 4, 1)
    np.testing.assert_allclose(points, setting.images - 0.03 * sign, atol=1e-6)


def test_multiples_of_epsilon_stay_within_the_box():
    for norm, expected in (("linf", [0.0, 0.15, 0.3, 0.45, 0.6, 0.9]), ("l2", [0.0, 0.15, 0.3, 0.45, 0.6, 0.9, 1.2])):
        epsilons = adversarial.curve_epsilons(FGSM(threat=ThreatModel(norm=norm, epsilon=0.6)), None)
        np.testing.assert_allclose(epsilons, expected)


def test_an_ensemble_counts_cumulatively_and_starts_from_the_clean_images(model, tmp_path):
    setting, margins, weights = model
    threat = ThreatModel(epsilon=0.04)
    weak, strong = PGD(threat, steps=1, step_size=0.02, random_start="none"), FGSM(threat)
    both = Both(weak, strong)
    outcome = adversarial.AttackAccuracy(attack=both).run(setting)
    total, drop, first, second = outcome.measurements
    assert [measurement.id for measurement in outcome.measurements] == list(
        adversarial.AttackAccuracy(attack=both).ids()
    )
    assert first.id == "attack.both_linf_0.04.pgd.accuracy" and second.id == "attack.both_linf_0.04.fgsm.accuracy"
    size = np.abs(weights).sum()
    assert first.value == np.mean(margins > 0.02 * size) > second.value == np.mean(margins > 0.04 * size)
    assert total.value == second.value and drop.value == pytest.approx(1 - second.value / np.mean(margins > 0))
    assert total.settings["members"] == ["pgd", "fgsm"] and first.settings["ensemble"] == "both"
    # Chunks and what is kept of them change nothing.
    store = chunks.Store(tmp_path, {"model": "linear"})
    for _ in range(2):
        stored = dataclasses.replace(setting, chunk_size=7, store=store)
        assert adversarial.AttackAccuracy(attack=both).run(stored) == outcome


def test_ensembles_of_other_efforts_are_not_one_protocol(model):
    threat = ThreatModel(epsilon=0.04)

    def measured(*members):
        return adversarial.AttackAccuracy(attack=Ensemble(members)).run(model[0]).measurements

    first = measured(PGD(threat, steps=3, restarts=2), FGSM(threat))
    assert first[0].settings["member_efforts"] == ["pgd (3 steps, 2 restarts)", "fgsm (1 step, 1 restart)"]
    # An accuracy after a member hangs on those before it, not on those behind it.
    assert [measurement.settings["member_efforts"] for measurement in first[2:]] == [
        ["pgd (3 steps, 2 restarts)"],
        ["pgd (3 steps, 2 restarts)", "fgsm (1 step, 1 restart)"],
    ]
    second = measured(PGD(threat, steps=3, restarts=2, step_size=1e-9), FGSM(threat))
    for measurement, another in zip((*first[:2], first[3]), (*second[:2], second[3]), strict=True):
        assert "member_efforts" in protocol.differences(measurement, another)
    assert all(protocol.differences(measurement, measurement) == [] for measurement in first)


def test_members_say_all_that_they_were_given(model):
    threat = ThreatModel(epsilon=0.04)
    members = (
        APGDTargeted(threat, targets=1, expectation_samples=20),
        Square(threat, steps=300, initial_share=0.25, accept_ties=True),
    )
    assert adversarial.attack_settings(Ensemble(members), model[0])["member_efforts"] == [
        "apgd_t (100 steps, 1 restart, 1 target, expectation_samples 20)",
        "square (300 steps, 1 restart, initial_share 0.25, accept_ties)",
    ]
    # The version of AutoAttack says what its members are: older reports with nothing else remain its like.
    settings = adversarial.attack_settings(AutoAttack(threat), model[0])
    assert "member_efforts" not in settings and settings["version"] == "standard"


def test_settings_name_a_budget_for_frames_and_the_frames_of_a_window_where_there_are_any(model):
    threat = ThreatModel(norm="l2", epsilon=0.5, per_frame=True, max_frames=2)
    predictor = from_function(lambda clips: clips[:, :2, 0, 0, 0], image_shape=(3, 2, 2, 1))
    clips = base.Setting(predictor=predictor, images=np.zeros([4, 3, 2, 2, 1], np.float32), labels=np.zeros(4, int))
    settings = adversarial.attack_settings(PGD(threat), clips)
    assert settings["per_frame"] is True and settings["max_frames"] == 2
    assert not {"per_frame", "max_frames"} & adversarial.attack_settings(PGD(ThreatModel(epsilon=0.2)), model[0]).keys()
    assert (
        adversarial.attack_settings(Square(ThreatModel(epsilon=0.2), window_frames="range"), clips)["window_frames"]
        == "range"
    )
    assert adversarial.attack_settings(Square(ThreatModel(epsilon=0.2)), clips)["window_frames"] == "all"
    assert "window_frames" not in adversarial.attack_settings(Square(ThreatModel(epsilon=0.2)), model[0])


class Both(Attack):
    """Two attacks in a row."""

    name = "both"

    def __init__(self, *members):
        self._members = members
        self.threat = members[0].threat

    @property
    def members(self):
        return self._members


class Exact(Attack):
    """The nearest misclassified point of a linear model with two classes, found at once (Linf)."""

    name, steps, minimal = "exact", 1, True

    def __init__(self, threat, weights):
        self.threat, self.weights = threat, weights

    def rounds(self, class_count):
        return 1

    def start(self, predict, images, goal, keys, rounds):
        return {"point": images, "found": tf.zeros_like(goal.labels, tf.bool)}

    def advance(self, predict, images, goal, rounds, state, count):
        margin = -goal.margin(predict(images))
        sign = tf.where(goal.labels == 1, -1.0, 1.0)[:, None, None, None]
        direction = tf.reshape(tf.constant(np.sign(self.weights), tf.float32), [1, *images.shape[1:]])
        size = (margin * 1.0001 / np.abs(self.weights).sum())[:, None, None, None]
        return {"point": images + size * sign * direction, "found": state["found"]}

    def candidate(self, state):
        return state["point"]


def test_a_minimal_attack_is_run_once_and_counted_at_every_size(model, monkeypatch):
    setting, margins, weights = model
    attack = Exact(ThreatModel(epsilon=0.03), weights)
    # Twice the margin, since the logits are (0, score) and the box does not bind.
    distances = np.maximum(margins, 0) / np.abs(weights).sum()
    total, _, middle = adversarial.AttackAccuracy(attack=attack).run(setting).measurements
    assert total.value == np.mean(distances > 0.03)
    assert middle.id == "attack.exact_linf_0.03.median_distance"
    assert middle.value == pytest.approx(np.median(distances), rel=1e-3) and middle.low < middle.value < middle.high
    monkeypatch.delattr(searching.Engine, "run")  # also without a store the curves below search for nothing again
    (curve,) = adversarial.AccuracyCurve(attack=attack, epsilons=(0.0, 0.02, 0.05), limit=None).run(setting).series
    np.testing.assert_allclose(curve.columns["accuracy"], [np.mean(distances > size) for size in (0.0, 0.02, 0.05)])
    (series,) = adversarial.AccuracyCurve(attack=attack, limit=None).run(setting).series
    assert series.columns["accuracy"][-1] == 0.0 and series.columns["epsilon"][-1] == pytest.approx(
        distances.max(), rel=1e-3
    )
    assert {size for size in adversarial.curve_epsilons(attack, None) if size < distances.max()} <= {
        *series.columns["epsilon"]
    }
