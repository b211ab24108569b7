"""Ensembles: which member attacks which examples, the members of AutoAttack, and invalid combinations."""

import numpy as np
import pytest
import stored
import tensorflow as tf

from conformance.attacks import examples, smooth_model
from tfrobust.attacks.shared import runner
from tfrobust.common import configured
from tfrobust.evaluation.engine import base, loading
from tfrobust.evaluation.evaluators import adversarial
from tfrobust.keras.attacks import FGSM, PGD, AutoAttack, Ensemble, ThreatModel, standard_member


def parameters(attack):
    return {name: getattr(attack, name) for name in ("steps", "restarts", "targets") if hasattr(attack, name)}


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_standard_is_the_published_set(norm):
    attack = AutoAttack(ThreatModel(norm=norm, epsilon=0.3))
    cross_entropy, targeted, fab, square = attack.members
    sparse = norm == "l1"
    assert [member.name for member in attack.members] == ["apgd_ce", "apgd_t", "fab_t", "square"]
    assert parameters(cross_entropy) == {"steps": 100, "restarts": 5 if sparse else 1}
    assert parameters(targeted) == {"steps": 100, "restarts": 1, "targets": 5 if sparse else 9}
    assert parameters(fab) == {"steps": 100, "restarts": 1, "targets": 9}
    assert parameters(square) == {"steps": 5000, "restarts": 1}
    assert (fab.alpha_max, fab.eta, fab.beta, square.initial_share) == (0.1, 1.05, 0.9, 0.8)
    assert all(member.threat == attack.threat for member in attack.members)
    for member in attack.members:
        alone = standard_member(attack.threat, name=member.name)
        assert type(alone) is type(member) and alone.get_config() == member.get_config()
    assert attack.rounds(10) == (5 + 5 if sparse else 1 + 9) + 9 + 1
    assert attack.rounds(3) == (5 if sparse else 1) + 2 + 2 + 1


def test_plus_and_rand():
    plus, rand = (
        AutoAttack(ThreatModel(epsilon=0.2), version="plus"),
        AutoAttack(ThreatModel(epsilon=0.2), version="rand", expectation_samples=7),
    )
    assert [(member.name, member.restarts) for member in plus.members] == [
        ("apgd_ce", 5),
        ("apgd_dlr", 5),
        ("fab", 5),
        ("square", 1),
        ("apgd_t", 1),
        ("fab_t", 1),
    ]
    assert [(member.name, member.expectation_samples) for member in rand.members] == [("apgd_ce", 7), ("apgd_dlr", 7)]
    assert (plus.name, rand.name, AutoAttack(ThreatModel(epsilon=0.2)).name) == (
        "autoattack_plus",
        "autoattack_rand",
        "autoattack",
    )


@pytest.mark.parametrize("attack", stored.rows(globals(), "config_and_size"))
def test_config_and_size(attack):
    again = configured.deserialize(configured.serialize(attack))
    assert type(again) is type(attack) and again.get_config() == attack.get_config()
    larger = attack.with_epsilon(0.5)
    assert {member.threat.epsilon for member in larger.members} == {0.5} == {larger.threat.epsilon}


def test_each_member_attacks_the_examples_that_remain():
    model, images = smooth_model(classes=4), examples(32)
    labels = model(images).numpy().argmax(axis=1)
    labels[:3] = (labels[:3] + 1) % 4  # misclassified before any attack
    threat = ThreatModel(epsilon=0.3)
    members = (PGD(threat, steps=1, step_size=0.08, random_start="none"), FGSM(threat))
    result = runner.run_attack(Ensemble(members), model, images, labels, seed=2)
    first = runner.run_attack(members[0], model, images, labels, seed=2)
    rest = ~first.success
    second = runner.run_attack(members[1], model, images[rest], labels[rest], seed=2, index=np.flatnonzero(rest))
    expected = np.where(first.success, 0, -1)
    expected[np.flatnonzero(rest)[second.success]] = 1
    expected[:3] = -1
    assert set(expected) == {-1, 0, 1}
    np.testing.assert_array_equal(result.member, expected)
    assert result.success[:3].all() and not result.distance[:3].any()
    adversarial_images = first.adversarial.copy()
    adversarial_images[rest] = second.adversarial
    np.testing.assert_allclose(result.adversarial, adversarial_images, atol=1e-6)
    direct = Ensemble(members).attack(model, images, labels, tf.constant([1, 2]))
    np.testing.assert_array_equal(direct.success, result.success)


def test_autoattack_beats_its_parts_and_targets():
    model, images = smooth_model(classes=3), examples(16)
    labels = model(images).numpy().argmax(axis=1)
    attack = AutoAttack(ThreatModel(norm="l2", epsilon=0.4))
    setting = base.Setting(predictor=loading.from_keras(model), images=images, labels=labels)
    outcome = adversarial.AttackAccuracy(attack=attack).run(setting)
    by_id = {measurement.id: measurement.value for measurement in outcome.measurements}
    name = "attack.autoattack_l2_0.4"
    steps = [by_id[f"{name}.{member}.accuracy"] for member in ("apgd_ce", "apgd_t", "fab_t", "square")]
    assert steps == sorted(steps, reverse=True) and by_id[f"{name}.accuracy"] == steps[-1] < 1
    assert outcome.measurements[0].settings["fallback"]  # three classes: the DLR loss needs four
    targets = np.argsort(model(images).numpy(), axis=1)[:, 0]
    aimed = runner.run_attack(attack, model, images, labels, targets=targets)
    predicted = model(aimed.adversarial).numpy().argmax(axis=1)
    np.testing.assert_array_equal(aimed.success, predicted == targets)
