"""The expensive checks on a linear model, where every robust image is known."""

import types

import numpy as np
import pytest
import tensorflow as tf

from oracles import linear_model
from tfrobust.evaluation.doctor import full as doctor_full
from tfrobust.evaluation.engine.base import Setting
from tfrobust.evaluation.engine.predictor import from_function
from tfrobust.evaluation.runner import run_evaluation
from tfrobust.keras.attacks import FGSM, PGD, AutoAttack, Square, ThreatModel

PREDICT, IMAGES, LABELS, _, _ = linear_model.make(40)
THREAT = ThreatModel(epsilon=0.02)
WHITE, BLACK = PGD(threat=THREAT, steps=5), Square(threat=THREAT, steps=20)


def _setting(predict=PREDICT, **more):
    predictor = from_function(predict, image_shape=linear_model.SHAPE, **more)
    return Setting(predictor=predictor, images=IMAGES, labels=LABELS, batch_size=16)


def test_stronger():
    more = doctor_full.stronger(PGD(threat=THREAT, steps=5, restarts=2), 4)
    assert (more.steps, more.restarts, more.threat) == (20, 8, THREAT)
    fixed = doctor_full.stronger(PGD(threat=THREAT, steps=5, random_start="none"), 4)
    assert (fixed.steps, fixed.restarts) == (20, 1)
    assert doctor_full.stronger(FGSM(threat=THREAT), 3).steps == 30


def test_a_stronger_ensemble_is_one_of_stronger_members():
    """A single PGD in its place succeeds on fewer images, so that the check would pass."""
    ensemble = AutoAttack(THREAT)
    more = doctor_full.stronger(ensemble, 2)
    assert [member.name for member in more.members] == [member.name for member in ensemble.members]
    assert [(member.steps, member.restarts) for member in more.members] == [(200, 2), (200, 2), (200, 2), (10_000, 2)]
    finding = doctor_full.check_effort([ensemble, more], np.ones(4, bool), np.ones(4, bool))
    assert "square by 10000 steps (restarts: 2) succeed on 0.0% of 4 images" in finding.evidence


@pytest.mark.parametrize(("norm", "radius"), [("linf", 0.5), ("l2", np.sqrt(12) / 2), ("l1", 6.0)])
def test_enlarged_reaches_grey_from_anywhere_and_no_further(norm, radius):
    attack = doctor_full.enlarged(PGD(threat=ThreatModel(norm=norm, epsilon=0.02)), _setting())
    assert attack.threat.epsilon == pytest.approx(radius) and attack.threat.norm == norm
    corners = np.random.default_rng(0).integers(0, 2, (50, 3, 4, 1)).astype(np.float32)
    distance = attack.threat.distance(tf.constant(corners), tf.constant(np.full_like(corners, 0.5))).numpy()
    np.testing.assert_allclose(distance, radius, rtol=1e-6)


@pytest.mark.parametrize(
    "only_other, verdict", [(0, "pass"), (2, "pass"), (3, "warn"), (5, "warn"), (6, "fail"), (40, "fail")]
)
def test_the_gain_of_another_attack(only_other, verdict):
    white = np.arange(100) < 60
    blind = np.ones(100, bool)
    blind[:only_other] = False
    finding = doctor_full.check_black_box(BLACK, white, blind)
    assert finding.verdict == verdict and f"{only_other}.0% of 100 images" in finding.evidence


def test_a_large_radius_that_leaves_more_than_grey_does_fails():
    setting, positions = _setting(), np.arange(40)
    attack = doctor_full.enlarged(WHITE, setting)
    nobody, everybody = np.zeros(40, bool), np.ones(40, bool)
    assert doctor_full.check_large(setting, attack, positions, nobody).verdict == "pass"
    finding = doctor_full.check_large(setting, attack, positions, everybody)
    # Grey is of one class for all: it alone shows that no more than that class can stand.
    grey = PREDICT(np.full((1, 3, 4, 1), 0.5, np.float32)).numpy().argmax()
    trivial = doctor_full._plainly_robust(setting, attack, positions)
    assert finding.verdict == "fail" and trivial.mean() <= np.mean(LABELS == grey)
    assert f"{trivial.mean():.1%}" in finding.evidence


def test_surrogates_follow_from_the_seed_learn_the_answers_and_shrink_large_images():
    setting = _setting()
    first, second = doctor_full.train_surrogate(setting, 150), doctor_full.train_surrogate(_setting(), 150)
    np.testing.assert_array_equal(first.clean_logits, second.clean_logits)
    assert doctor_full.train_surrogate(setting, 150) is first
    assert np.mean(first.clean_logits.argmax(-1) == setting.clean_logits.argmax(-1)) > 0.9
    assert doctor_full.surrogate_network((224, 200, 3), 7, 0).count_params() < 3e6


def test_gains_are_over_all_white_box_attacks_together(monkeypatch):
    """The longer search succeeds on the last ten images; the others succeed on these alone, or on none."""
    wrong = ~_setting().clean_correct
    last = wrong | (np.arange(40) >= 30)
    successes = {"pgd 5 0.02": wrong, "pgd 10 0.02": last, "square 20 0.02": last}
    successes["pgd 5 0.5"] = np.ones(40, bool)
    search = lambda _, attack, positions: types.SimpleNamespace(  # noqa: E731
        success=successes[f"{attack.name} {attack.steps} {attack.threat.epsilon}"][positions]
    )
    monkeypatch.setattr(doctor_full, "search", search)
    monkeypatch.setattr(doctor_full, "train_surrogate", lambda setting, steps: setting)
    monkeypatch.setattr(doctor_full, "perturbed", lambda setting, attack, positions: IMAGES[positions])
    doctor = doctor_full.FullDoctor(attack=WHITE, black_box=BLACK, limit=40, more=2)
    verdicts = {finding.check: finding.verdict for finding in doctor.run(_setting()).findings}
    assert verdicts == {"large_epsilon": "pass", "more_effort": "fail", "black_box": "pass", "transfer": "pass"}


def test_its_attacks_can_be_shared_out_and_judge_no_evaluation():
    doctor = doctor_full.FullDoctor(attack=WHITE, black_box=BLACK, limit=30, more=2, surrogate_steps=2)
    names = [(attack.name, attack.steps, attack.threat.epsilon) for attack, _ in doctor.attacks(_setting())]
    assert names == [("pgd", 5, 0.02), ("pgd", 10, 0.02), ("square", 20, 0.02), ("pgd", 5, 0.5)]
    assert all(len(positions) == 30 for _, positions in doctor.attacks(_setting()))
    findings = run_evaluation([doctor], _setting()).findings
    assert [finding.check for finding in findings] == ["large_epsilon", "more_effort", "black_box", "transfer"]


def test_without_gradients_only_the_black_box_runs():
    doctor = doctor_full.FullDoctor(attack=WHITE, black_box=BLACK, limit=20, surrogate_steps=2)
    setting = _setting(differentiable=False)
    assert {attack.name for attack, _ in doctor.attacks(setting)} == {"square"}
    findings = run_evaluation([doctor], setting).findings[1:]  # the first one says what was left out
    assert [finding.check for finding in findings] == ["large_epsilon", "black_box", "transfer"]
    assert findings[1].verdict == "warn" and "no input gradients" in findings[1].evidence
