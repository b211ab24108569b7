"""The radius of every adversary follows its ramp: 0, half and whole, in views, logs and the facts of a run."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from conformance import methods as battery
from tfrobust.attacks.apgd import APGD
from tfrobust.keras.attacks import FGSM, MSD, PGD, ThreatModel
from tfrobust.keras.methods import AdversarialTraining, Adversary, FastAdversary, InstanceAdversary
from tfrobust.keras.models import LinearHead
from tfrobust.keras.schedules import LinearRamp, OverTraining, SmoothedRamp

EPSILON = 0.1
LINF = ThreatModel(epsilon=EPSILON)
RAMP = OverTraining(LinearRamp(1.0, delay=25, length=50), updates=40)
STEPS = {0: 0.0, 9: 0.0, 20: 0.5, 30: 1.0, 39: 1.0}  # step -> share of the radius
# Row -> the farthest point in units of the radius, at least and at most.
ROWS = {
    **dict.fromkeys(("adversarial_training", "trades", "adr", "ascl", "ascl_two_transforms", "mart", "hat"), (1, 1)),
    **dict.fromkeys(
        ("rocl", "acl", "acl_to_standard", "smooth_adv", "fare", "mtl_ibp", "fcl_margin_adversarial"), (1, 1)
    ),
    "n_fgsm": (1.5, 3),  # not projected: noise of 2 and a step of 1
}
FIRST = ("trades", "acl", "n_fgsm")


def ramped(row: str, ramp=RAMP, threat=LINF, attack=None):
    keras.utils.set_random_seed(1)
    method = battery.ROWS[row](battery.encoder(), LinearHead(battery.CLASSES))
    attack = attack or (FGSM(threat) if row == "n_fgsm" else PGD(threat, steps=4, step_size=0.05))
    method.adversary = dataclasses.replace(method.adversary, attack=attack, ramp=ramp)
    method.build((None, *battery.IMAGE_SHAPE))
    return method


def views_at(method, step: int) -> dict:
    """The views of a step, with the random numbers of the first."""
    batch, context = battery.prepared(method)
    return method.make_views(batch, context._replace(step=tf.constant(step, tf.int64)))


@pytest.mark.parametrize(
    "row", [pytest.param(r, marks=pytest.mark.first if r in FIRST else pytest.mark.rest) for r in ROWS]
)
def test_the_radius_follows_the_ramp(row):
    method = ramped(row)
    unmoved = views_at(method, 0)
    for name, view in unmoved.items():
        if name.startswith("adversarial"):
            clean = unmoved.get(name.replace("adversarial", "images"), unmoved.get(name.replace("adversarial", "view")))
            np.testing.assert_array_equal(view, clean)
    for step, share in STEPS.items():
        views = views_at(method, step)
        farthest = max(float(tf.reduce_max(tf.abs(views[name] - unmoved[name]))) for name in views)
        least, most = (factor * share * EPSILON for factor in ROWS[row])
        assert least * 0.999 <= farthest <= most * 1.001 + 1e-7, step
    batch, context = battery.prepared(method)
    whole = method.make_views(batch, context._replace(step=tf.constant(30, tf.int64)))
    object.__setattr__(method.adversary, "ramp", None)
    for name, view in method.make_views(batch, context).items():
        np.testing.assert_allclose(view, whole[name], atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "threat", [ThreatModel(norm="l2", epsilon=0.5), ThreatModel(norm="l1", epsilon=2.0)], ids=lambda t: t.norm
)
def test_a_ramp_halves_the_ball_of_every_norm(threat):
    method = ramped("adversarial_training", threat=threat)
    for step, share in ((20, 0.5), (39, 1.0)):
        views = views_at(method, step)
        distances = threat.distance(views["images"], views["adversarial"])
        assert float(tf.reduce_max(distances)) == pytest.approx(share * threat.epsilon, rel=1e-3)


def test_a_ramp_halves_the_ball_of_each_of_several_norms():
    threats = (ThreatModel(epsilon=0.05), ThreatModel(norm="l2", epsilon=0.8))
    attack = MSD(threats, steps=3, step_sizes=(0.05, 0.8))
    method = ramped("adversarial_training", attack=attack)
    for step, share in ((20, 0.5), (39, 1.0)):
        views = views_at(method, step)
        inside = [
            attack.scaled(tf.constant(f * share)).contains(views["images"], views["adversarial"]) for f in (1, 0.9)
        ]
        assert bool(tf.reduce_all(inside[0])) and not bool(tf.reduce_any(inside[1]))


@pytest.mark.parametrize("xla", [False, pytest.param(True, marks=pytest.mark.rest)])
def test_the_log_of_a_step_is_its_radius(xla):
    method = ramped("adversarial_training")
    method.compile("sgd", jit_compile=False)
    step = tf.function(method.train_step, autograph=False, jit_compile=xla)
    batch = tuple(tf.constant(part) for part in battery.data())
    for number, share in STEPS.items():
        method.step.assign(number)
        method.reset_metrics()
        assert float(step(batch)["epsilon"]) == pytest.approx(share * EPSILON, abs=1e-7)


def test_bounds_and_adversary_share_a_schedule():
    method = battery.ROWS["mtl_ibp"](battery.encoder(), LinearHead(3), ramp=SmoothedRamp(delay=10, length=100))
    method.build((None, *battery.IMAGE_SHAPE))
    method._log_radius(60)
    assert float(method.means["epsilon"].result()) == pytest.approx(0.05 * 5 / 13, rel=1e-5)


@pytest.mark.parametrize("kind", [Adversary, InstanceAdversary])
def test_a_ramp_needs_steps_of_fixed_size(kind):
    with pytest.raises(ValueError, match=f"{kind.__name__}.ramp scales attacks with steps .* is APGD"):
        kind(attack=APGD(ThreatModel(epsilon=0.1)), ramp=RAMP)


def test_without_a_step_the_radius_is_whole():
    images = tf.fill([2, 2, 2, 1], 0.5)
    predict = lambda points, training: tf.reduce_sum(points, [1, 2]) * [[1.0, -1.0]]  # noqa: E731
    for adversary in (
        Adversary(attack=FGSM(LINF), objective="cross_entropy", ramp=RAMP),
        # Inside the ball, so that the length of the step alone decides.
        Adversary(attack=PGD(ThreatModel(epsilon=0.2), steps=2, step_size=0.05, random_start="none"), ramp=RAMP),
        FastAdversary(attack=FGSM(LINF), noise=0.0, step=1.0, ramp=RAMP),
    ):
        arguments = predict, images, tf.zeros([2], tf.int32), tf.constant([0, 1])
        np.testing.assert_allclose(adversary.perturb(*arguments), 0.4, atol=1e-6)
        np.testing.assert_array_equal(adversary.perturb(*arguments, step=0), images)
        np.testing.assert_allclose(adversary.perturb(*arguments, step=20), 0.45, atol=1e-6)


def test_a_saved_method_has_its_ramp():
    method = AdversarialTraining(battery.encoder(), LinearHead(3), adversary=battery.adversary(ramp=RAMP))
    twin = AdversarialTraining.from_config(method.get_config())
    assert [float(twin.adversary.ramp(step)) for step in STEPS] == pytest.approx(list(STEPS.values()))
